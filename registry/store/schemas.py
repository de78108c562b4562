"""Queries over schemas, their versions in subjects, and their references.

Rule: every function works inside the caller's transaction. In a filter, `deleted` includes
soft-deleted versions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    or_,
    select,
)

from headworks._registry.model.definition import Definition, JsonObject, SchemaReference
from headworks._registry.store.tables import contexts, references, schemas, versions
from headworks._registry.store.version_records import VersionRecord
from headworks._server.database import PreparedStatement
from headworks._subject import Subject

# For more ids than this, reading all references of the context is cheaper than naming the ids.
_MAX_NAMES_PER_QUERY = 500

# Prepared: SQLAlchemy takes longer to build a statement than SQLite to run it.
_OF_CONTEXT = versions.c.context == bindparam("context")
_OF_SUBJECT = and_(_OF_CONTEXT, versions.c.subject == bindparam("subject"))
_CONTENT = (
    schemas.c.guid,
    schemas.c.text,
    schemas.c.metadata,
    schemas.c.rule_set,
    schemas.c.created_ms,
)
_WITH_SCHEMAS = select(
    versions.c.context,
    versions.c.subject,
    versions.c.version,
    versions.c.deleted,
    versions.c.created_ms,
    schemas.c.id,
    *_CONTENT,
).join_from(
    versions,
    schemas,
    and_(versions.c.context == schemas.c.context, versions.c.schema_id == schemas.c.id),
)
_OF_SUBJECT_WITH_SCHEMAS = _WITH_SCHEMAS.where(_OF_SUBJECT)
_VERSIONS = PreparedStatement(_OF_SUBJECT_WITH_SCHEMAS)
_VERSION = PreparedStatement(
    _OF_SUBJECT_WITH_SCHEMAS.where(versions.c.version == bindparam("number"))
)
_LATEST = PreparedStatement(
    _OF_SUBJECT_WITH_SCHEMAS.where(versions.c.deleted.is_(False))
    .order_by(versions.c.version.desc())
    .limit(1)
)
_SCHEMA = PreparedStatement(
    select(*_CONTENT).where(
        schemas.c.context == bindparam("context"), schemas.c.id == bindparam("id")
    )
)
_LAST_ID = PreparedStatement(
    select(contexts.c.last_id).where(contexts.c.name == bindparam("context"))
)
_IDS_BY_DIGEST = PreparedStatement(
    select(schemas.c.id).where(
        schemas.c.context == bindparam("context"),
        schemas.c.digest == bindparam("digest"),
        select(versions.c.version)
        .where(versions.c.context == schemas.c.context, versions.c.schema_id == schemas.c.id)
        .exists(),
    )
)
_REFERENCES = (
    select(references.c.schema_id, references.c.name, references.c.written, references.c.to_version)
    .where(references.c.context == bindparam("context"))
    .order_by(references.c.schema_id, references.c.position)
)
_REFERENCES_OF_ONE = PreparedStatement(_REFERENCES.where(references.c.schema_id == bindparam("id")))


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A stored schema: its id in its context, and its content."""

    context: str
    id: int
    guid: str  # the definition's, which the store keeps: computing it costs more than reading it
    definition: Definition
    created_ms: int


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of a subject."""

    subject: Subject
    number: int
    schema: StoredSchema
    deleted: bool
    created_ms: int


def context_names(connection: Connection) -> list[str]:
    """Return the contexts that hold a version, soft-deleted or not, sorted by name."""
    return sorted(connection.scalars(select(versions.c.context).distinct()))


def versions_of(
    connection: Connection, subject: Subject, *, number: int | None = None
) -> list[StoredVersion]:
    """Return the versions of a subject, soft-deleted ones too, oldest first; or only `number`."""
    if number is None:
        return _read_versions(connection, _VERSIONS.rows(connection, _names(subject)))
    asked = {**_names(subject), "number": number}
    return _read_versions(connection, _VERSION.rows(connection, asked))


def with_schemas(
    connection: Connection, wanted: Sequence[VersionRecord]
) -> Iterator[StoredVersion]:
    """Yield the versions with their schemas, in the order given; reads some ahead."""
    for start in range(0, len(wanted), _MAX_NAMES_PER_QUERY):
        some = wanted[start : start + _MAX_NAMES_PER_QUERY]
        content = {
            (context, schema_id): stored
            for context in {one.subject.context for one in some}
            for schema_id, stored in _schemas_by_id(
                connection, context, {o.schema_id for o in some if o.subject.context == context}
            )
        }
        for one in some:
            stored = content[one.subject.context, one.schema_id]
            yield StoredVersion(one.subject, one.number, stored, one.deleted, one.created_ms)


def latest_version(connection: Connection, subject: Subject) -> StoredVersion | None:
    """Return the highest live version of a subject, or None."""
    found = _read_versions(connection, _LATEST.rows(connection, _names(subject)))
    return found[0] if found else None


def last_id(connection: Connection, context: str) -> int | None:
    """Return the highest id given out in a context; None before the first one."""
    return cast(int | None, _LAST_ID.scalar(connection, {"context": context}))


def versions_with_text_or_references(
    connection: Connection, subject: Subject, text: str
) -> list[StoredVersion]:
    """Return the live versions of a subject with this text or with references, oldest first."""
    uses = select(references.c.name).where(
        references.c.context == versions.c.context, references.c.schema_id == versions.c.schema_id
    )
    wanted = or_(schemas.c.text == text, uses.exists())
    return _select_versions(connection, and_(_of(subject), versions.c.deleted.is_(False), wanted))


def versions_of_schema(connection: Connection, context: str, schema_id: int) -> list[StoredVersion]:
    """Return the versions of a context that have a schema, by subject and number."""
    return _select_versions(
        connection, and_(versions.c.context == context, versions.c.schema_id == schema_id)
    )


def schema_by_id(connection: Connection, context: str, schema_id: int) -> StoredSchema | None:
    """Return the schema with this id, whether a version has it or not."""
    found = _SCHEMA.rows(connection, {"context": context, "id": schema_id})
    if not found:
        return None
    used = _references_of(connection, context, [schema_id])
    return _stored(context, schema_id, found[0], used)


def is_registered(connection: Connection, context: str, schema_id: int) -> bool:
    """Return whether some version, soft-deleted or not, has this schema."""
    statement = select(versions.c.version).where(
        versions.c.context == context, versions.c.schema_id == schema_id
    )
    return connection.execute(statement.limit(1)).first() is not None


def find_ids(connection: Connection, context: str, definition: Definition) -> list[int]:
    """Return the ids under which the content is registered in a context, ascending."""
    asked = {"context": context, "digest": definition.digest}
    # With ORDER BY id, SQLite would scan all schemas of the context instead of using the digest.
    return sorted(schema_id for (schema_id,) in _IDS_BY_DIGEST.rows(connection, asked))


def ids_of_guid(connection: Connection, guid: str) -> list[tuple[str, int]]:
    """Return (context, id) of every registered schema with this guid."""
    statement = select(schemas.c.context, schemas.c.id).where(schemas.c.guid == guid)
    return sorted(
        (context, schema_id)
        for context, schema_id in connection.execute(statement)
        if is_registered(connection, context, schema_id)
    )


def referrers(
    connection: Connection, subject: Subject, number: int, *, deleted: bool
) -> list[tuple[str, int]]:
    """Return (context, schema id) of the registered schemas that refer to a version."""
    conditions: list[ColumnElement[bool]] = [
        references.c.to_context == subject.context,
        references.c.to_subject == subject.name,
        references.c.to_version == number,
        versions.c.context == references.c.context,
        versions.c.schema_id == references.c.schema_id,
    ]
    if not deleted:
        conditions.append(versions.c.deleted.is_(False))
    statement = select(references.c.context, references.c.schema_id).where(*conditions).distinct()
    return sorted((context, schema_id) for context, schema_id in connection.execute(statement))


def _of(subject: Subject) -> ColumnElement[bool]:
    return and_(versions.c.context == subject.context, versions.c.subject == subject.name)


def _select_versions(connection: Connection, condition: ColumnElement[bool]) -> list[StoredVersion]:
    found = connection.execute(_WITH_SCHEMAS.where(condition))
    return _read_versions(connection, [tuple(row) for row in found])


def _read_versions(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> list[StoredVersion]:
    """Return the versions of rows of _WITH_SCHEMAS, by subject and number; all of one context."""
    if not rows:
        return []
    used = _references_of(connection, rows[0][0], {row[5] for row in rows})
    found = [
        StoredVersion(
            Subject(context, name),
            number,
            _stored(context, schema_id, content, used),
            bool(deleted),
            registered_ms,
        )
        for context, name, number, deleted, registered_ms, schema_id, *content in rows
    ]
    return sorted(found, key=lambda one: (one.subject.name, one.number))


def _names(subject: Subject) -> dict[str, object]:
    return {"context": subject.context, "subject": subject.name}


def _schemas_by_id(
    connection: Connection, context: str, ids: Collection[int]
) -> Iterator[tuple[int, StoredSchema]]:
    c = schemas.c
    rows = connection.execute(
        select(c.id, *_CONTENT).where(c.context == context, c.id.in_(ids))
    ).all()
    used = _references_of(connection, context, ids) if rows else {}
    for schema_id, *row in rows:
        yield schema_id, _stored(context, schema_id, row, used)


def _references_of(
    connection: Connection, context: str, ids: Collection[int]
) -> dict[int, tuple[SchemaReference, ...]]:
    if len(ids) == 1:
        asked = {"context": context, "id": next(iter(ids))}
        rows: Iterable[Sequence[Any]] = _REFERENCES_OF_ONE.rows(connection, asked)
    else:
        few = len(ids) <= _MAX_NAMES_PER_QUERY
        rows = connection.execute(
            _REFERENCES.where(references.c.schema_id.in_(ids)) if few else _REFERENCES,
            {"context": context},
        )
    found: dict[int, tuple[SchemaReference, ...]] = {}
    for schema_id, name, written, version in rows:
        reference = SchemaReference(name, written, version)
        found[schema_id] = (*found.get(schema_id, ()), reference)
    return found


def _stored(
    context: str,
    schema_id: int,
    content: Sequence[Any],
    used: Mapping[int, tuple[SchemaReference, ...]],
) -> StoredSchema:
    """Return a schema from its row's content, and the references of many."""
    guid, text, metadata, rule_set, created_ms = content
    references_of_one = used.get(schema_id, ())
    definition = Definition(text, references_of_one, _load(metadata), _load(rule_set))
    return StoredSchema(context, schema_id, guid, definition, created_ms)


def _load(content: str | None) -> JsonObject | None:
    return None if content is None else cast(JsonObject, json.loads(content))
