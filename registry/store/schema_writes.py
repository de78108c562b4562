"""Changes of schemas and of their versions in subjects.

Rule: every function works inside the caller's transaction. An id, once assigned, is never assigned
again, whatever is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, insert, update

from headworks._registry.model.definition import JsonObject
from headworks._registry.store.schemas import StoredSchema
from headworks._registry.store.tables import contexts, references, schemas, versions
from headworks._server.database import PreparedStatement
from headworks._subject import Subject

_ADD_SCHEMA = PreparedStatement(insert(schemas))
_ADD_REFERENCE = PreparedStatement(insert(references))
_ADD_VERSION = PreparedStatement(insert(versions))
_ADD_CONTEXT = PreparedStatement(insert(contexts))
_SET_LAST_ID = PreparedStatement(
    update(contexts).where(contexts.c.name == bindparam("context")).values(last_id=bindparam("id"))
)


def add_schema(connection: Connection, added: StoredSchema, last_id: int | None) -> None:
    """Store new content under its id; `last_id` is the highest one of the context so far."""
    context, definition = added.context, added.definition
    if last_id is None:
        _ADD_CONTEXT.run(connection, {"name": context, "last_id": added.id})
    elif added.id > last_id:
        _SET_LAST_ID.run(connection, {"context": context, "id": added.id})
    _ADD_SCHEMA.run(
        connection,
        {
            "context": context,
            "id": added.id,
            "guid": definition.guid,
            "digest": definition.digest,
            "text": definition.text,
            "metadata": _dump(definition.metadata),
            "rule_set": _dump(definition.rule_set),
            "created_ms": added.created_ms,
        },
    )
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


def add_version(
    connection: Connection, subject: Subject, number: int, schema_id: int, now_ms: int
) -> None:
    """Make a stored schema a version of a subject."""
    _ADD_VERSION.run(
        connection,
        {
            "context": subject.context,
            "subject": subject.name,
            "version": number,
            "schema_id": schema_id,
            "deleted": False,
            "created_ms": now_ms,
        },
    )


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
