"""The JSON objects of schemas and of versions of a subject, as in Confluent 8.

Rule: members without a value are omitted, except `schemaType`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from headworks._registry.model.tags import inline_tags, shown_tags
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks._subject import Subject

Entity = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The format of schemas that a caller asks for.

    Unknown values are ignored, as clients newer than the server expect.
    """

    form: str = ""  # "resolved" writes references out in the text
    references: str = ""  # "qualified" names the subjects of references with their context
    tags: tuple[str, ...] = ()  # inline tags to list; "*": all


DEFAULT_FORMAT = ResponseFormat()


def schema_entity(
    connection: Connection,
    schema_cache: SchemaCache,
    stored: StoredSchema,
    response_format: ResponseFormat = DEFAULT_FORMAT,
) -> Entity:
    """Return the object of a schema."""
    definition = stored.definition
    text, references = definition.text, [one.as_dict() for one in definition.references]
    if references and response_format.form.lower() == "resolved":
        text, references = schema_cache.resolved_text(connection, stored), []
    if response_format.references.lower() == "qualified":
        for one in references:
            one["subject"] = str(Subject.parse(str(one["subject"]), within=stored.context))
    tags = inline_tags(schema_cache.load(connection, stored)) if response_format.tags else {}
    optional = {
        "references": references,
        "metadata": definition.metadata,
        "ruleSet": definition.rule_set,
        "schemaTags": shown_tags(tags, response_format.tags) if tags else [],
    }
    return {
        "guid": stored.guid,
        "schemaType": "AVRO",
        "schema": text,
        **{name: value for name, value in optional.items() if value},
        "ts": stored.created_ms,
    }


def version_entity(
    connection: Connection,
    schema_cache: SchemaCache,
    version: StoredVersion,
    response_format: ResponseFormat = DEFAULT_FORMAT,
) -> Entity:
    """Return the object of a version of a subject."""
    shown = schema_entity(connection, schema_cache, version.schema, response_format)
    head = {"subject": str(version.subject), "version": version.number, "id": version.schema.id}
    deleted = {"deleted": True} if version.deleted else {}
    return {**head, **shown, "ts": version.created_ms, **deleted}
