"""Request bodies as the OpenAPI page describes them. Descriptions only: `bodies` reads them."""

from __future__ import annotations

from typing import Any

__all__ = ["BODY_OF_CONFIG", "BODY_OF_MODE", "BODY_OF_SCHEMA", "BODY_OF_TAGS"]

_TYPE = "application/vnd.schemaregistry.v1+json"
_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "integer"}
_TEXTS = {"type": "array", "items": _TEXT}
_METADATA = {
    "type": "object",
    "properties": {
        "tags": {"type": "object", "additionalProperties": _TEXTS},
        "properties": {"type": "object", "additionalProperties": _TEXT},
        "sensitive": _TEXTS,
    },
}
_RULE = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "doc": _TEXT,
        "kind": {"type": "string", "enum": ["TRANSFORM", "CONDITION"]},
        "mode": {
            "type": "string",
            "enum": ["UPGRADE", "DOWNGRADE", "UPDOWN", "READ", "WRITE", "WRITEREAD"],
        },
        "type": _TEXT,
        "tags": _TEXTS,
        "params": {"type": "object", "additionalProperties": _TEXT},
        "expr": _TEXT,
        "onSuccess": _TEXT,
        "onFailure": _TEXT,
        "disabled": _FLAG,
    },
    "required": ["name"],
}
_RULE_LIST = {"type": "array", "items": _RULE}
_RULES = {
    "type": "object",
    "properties": {
        "migrationRules": _RULE_LIST,
        "domainRules": _RULE_LIST,
        "encodingRules": _RULE_LIST,
        "enableAt": _TEXT,
    },
}
_TAGS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "schemaEntity": {
                "type": "object",
                "properties": {
                    "entityPath": _TEXT,
                    "entityType": {"type": "string", "enum": ["sr_record", "sr_field"]},
                },
                "required": ["entityPath", "entityType"],
            },
            "tags": _TEXTS,
        },
        "required": ["schemaEntity", "tags"],
    },
}
_REFERENCES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": _TEXT,
            "subject": _TEXT,
            "version": {"type": "integer", "description": "-1: the latest"},
        },
        "required": ["name", "subject"],
    },
}


def _described(properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    types = (_TYPE, "application/json", "application/octet-stream")
    return {"requestBody": {"content": {name: {"schema": schema} for name in types}}}


BODY_OF_SCHEMA = _described(
    {
        "schema": {"type": "string", "description": "the schema, as JSON in a string"},
        "schemaType": {"type": "string", "enum": ["AVRO"]},
        "references": _REFERENCES,
        "metadata": _METADATA,
        "ruleSet": _RULES,
        "id": {"type": "integer", "description": "in mode IMPORT: the schema's id"},
        "version": {
            "type": "integer",
            "description": "the number that the new version must have; -1: any, and keep it in "
            "the metadata",
        },
        "schemaTagsToAdd": _TAGS,
        "schemaTagsToRemove": _TAGS,
        "propagateSchemaTags": _FLAG,
    }
)
BODY_OF_TAGS = _described(
    {
        "newVersion": _NUMBER,
        "tagsToAdd": _TAGS,
        "tagsToRemove": _TAGS,
        "metadata": _METADATA,
        "ruleSet": _RULES,
        "rulesToMerge": _RULES,
        "rulesToRemove": _TEXTS,
    }
)
BODY_OF_CONFIG = _described(
    {
        "compatibility": _TEXT,
        "policy": {"type": "string", "enum": ["avro", "strict", "warehouse"]},
        "compatibilityGroup": _TEXT,
        "compatibilityPolicy": {"type": "string", "enum": ["STRICT", "LENIENT"]},
        "normalize": _FLAG,
        "alias": _TEXT,
        "validateFields": _FLAG,
        "validateNewSchemas": _FLAG,
        "validateRules": _FLAG,
        "defaultMetadata": _METADATA,
        "overrideMetadata": _METADATA,
        "defaultRuleSet": _RULES,
        "overrideRuleSet": _RULES,
    }
)
BODY_OF_MODE = _described(
    {
        "mode": {
            "type": "string",
            "enum": ["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD"],
        }
    }
)
