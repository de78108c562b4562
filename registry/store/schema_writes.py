"""Changes of schemas and of their versions in subjects.

Rule: every function works inside the caller's transaction. An id, once assigned, is never assigned
again, whatever is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    insert,
    literal,
    update,
)

from headworks._registry.model.definition import JsonObject
from headworks._registry.store.changes import (
    ADD_AUDIT_ENTRY,
    NEW_AUDIT_ENTRY,
    AuditEntry,
    audit_values,
)
from headworks._registry.store.schemas import StoredSchema
from headworks._registry.store.tables import contexts, references, schemas, versions
from headworks._server.database import PreparedChanges, PreparedStatement
from headworks._subject import Subject

_NEW_SCHEMA = insert(schemas).values(
    context=bindparam("context"),
    id=bindparam("schema_id"),
    guid=bindparam("guid"),
    digest=bindparam("digest"),
    text=bindparam("text"),
    metadata=bindparam("metadata"),
    rule_set=bindparam("rule_set"),
    created_ms=bindparam("at_ms"),
)
_NEW_VERSION = insert(versions).values(
    context=bindparam("context"),
    subject=bindparam("name"),
    version=bindparam("version"),
    schema_id=bindparam("schema_id"),
    deleted=literal(value=False),
    created_ms=bindparam("at_ms"),
)
_NEXT_ID = (
    update(contexts)
    .where(contexts.c.name == bindparam("context"))
    .values(last_id=bindparam("schema_id"))
)
_ADD_SCHEMA = PreparedStatement(_NEW_SCHEMA)
_ADD_VERSION = PreparedStatement(_NEW_VERSION)
_ADD_BOTH = PreparedChanges(_NEXT_ID, _NEW_SCHEMA, _NEW_VERSION, NEW_AUDIT_ENTRY)
_ADD_REFERENCE = PreparedStatement(insert(references))
_ADD_CONTEXT = PreparedStatement(insert(contexts))
_SET_LAST_ID = PreparedStatement(_NEXT_ID)


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to be added to a subject: its number and schema, and who adds it when."""

    subject: Subject
    number: int
    schema: StoredSchema
    who: str
    at_ms: int

    @property
    def audit_values(self) -> dict[str, object]:
        """The values of the row in the audit log."""
        entry = AuditEntry("register", str(self.subject), self.number, self.schema.id)
        return audit_values(entry, who=self.who, at_ms=self.at_ms)

    @property
    def values(self) -> dict[str, object]:
        """The values of the row of the version."""
        return {
            "context": self.subject.context,
            "name": self.subject.name,
            "version": self.number,
            "schema_id": self.schema.id,
            "at_ms": self.at_ms,
        }


def add_version(connection: Connection, added: NewVersion) -> None:
    """Make a stored schema a version of a subject, with its row in the audit log."""
    _ADD_VERSION.run(connection, added.values)
    ADD_AUDIT_ENTRY.run(connection, added.audit_values)


def add_version_of_new_schema(
    connection: Connection, added: NewVersion, last_id: int | None
) -> None:
    """Do the same, and store the schema; `last_id` is the highest one of the context so far."""
    definition = added.schema.definition
    if last_id is not None and added.schema.id > last_id and not definition.references:
        values = {**added.values, **added.audit_values, **_content(added.schema)}
        _ADD_BOTH.run(connection, values)
        return
    add_schema(connection, added.schema, last_id)
    add_version(connection, added)


def add_schema(connection: Connection, added: StoredSchema, last_id: int | None) -> None:
    """Store new content under its id; `last_id` is the highest one of the context so far."""
    context, definition = added.context, added.definition
    if last_id is None:
        _ADD_CONTEXT.run(connection, {"name": context, "last_id": added.id})
    elif added.id > last_id:
        _SET_LAST_ID.run(connection, {"context": context, "schema_id": added.id})
    values = {"context": context, "schema_id": added.id, "at_ms": added.created_ms}
    _ADD_SCHEMA.run(connection, {**values, **_content(added)})
    for position, reference in enumerate(definition.references):
        target = Subject.parse(reference.subject, within=context)
        _ADD_REFERENCE.run(
            connection,
            {
                "context": context,
                "schema_id": added.id,
                "position": position,
                "name": reference.name,
                "written": reference.subject,
                "to_context": target.context,
                "to_subject": target.name,
                "to_version": reference.version,
            },
        )


def _content(added: StoredSchema) -> dict[str, object]:
    definition = added.definition
    return {
        "guid": definition.guid,
        "digest": definition.digest,
        "text": definition.text,
        "metadata": _dump(definition.metadata),
        "rule_set": _dump(definition.rule_set),
    }


def mark_deleted(
    connection: Connection, subject: Subject, numbers: Sequence[int], *, deleted: bool = True
) -> None:
    """Soft-delete versions, or restore them."""
    connection.execute(update(versions).where(_among(subject, numbers)).values(deleted=deleted))


def drop_versions(connection: Connection, subject: Subject, numbers: Sequence[int]) -> None:
    """Delete versions permanently; the ids of their schemas stay assigned."""
    connection.execute(delete(versions).where(_among(subject, numbers)))


def _among(subject: Subject, numbers: Sequence[int]) -> ColumnElement[bool]:
    return and_(
        versions.c.context == subject.context,
        versions.c.subject == subject.name,
        versions.c.version.in_(numbers),
    )


def _dump(content: JsonObject | None) -> str | None:
    return None if content is None else json.dumps(content, ensure_ascii=False)
