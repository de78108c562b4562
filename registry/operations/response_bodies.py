"""The JSON objects of schemas and of versions of a subject, as in Confluent 8.

Rule: members without a value are omitted, except `schemaType`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from headworks._registry.model.tags import inline_tags, shown_tags
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.store.schemas import ListedVersion, StoredSchema, StoredVersion
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
    return {
        "guid": stored.guid,
        "schemaType": "AVRO",
        "schema": text,
        **_present(
            references=references,
            metadata=definition.metadata,
            ruleSet=definition.rule_set,
            schemaTags=shown_tags(tags, response_format.tags) if tags else [],
        ),
        "ts": stored.created_ms,
    }


def version_entity(
    connection: Connection,
    schema_cache: SchemaCache,
    version: StoredVersion,
    response_format: ResponseFormat = DEFAULT_FORMAT,
) -> Entity:
    """Return the object of a version of a subject."""
    head = {"subject": str(version.subject), "version": version.number, "id": version.schema.id}
    shown = schema_entity(connection, schema_cache, version.schema, response_format)
    deleted = {"deleted": True} if version.deleted else {}
    return {**head, **shown, "ts": version.created_ms, **deleted}


def listed_entity(version: ListedVersion, aliases: Sequence[str]) -> Entity:
    """Return the object of a version in a list, with the aliases of its subject."""
    found = {
        "subject": str(version.subject),
        "version": version.number,
        "id": version.schema_id,
        "guid": version.guid,
        "schemaType": "AVRO",
        "schema": version.text,
        "ts": version.created_ms,
    }
    if version.references or version.metadata or version.rule_set or version.deleted or aliases:
        found |= _present(
            references=[one.as_dict() for one in version.references],
            metadata=version.metadata,
            ruleSet=version.rule_set,
            deleted=version.deleted,
            aliases=aliases,
        )
    return found


def _present(**members: object) -> Entity:
    return {name: value for name, value in members.items() if value}
