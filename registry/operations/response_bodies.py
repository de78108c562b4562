"""The JSON objects of schemas and of versions of a subject, as in Confluent 8.

Rule: members without a value are omitted, except `schemaType`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from headworks._registry.model.definition import JsonObject
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
    found = _content(stored.guid, text, references, definition.metadata, definition.rule_set)
    if tags and (shown := shown_tags(tags, response_format.tags)):
        found["schemaTags"] = shown
    found["ts"] = stored.created_ms
    return found


def version_entity(
    connection: Connection,
    schema_cache: SchemaCache,
    version: StoredVersion,
    response_format: ResponseFormat = DEFAULT_FORMAT,
) -> Entity:
    """Return the object of a version of a subject."""
    found = {"subject": str(version.subject), "version": version.number, "id": version.schema.id}
    found |= schema_entity(connection, schema_cache, version.schema, response_format)
    return _registered(found, version.created_ms, deleted=version.deleted)


def listed_entity(version: ListedVersion, aliases: Sequence[str]) -> Entity:
    """Return the object of a version in a list, with the aliases of its subject."""
    found = {"subject": str(version.subject), "version": version.number, "id": version.schema_id}
    references = [one.as_dict() for one in version.references]
    found |= _content(version.guid, version.text, references, version.metadata, version.rule_set)
    if aliases:
        found["aliases"] = aliases
    return _registered(found, version.created_ms, deleted=version.deleted)


def _content(
    guid: str,
    text: str,
    references: Sequence[Entity],
    metadata: JsonObject | None,
    rule_set: JsonObject | None,
) -> Entity:
    found: Entity = {"guid": guid, "schemaType": "AVRO", "schema": text}
    if references:
        found["references"] = references
    if metadata:
        found["metadata"] = metadata
    if rule_set:
        found["ruleSet"] = rule_set
    return found


def _registered(found: Entity, created_ms: int, *, deleted: bool) -> Entity:
    found["ts"] = created_ms
    if deleted:
        found["deleted"] = True
    return found
