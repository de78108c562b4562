"""Request bodies: from bytes to a JSON object, and from that to a proposed schema.

Rule: unknown members are ignored, because clients are often newer than the server.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from fastapi import Depends, Request

from headworks._registry.model import metadata_and_rules, refusals
from headworks._registry.model.definition import Definition, JsonObject, SchemaReference
from headworks._registry.model.names import valid_subject
from headworks._registry.model.refusals import ServiceError
from headworks._registry.model.tags import read_tags
from headworks._registry.operations.proposals import NUMBERED, ProposedSchema
from headworks._registry.service.openapi_bodies import (
    BODY_OF_CONFIG,
    BODY_OF_MODE,
    BODY_OF_SCHEMA,
    BODY_OF_TAGS,
)
from headworks.schema._json_text import integer

__all__ = [
    "BODY_OF_CONFIG",
    "BODY_OF_MODE",
    "BODY_OF_SCHEMA",
    "BODY_OF_TAGS",
    "Body",
    "read_proposal",
    "read_retagging",
]

_ACCEPTED = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)
_MAX_INT = 2**31 - 1


async def json_object(request: Request) -> JsonObject:
    """Return the body; 415 for another content type, 400 if it is not a JSON object."""
    content_type, _, parameters = request.headers.get("content-type", "").partition(";")
    if content_type and content_type.strip().lower() not in _ACCEPTED:
        raise ServiceError(415, 415, f"the content type must be one of {', '.join(_ACCEPTED)}")
    data = bytearray()
    largest = request.app.state.largest_body
    async for chunk in request.stream():
        data += chunk
        if len(data) > largest:
            raise ServiceError(413, 413, f"the request is longer than {largest} bytes")
    if data and not content_type:
        # A web page can send this to another origin without asking it first.
        raise ServiceError(
            415, 415, f"the request has a body and no Content-Type: send {_ACCEPTED[0]}"
        )
    if not data:
        raise ServiceError(422, 422, "the request has no body: send a JSON object")
    try:
        text = _decoded(bytes(data), _charset(parameters))
        value = _DECODER.decode(text)
        # JSON allows a lone surrogate, but UTF-8 does not: it could not be stored or returned.
        # Text in ASCII has one only as an escape.
        if "\\u" in text or not text.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise refusals.bad_request("the body is nested too deeply") from None
    except ValueError as error:
        raise refusals.bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise refusals.bad_request("the body must be a JSON object")
    return value


Body = Annotated[JsonObject, Depends(json_object)]


def read_proposal(body: JsonObject, *, validate_rules: bool = True) -> ProposedSchema:
    """Return the schema that a body proposes; ServiceError 42201 or 42210 for a wrong member."""
    kind = body.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise refusals.invalid_schema(
            f"Invalid schema: this registry keeps Avro schemas only, and schemaType is {kind!r}"
        )
    text = body.get("schema") or ""
    if not isinstance(text, str):
        raise refusals.invalid_schema("Invalid schema: `schema` must be a string holding the JSON")
    add = read_tags(body.get("schemaTagsToAdd"), "schemaTagsToAdd")
    remove = read_tags(body.get("schemaTagsToRemove"), "schemaTagsToRemove")
    version, chosen = _version(body, "version"), _positive(body, "id")
    # An import brings rule sets that another registry has accepted.
    rules = metadata_and_rules.read_rules(
        body.get("ruleSet"), validate=validate_rules and chosen is None
    )
    return ProposedSchema(
        text,
        tuple(_reference(one) for one in _list(body, "references")),
        metadata_and_rules.read_metadata(body.get("metadata")),
        rules,
        chosen,
        NUMBERED if version is None and (add or remove) else version,
        add,
        remove,
        body.get("propagateSchemaTags") is True,
    )


def read_retagging(
    body: JsonObject, old: Definition, latest_rules: JsonObject | None, *, validate_rules: bool
) -> ProposedSchema:
    """Return the proposal of a change of tags: the version's content with the body's changes.

    Rules to merge or remove change the latest rule set. A whole `ruleSet` replaces it.
    """
    metadata = metadata_and_rules.read_metadata(body.get("metadata"))
    rules = metadata_and_rules.read_rules(body.get("ruleSet"), validate=validate_rules)
    merge = metadata_and_rules.read_rules(body.get("rulesToMerge"), validate=validate_rules)
    removed = _list(body, "rulesToRemove")
    if merge is not None or removed:
        rules = metadata_and_rules.rules_without(
            metadata_and_rules.merged_rules(latest_rules, merge, None),
            [str(name) for name in removed],
        )
    return ProposedSchema(
        old.text,
        old.references,
        # From now on, the metadata of the versions holds their numbers.
        metadata_and_rules.numbered(old.metadata if metadata is None else metadata, 0),
        rules,
        version=_version(body, "newVersion"),
        add_tags=read_tags(body.get("tagsToAdd"), "tagsToAdd"),
        remove_tags=read_tags(body.get("tagsToRemove"), "tagsToRemove"),
    )


def _reference(value: Any) -> SchemaReference:
    if not isinstance(value, dict):
        raise refusals.invalid_schema("Invalid schema: a reference must be an object")
    name, subject, version = value.get("name"), value.get("subject"), value.get("version", -1)
    if not isinstance(name, str) or not isinstance(subject, str) or "\0" in name:
        raise refusals.invalid_schema(
            "Invalid schema: a reference needs the strings `name` and `subject`"
        )
    if type(version) is not int or not (version == -1 or 0 < version <= _MAX_INT):
        raise refusals.invalid_schema(
            f"Invalid schema: reference '{name}' has the version {version!r}; "
            "give a version number, or -1 for the latest"
        )
    valid_subject(subject)
    return SchemaReference(name, subject, version)


def _list(body: JsonObject, name: str) -> list[Any]:
    found = body.get(name) or []
    if not isinstance(found, list):
        raise refusals.invalid_schema(f"Invalid schema: `{name}` must be a list")
    return found


def _positive(body: JsonObject, name: str) -> int | None:
    """Return the number that the caller chooses, or None for 0, -1, and null."""
    found = body.get(name)
    if found in (None, 0, -1) and not isinstance(found, bool):
        return None
    if type(found) is not int or not 0 < found <= _MAX_INT:
        raise refusals.invalid_schema(
            f"Invalid schema: `{name}` is {found!r}, not a number above 0"
        )
    return found


def _version(body: JsonObject, name: str) -> int | None:
    """Return the number that a new version must have, NUMBERED for -1, or None."""
    return NUMBERED if body.get(name) == -1 else _positive(body, name)


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"') or "utf-8"
    return "utf-8"


def _decoded(data: bytes, charset: str) -> str:
    """Return the text; ValueError if the charset is unknown, or the bytes are not in it."""
    try:
        return data.decode(charset)
    except LookupError:
        raise ValueError(f"{charset!r} is not a charset") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, parse_int=integer)
