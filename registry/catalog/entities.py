"""What the interface shows of a schema and of a version of a subject: JSON of Confluent 8's shape.

Members without a value are left out; `schemaType` never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from registry.catalog.loader import Loader
from registry.store.schemas import Stored, StoredVersion

__all__ = ["Entity", "schema_entity", "version_entity"]

Entity = dict[str, Any]
_RESOLVED = "resolved"


def schema_entity(
    connection: Connection, loader: Loader, stored: Stored, *, form: str = ""
) -> Entity:
    """A schema by itself. `form`: "resolved" writes its references out in it."""
    definition = stored.definition
    resolved = form == _RESOLVED and bool(definition.references)
    text = loader.resolved_text(connection, stored) if resolved else definition.text
    references = [] if resolved else [one.as_dict() for one in definition.references]
    return _without_empty(
        {
            "guid": definition.guid,
            "schemaType": "AVRO",
            "schema": text,
            "references": references,
            "metadata": definition.metadata,
            "ruleSet": definition.rule_set,
            "ts": stored.created_ms,
        }
    )


def version_entity(
    connection: Connection, loader: Loader, version: StoredVersion, *, form: str = ""
) -> Entity:
    """A version of a subject."""
    shown = schema_entity(connection, loader, version.schema, form=form)
    head = {"subject": str(version.subject), "version": version.number, "id": version.schema.id}
    tail = {"ts": version.created_ms, "deleted": version.deleted or None}
    return _without_empty({**head, **shown, **tail})


def _without_empty(entity: Mapping[str, Any]) -> Entity:
    return {name: value for name, value in entity.items() if value not in (None, [], {})}
