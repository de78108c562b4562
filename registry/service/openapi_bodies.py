"""Request bodies as the OpenAPI page describes them. Descriptions only: `bodies` reads them."""

from __future__ import annotations

from typing import Any

_TYPES = (
    "application/vnd.schemaregistry.v1+json",
    "application/json",
    "application/octet-stream",
)
_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "integer"}


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    shape = {"type": "object", "properties": properties}
    return {**shape, "required": required.split()} if required else shape


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _one_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _body(**properties: Any) -> dict[str, Any]:
    content = {name: {"schema": _object(**properties)} for name in _TYPES}
    return {"requestBody": {"content": content}}


_TEXTS = _list(_TEXT)
_METADATA = _object(tags=_map(_TEXTS), properties=_map(_TEXT), sensitive=_TEXTS)
_RULE_LIST = _list(
    _object(
        "name",
        name=_TEXT,
        doc=_TEXT,
        kind=_one_of("TRANSFORM", "CONDITION"),
        mode=_one_of("UPGRADE", "DOWNGRADE", "UPDOWN", "READ", "WRITE", "WRITEREAD"),
        type=_TEXT,
        tags=_TEXTS,
        params=_map(_TEXT),
        expr=_TEXT,
        onSuccess=_TEXT,
        onFailure=_TEXT,
        disabled=_FLAG,
    )
)
_RULES = _object(
    migrationRules=_RULE_LIST, domainRules=_RULE_LIST, encodingRules=_RULE_LIST, enableAt=_TEXT
)
_ENTITY = _object(
    "entityPath entityType", entityPath=_TEXT, entityType=_one_of("sr_record", "sr_field")
)
_TAGS = _list(_object("schemaEntity tags", schemaEntity=_ENTITY, tags=_TEXTS))
_REFERENCED_VERSION = {"type": "integer", "description": "-1: the latest"}
_REFERENCE = _object("name subject", name=_TEXT, subject=_TEXT, version=_REFERENCED_VERSION)

BODY_OF_SCHEMA = _body(
    schema={"type": "string", "description": "the schema, as JSON in a string"},
    schemaType=_one_of("AVRO"),
    references=_list(_REFERENCE),
    metadata=_METADATA,
    ruleSet=_RULES,
    id={"type": "integer", "description": "in mode IMPORT: the schema's id"},
    version={
        "type": "integer",
        "description": "the number that the new version must have; -1: any, and keep it in "
        "the metadata",
    },
    schemaTagsToAdd=_TAGS,
    schemaTagsToRemove=_TAGS,
    propagateSchemaTags=_FLAG,
)
BODY_OF_TAGS = _body(
    newVersion=_NUMBER,
    tagsToAdd=_TAGS,
    tagsToRemove=_TAGS,
    metadata=_METADATA,
    ruleSet=_RULES,
    rulesToMerge=_RULES,
    rulesToRemove=_TEXTS,
)
BODY_OF_CONFIG = _body(
    compatibility=_TEXT,
    policy=_one_of("avro", "strict", "warehouse"),
    compatibilityGroup=_TEXT,
    compatibilityPolicy=_one_of("STRICT", "LENIENT"),
    normalize=_FLAG,
    alias=_TEXT,
    validateFields=_FLAG,
    validateNewSchemas=_FLAG,
    validateRules=_FLAG,
    defaultMetadata=_METADATA,
    overrideMetadata=_METADATA,
    defaultRuleSet=_RULES,
    overrideRuleSet=_RULES,
    deprecatedVersions={"type": "object", "additionalProperties": _TEXT},
)
BODY_OF_MODE = _body(
    mode=_one_of("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
)
