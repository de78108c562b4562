"""The OpenAPI page: FastAPI's own, completed with the responses of the routes.

Rules: every route of the interface has its response here, in the three content types of the
interface, and a test checks it. All refusals have one shape. The shapes are as strict as the
interface, so that a tool can detect a wrong response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

_TYPES = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_FLAG = {"type": "boolean"}
_OBJECT = {"type": "object"}
_LEVELS = ("BACKWARD", "FORWARD", "FULL")


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def _object(required: str = "", **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required.split(),
        "properties": {name.rstrip("_"): dict(one) for name, one in properties.items()},
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_REFERENCE = _object("name subject version", name=_TEXT, subject=_TEXT, version=_NUMBER)
_CONTENT: Final[Mapping[str, Mapping[str, Any]]] = {
    "guid": _TEXT,
    "schemaType": {"type": "string", "enum": ["AVRO"]},
    "schema": _TEXT,
    "references": _list(_REFERENCE),
    "metadata": _OBJECT,
    "ruleSet": _OBJECT,
    "schemaTags": _list(_OBJECT),
    "ts": _NUMBER,
    "deleted": _FLAG,
}
_LEVEL = {
    "type": "string",
    "enum": ["NONE", *_LEVELS, *(f"{level}_TRANSITIVE" for level in _LEVELS)],
}
_FINDING = _object(
    "rule kind message fix path reader_pointer writer_pointer",
    rule=_TEXT,
    kind=_TEXT,
    message=_TEXT,
    fix=_TEXT,
    path=_TEXT,
    reader_pointer=_TEXT,
    writer_pointer=_TEXT,
    reader_version={"type": ["integer", "null"]},
    writer_version={"type": ["integer", "null"]},
)
_SHAPES: Final[Mapping[str, dict[str, Any]]] = {
    "Refusal": _object(
        "error_code message", error_code=_NUMBER, message=_TEXT, findings=_list(_ref("Finding"))
    ),
    "Finding": _FINDING,
    "Schema": _object(
        "guid schemaType schema ts",
        subject=_TEXT,
        version=_NUMBER,
        maxId=_NUMBER,
        **_CONTENT,
    ),
    "Version": _object(
        "subject version id guid schemaType schema ts",
        subject=_TEXT,
        version=_NUMBER,
        id=_NUMBER,
        aliases=_list(_TEXT),
        **_CONTENT,
    ),
    "Registered": _object(
        "version guid schemaType schema ts", version=_NUMBER, id=_NUMBER, **_CONTENT
    ),
    "Settings": _object(compatibilityLevel=_LEVEL, compatibility=_LEVEL, policy=_TEXT),
    "Mode": _object("mode", mode=_TEXT),
    "Verdict": _object(
        "is_compatible",
        is_compatible=_FLAG,
        messages=_list(_TEXT),
        findings=_list(_ref("Finding")),
    ),
    "Change": _object(
        "seq at who action subject detail",
        seq=_NUMBER,
        at=_NUMBER,
        who=_TEXT,
        action=_TEXT,
        subject=_TEXT,
        version={"type": ["integer", "null"]},
        id={"type": ["integer", "null"]},
        detail=_OBJECT,
    ),
}
_USE = _object("subject version", subject=_TEXT, version=_NUMBER)
_DIFFERENCE = _object("path what", path=_TEXT, what=_TEXT)
_HEALTH = _object("status", status=_TEXT)
_AVRO: Final[dict[str, Any]] = {"description": "the schema itself, as JSON"}

# The body of a route's response with status 200; None: the status is 204, without a body.
ANSWERS: Final[Mapping[tuple[str, str], dict[str, Any] | None]] = {
    ("get", "/"): _OBJECT,
    ("get", "/subjects"): _list(_TEXT),
    ("post", "/subjects/{subject}"): _ref("Version"),
    ("delete", "/subjects/{subject}"): _list(_NUMBER),
    ("post", "/subjects/{subject}/undelete"): _list(_NUMBER),
    ("get", "/subjects/{subject}/versions"): _list(_NUMBER),
    ("post", "/subjects/{subject}/versions"): _ref("Registered"),
    ("post", "/subjects/{subject}/versions/{version}/tags"): _ref("Registered"),
    ("get", "/subjects/{subject}/versions/{version}"): _ref("Version"),
    ("delete", "/subjects/{subject}/versions/{version}"): _NUMBER,
    ("get", "/subjects/{subject}/versions/{version}/schema"): _AVRO,
    ("get", "/subjects/{subject}/versions/{version}/referencedby"): _list(_NUMBER),
    ("get", "/subjects/{subject}/diff/{old}/{new}"): _object(
        "subject from to differences",
        subject=_TEXT,
        from_=_NUMBER,
        to=_NUMBER,
        differences=_list(_DIFFERENCE),
    ),
    ("get", "/subjects/{subject}/metadata"): _ref("Version"),
    ("get", "/schemas"): _list(_ref("Version")),
    ("get", "/schemas/types"): _list(_TEXT),
    ("get", "/schemas/ids/{schema_id}"): _ref("Schema"),
    ("get", "/schemas/ids/{schema_id}/schema"): _AVRO,
    ("get", "/schemas/ids/{schema_id}/subjects"): _list(_TEXT),
    ("get", "/schemas/ids/{schema_id}/versions"): _list(_USE),
    ("get", "/schemas/guids/{guid}"): _ref("Schema"),
    ("get", "/schemas/guids/{guid}/ids"): _list(_object("context id", context=_TEXT, id=_NUMBER)),
    ("post", "/compatibility/subjects/{subject}/versions"): _ref("Verdict"),
    ("post", "/compatibility/subjects/{subject}/versions/{version}"): _ref("Verdict"),
    ("get", "/config"): _ref("Settings"),
    ("put", "/config"): _ref("Settings"),
    ("delete", "/config"): _ref("Settings"),
    ("get", "/config/{subject}"): _ref("Settings"),
    ("put", "/config/{subject}"): _ref("Settings"),
    ("delete", "/config/{subject}"): _ref("Settings"),
    ("get", "/mode"): _ref("Mode"),
    ("put", "/mode"): _ref("Mode"),
    ("delete", "/mode"): _ref("Mode"),
    ("get", "/mode/{subject}"): _ref("Mode"),
    ("put", "/mode/{subject}"): _ref("Mode"),
    ("delete", "/mode/{subject}"): _ref("Mode"),
    ("get", "/contexts"): _list(_TEXT),
    ("delete", "/contexts/{context}"): None,
    ("get", "/v1/metadata/id"): _object("scope", scope=_OBJECT),
    ("get", "/v1/metadata/version"): _object("version commitId", version=_TEXT, commitId=_TEXT),
    ("get", "/v1/metadata/deployment"): _object("attributes", attributes=_OBJECT),
    ("get", "/associations"): _list(_OBJECT),
    ("put", "/associations"): _OBJECT,
    ("post", "/associations"): _OBJECT,
    ("delete", "/associations"): None,
    ("get", "/audit"): _list(_ref("Change")),
    ("get", "/health"): _HEALTH,
    ("get", "/health/ready"): _HEALTH,
}


def describe(app: FastAPI) -> None:
    """Make the application describe the responses of its routes."""
    page: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not page:
            page.update(_completed(get_openapi(**_head(app), routes=app.routes)))
        return page

    app.openapi = openapi  # type: ignore[method-assign]


def _head(app: FastAPI) -> dict[str, Any]:
    return {
        "title": app.title,
        "version": app.version,
        "summary": "Confluent Schema Registry's interface for Avro, and what this registry adds",
    }


def _completed(page: dict[str, Any]) -> dict[str, Any]:
    page.setdefault("components", {})["schemas"] = dict(_SHAPES)
    refusal = {"description": "refused, and why", "content": _content(_ref("Refusal"))}
    for path, operations in page["paths"].items():
        for method, operation in operations.items():
            if (method, path) not in ANSWERS:
                continue
            answer = ANSWERS[method, path]
            done = {"description": "done", "content": _content(answer)} if answer else None
            operation["responses"] = {
                **({"200": done} if done else {"204": {"description": "done"}}),
                "4XX": refusal,
                "5XX": refusal,
            }
    return page


def _content(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"schema": dict(shape)} for name in _TYPES}
