"""Queries over schemas, their versions in subjects, and their references.

Rule: every function works inside the caller's transaction. In a filter, `deleted` includes
soft-deleted versions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    and_,
    bindparam,
    collate,
    or_,
    select,
    type_coerce,
)

from headworks._registry.model.definition import Definition, JsonObject, SchemaReference
from headworks._registry.store import version_records
from headworks._registry.store.tables import contexts, references, schemas, versions
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
    type_coerce(versions.c.deleted, Integer),  # a Boolean costs a call for each row
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
# Each context that ever had a schema has a row. The contexts of all versions would be a scan.
_CONTEXTS = PreparedStatement(
    select(contexts.c.name).where(
        select(versions.c.version).where(versions.c.context == contexts.c.name).exists()
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


class ListedVersion(NamedTuple):
    """A version of a subject with its content, in a list of thousands."""

    subject: Subject
    number: int
    schema_id: int
    guid: str
    text: str
    references: tuple[SchemaReference, ...]
    metadata: JsonObject | None
    rule_set: JsonObject | None
    deleted: bool
    created_ms: int


@dataclass(frozen=True, slots=True)
class VersionPage:
    """The versions of `subjects`, by subject and number: a part of them.

    `deleted` is as in `version_records`. With `latest_only`, there is only the last version of each
    subject. The first ones are `skipped`, and at most `most` of the others belong to the page.
    """

    subjects: Sequence[Subject]
    deleted: bool | None = None
    latest_only: bool = False
    skipped: int = 0
    most: int | None = None


def context_names(connection: Connection) -> list[str]:
    """Return the contexts that hold a version, soft-deleted or not, sorted by name."""
    return sorted(name for (name,) in _CONTEXTS.rows(connection, {}))


def versions_of(
    connection: Connection, subject: Subject, *, number: int | None = None
) -> list[StoredVersion]:
    """Return the versions of a subject, soft-deleted ones too, oldest first; or only `number`."""
    if number is None:
        return _read_versions(connection, _VERSIONS.rows(connection, _names(subject)))
    asked = {**_names(subject), "number": number}
    return _read_versions(connection, _VERSION.rows(connection, asked))


def page_of(connection: Connection, page: VersionPage) -> list[ListedVersion]:
    """Return the versions of a page, in few queries."""
    if not page.subjects:
        return []
    wanted = version_records.chosen(
        page.subjects, deleted=page.deleted, latest_only=page.latest_only
    )
    statement = _WITH_SCHEMAS.where(wanted).order_by(*_in_order(connection))
    rows = connection.execute(statement.offset(page.skipped).limit(page.most)).all()
    # To find the latest versions again takes longer than to name their schemas.
    used = (
        _references_of_each(connection, rows)
        if page.latest_only
        else _references_in(connection, wanted)
    )
    names = {(one.context, one.name): one for one in page.subjects}
    return [
        ListedVersion(
            names[context, name],
            number,
            schema_id,
            guid,
            text,
            used.get((context, schema_id), ()) if used else (),
            _load(metadata) if metadata else None,
            _load(rule_set) if rule_set else None,
            bool(gone),
            at_ms,
        )
        for context, name, number, gone, at_ms, schema_id, guid, text, metadata, rule_set, _ in rows
    ]


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
    return _stored(context, schema_id, found[0], used.get(schema_id, ()))


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
            _stored(context, schema_id, content, used.get(schema_id, ())),
            bool(deleted),
            registered_ms,
        )
        for context, name, number, deleted, registered_ms, schema_id, *content in rows
    ]
    return sorted(found, key=lambda one: (one.subject.name, one.number))


def _names(subject: Subject) -> dict[str, object]:
    return {"context": subject.context, "subject": subject.name}


def _in_order(connection: Connection) -> tuple[ColumnElement[Any], ...]:
    """Return the order of a list: by code point, whatever the language of the database is."""
    by_language = connection.dialect.name == "postgresql"
    names = versions.c.context, versions.c.subject
    return (*(collate(one, "C") if by_language else one for one in names), versions.c.version)


def _references_in(
    connection: Connection, wanted: ColumnElement[bool]
) -> dict[tuple[str, int], tuple[SchemaReference, ...]]:
    """Return the references of the schemas of some versions, by context and id."""
    r = references.c
    place = r.context, r.schema_id, r.position
    same = and_(versions.c.context == r.context, versions.c.schema_id == r.schema_id)
    query = select(*place, r.name, r.written, r.to_version).distinct()
    query = query.join_from(versions, references, same).where(wanted).order_by(*place)
    found: dict[tuple[str, int], tuple[SchemaReference, ...]] = {}
    for context, schema_id, _, *content in connection.execute(query):
        at = context, schema_id
        found[at] = (*found.get(at, ()), SchemaReference(*content))
    return found


def _references_of_each(
    connection: Connection, rows: Iterable[Sequence[Any]]
) -> dict[tuple[str, int], tuple[SchemaReference, ...]]:
    """Return the references of the schemas of rows of _WITH_SCHEMAS, by context and id."""
    found: dict[tuple[str, int], tuple[SchemaReference, ...]] = {}
    for context, some in groupby(rows, itemgetter(0)):
        ids = list({row[5] for row in some})
        for start in range(0, len(ids), _MAX_NAMES_PER_QUERY):
            used = _references_of(connection, context, ids[start : start + _MAX_NAMES_PER_QUERY])
            found |= {(context, schema_id): each for schema_id, each in used.items()}
    return found


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
    used: tuple[SchemaReference, ...],
) -> StoredSchema:
    """Return a schema from its row's content, and its references."""
    guid, text, metadata, rule_set, created_ms = content
    definition = Definition(text, used, _load(metadata), _load(rule_set))
    return StoredSchema(context, schema_id, guid, definition, created_ms)


def _load(content: str | None) -> JsonObject | None:
    return None if content is None else cast(JsonObject, json.loads(content))
