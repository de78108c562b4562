"""What the interface shows of a schema and of a version of a subject: JSON of Confluent 8's shape.

Members without a value are left out; `schemaType` never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from headworks._registry.model.subject import Subject
from headworks._registry.model.tags import inline_tags, shown_tags
from headworks._registry.operations.parsed_schemas import Loader
from headworks._registry.store.schemas import Stored, StoredVersion

__all__ = ["PLAIN", "Entity", "Shape", "schema_entity", "version_entity"]

Entity = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a caller wants schemas to be shown.

    `form` "resolved" writes references out in the text, `references` "qualified" names their
    subjects with the context; `tags` are those to look for in the text ("*": any). Words that are
    not known mean nothing, as clients newer than the server expect.
    """

    form: str = ""
    references: str = ""
    tags: tuple[str, ...] = ()


PLAIN = Shape()


def schema_entity(
    connection: Connection, loader: Loader, stored: Stored, shape: Shape = PLAIN
) -> Entity:
    """A schema by itself."""
    definition = stored.definition
    text, references = definition.text, [one.as_dict() for one in definition.references]
    if references and shape.form.lower() == "resolved":
        text, references = loader.resolved_text(connection, stored), []
    if shape.references.lower() == "qualified":
        for one in references:
            one["subject"] = str(Subject.parse(str(one["subject"]), within=stored.context))
    tags = inline_tags(loader.load(connection, stored)) if shape.tags else {}
    return _without_empty(
        {
            "guid": definition.guid,
            "schemaType": "AVRO",
            "schema": text,
            "references": references,
            "metadata": definition.metadata,
            "ruleSet": definition.rule_set,
            "schemaTags": shown_tags(tags, shape.tags),
            "ts": stored.created_ms,
        }
    )


def version_entity(
    connection: Connection, loader: Loader, version: StoredVersion, shape: Shape = PLAIN
) -> Entity:
    """A version of a subject."""
    shown = schema_entity(connection, loader, version.schema, shape)
    head = {"subject": str(version.subject), "version": version.number, "id": version.schema.id}
    tail = {"ts": version.created_ms, "deleted": version.deleted or None}
    return _without_empty({**head, **shown, **tail})


def _without_empty(entity: Mapping[str, Any]) -> Entity:
    return {name: value for name, value in entity.items() if value not in (None, [], {})}
