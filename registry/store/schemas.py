"""Queries over schemas, their versions in subjects, and their references.

Rule: every function works inside the caller's transaction. In a filter, `deleted` includes
soft-deleted versions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
)

from headworks._registry.model.definition import Definition, JsonObject, SchemaReference
from headworks._registry.store.tables import contexts, references, schemas, versions
from headworks._subject import Subject

# For more ids than this, reading all references of the context is cheaper than naming the ids.
_MAX_NAMES_PER_QUERY = 500

# Built once: SQLAlchemy takes longer to build a statement than SQLite to run it.
_OF_CONTEXT = versions.c.context == bindparam("context")
_OF_SUBJECT = and_(_OF_CONTEXT, versions.c.subject == bindparam("subject"))
_WITH_SCHEMAS = select(
    versions.c.subject,
    versions.c.version,
    versions.c.deleted,
    versions.c.created_ms.label("registered_ms"),
    schemas,
).join_from(
    versions,
    schemas,
    and_(versions.c.context == schemas.c.context, versions.c.schema_id == schemas.c.id),
)
_VERSIONS = _WITH_SCHEMAS.where(_OF_SUBJECT)
_VERSION = _VERSIONS.where(versions.c.version == bindparam("number"))
_LATEST = (
    _VERSIONS.where(versions.c.deleted.is_(False)).order_by(versions.c.version.desc()).limit(1)
)
_HIGHEST = select(func.max(versions.c.version)).where(_OF_SUBJECT)
_LAST_ID = select(contexts.c.last_id).where(contexts.c.name == bindparam("context"))
_IDS_BY_DIGEST = select(schemas.c.id).where(
    schemas.c.context == bindparam("context"),
    schemas.c.digest == bindparam("digest"),
    select(versions.c.version)
    .where(versions.c.context == schemas.c.context, versions.c.schema_id == schemas.c.id)
    .exists(),
)
_REFERENCES = (
    select(references)
    .where(references.c.context == bindparam("context"))
    .order_by(references.c.schema_id, references.c.position)
)
_REFERENCES_OF_ONE = _REFERENCES.where(references.c.schema_id == bindparam("id"))


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version of a subject, without the content of its schema."""

    subject: Subject
    number: int
    schema_id: int
    deleted: bool
    created_ms: int


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A stored schema: its id in its context, and its content."""

    context: str
    id: int
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


def last_id(connection: Connection, context: str) -> int | None:
    """Return the highest id that the context has assigned, or None if it has none yet."""
    return cast(int | None, connection.scalar(_LAST_ID, {"context": context}))


def subjects_in(
    connection: Connection, context: str | None, prefix: str, *, live: bool, deleted: bool
) -> list[Subject]:
    """Return the subjects of a context (None: of all) whose names start with `prefix`, sorted.

    `live` selects those with a live version, `deleted` those with soft-deleted versions only.
    """
    alive = func.sum(case((versions.c.deleted, 0), else_=1))
    statement = select(versions.c.context, versions.c.subject, alive).group_by(
        versions.c.context, versions.c.subject
    )
    if context is not None:
        statement = statement.where(versions.c.context == context)
    # Sorted here, because a database may order text by the rules of a language.
    return sorted(
        Subject(space, name)
        for space, name, count in connection.execute(statement)
        if name.startswith(prefix) and (live if count else deleted)
    )


def versions_of(
    connection: Connection, subject: Subject, *, number: int | None = None
) -> list[StoredVersion]:
    """Return the versions of a subject, soft-deleted ones too, oldest first; or only `number`."""
    if number is None:
        return _read_versions(connection, _VERSIONS, _names(subject))
    return _read_versions(connection, _VERSION, {**_names(subject), "number": number})


def numbers_of(connection: Connection, subjects: Collection[Subject]) -> list[VersionRecord]:
    """Return the versions of subjects by subject and number, soft-deleted ones too; few queries."""
    found: list[VersionRecord] = []
    for context, within in groupby(sorted(subjects), attrgetter("context")):
        names = [one.name for one in within]
        for start in range(0, len(names), _MAX_NAMES_PER_QUERY):
            statement = select(versions).where(
                versions.c.context == context,
                versions.c.subject.in_(names[start : start + _MAX_NAMES_PER_QUERY]),
            )
            found += [
                VersionRecord(
                    Subject(row.context, row.subject),
                    row.version,
                    row.schema_id,
                    row.deleted,
                    row.created_ms,
                )
                for row in connection.execute(statement)
            ]
    return sorted(found, key=lambda one: (one.subject.context, one.subject.name, one.number))


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
    found = _read_versions(connection, _LATEST, _names(subject))
    return found[0] if found else None


def highest_number(connection: Connection, subject: Subject) -> int:
    """Return the highest version number of a subject, soft-deleted versions included; 0: none."""
    return connection.scalar(_HIGHEST, _names(subject)) or 0


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
    return dict(_schemas_by_id(connection, context, [schema_id])).get(schema_id)


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
    return sorted(connection.scalars(_IDS_BY_DIGEST, asked))


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
    return _read_versions(connection, _WITH_SCHEMAS.where(condition), {})


def _read_versions(
    connection: Connection, statement: Select[Any], asked: Mapping[str, object]
) -> list[StoredVersion]:
    rows = sorted(
        connection.execute(statement, asked),
        key=lambda row: (row.context, row.subject, row.version),
    )
    if not rows:
        return []
    used = _references_of(connection, rows[0].context, {row.id for row in rows})
    return [
        StoredVersion(
            Subject(row.context, row.subject),
            row.version,
            _stored(row, used.get(row.id, ())),
            row.deleted,
            row.registered_ms,
        )
        for row in rows
    ]


def _names(subject: Subject) -> dict[str, object]:
    return {"context": subject.context, "subject": subject.name}


def _schemas_by_id(
    connection: Connection, context: str, ids: Collection[int]
) -> Iterator[tuple[int, StoredSchema]]:
    rows = connection.execute(
        select(schemas).where(schemas.c.context == context, schemas.c.id.in_(ids))
    ).all()
    used = _references_of(connection, context, ids) if rows else {}
    for row in rows:
        yield row.id, _stored(row, used.get(row.id, ()))


def _references_of(
    connection: Connection, context: str, ids: Collection[int]
) -> dict[int, tuple[SchemaReference, ...]]:
    if len(ids) == 1:
        rows = connection.execute(_REFERENCES_OF_ONE, {"context": context, "id": next(iter(ids))})
    else:
        few = len(ids) <= _MAX_NAMES_PER_QUERY
        rows = connection.execute(
            _REFERENCES.where(references.c.schema_id.in_(ids)) if few else _REFERENCES,
            {"context": context},
        )
    found: dict[int, tuple[SchemaReference, ...]] = {}
    for row in rows:
        reference = SchemaReference(row.name, row.written, row.to_version)
        found[row.schema_id] = (*found.get(row.schema_id, ()), reference)
    return found


def _stored(row: Row[Any], used: tuple[SchemaReference, ...]) -> StoredSchema:
    definition = Definition(row.text, used, _load(row.metadata), _load(row.rule_set))
    return StoredSchema(row.context, row.id, definition, row.created_ms)


def _load(content: str | None) -> JsonObject | None:
    return None if content is None else cast(JsonObject, json.loads(content))
