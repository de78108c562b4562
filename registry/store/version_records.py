"""Queries over the versions of subjects, without the content of their schemas.

Rule: every function works inside the caller's transaction. `deleted` selects soft-deleted versions
only (True), live ones only (False), or both (None).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, select

from headworks._registry.store.tables import versions
from headworks._server.database import PreparedStatement
from headworks._subject import Subject

_MAX_NAMES_PER_QUERY = 500
_NUMBERS = PreparedStatement(
    select(versions.c.version, versions.c.deleted)
    .where(versions.c.context == bindparam("context"), versions.c.subject == bindparam("subject"))
    .order_by(versions.c.version)
)


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version of a subject, without the content of its schema."""

    subject: Subject
    number: int
    schema_id: int
    deleted: bool
    created_ms: int


def numbers_of(
    connection: Connection, subject: Subject, *, deleted: bool | None = None
) -> list[tuple[int, bool]]:
    """Return the numbers of a subject's versions, ascending, and whether each is soft-deleted."""
    found = _NUMBERS.rows(connection, {"context": subject.context, "subject": subject.name})
    return [(number, bool(is_)) for number, is_ in found if deleted in (None, bool(is_))]


def numbers_by_subject(
    connection: Connection, subjects: Collection[Subject], *, deleted: bool | None = None
) -> dict[Subject, list[int]]:
    """Return the numbers of the versions of many subjects, ascending, in few queries."""
    found: dict[Subject, list[int]] = {one: [] for one in subjects}
    place = versions.c.context, versions.c.subject, versions.c.version
    for named in _naming(subjects):
        statement = select(*place).where(named, *_in_state(deleted)).order_by(*place)
        for (context, name), rows in groupby(connection.execute(statement), itemgetter(0, 1)):
            found[Subject(context, name)] = [row[2] for row in rows]
    return found


def version_counts(
    connection: Connection, subjects: Collection[Subject], *, deleted: bool | None = None
) -> list[tuple[Subject, int]]:
    """Return how many versions each subject has, by subject; those without one are left out."""
    found: list[tuple[Subject, int]] = []
    for named in _naming(subjects):
        rows = connection.execute(_grouped(named, *_in_state(deleted)))
        found += [(Subject(row.context, row.subject), row.number) for row in rows]
    return sorted(found)


def records_of(
    connection: Connection,
    subjects: Collection[Subject],
    *,
    deleted: bool | None = None,
    latest_only: bool = False,
) -> list[VersionRecord]:
    """Return the versions of subjects by subject and number, in few queries.

    With `latest_only`, only the last of them of each subject.
    """
    found: list[VersionRecord] = []
    for named in _naming(subjects):
        statement = select(versions).where(named, *_in_state(deleted))
        if latest_only:
            last = _grouped(named, *_in_state(deleted)).subquery()
            place = (versions.c.context, versions.c.subject, versions.c.version)
            same = (
                ours == its for ours, its in zip(place, (*last.c[:2], last.c.last), strict=True)
            )
            statement = select(versions).join(last, and_(*same))
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


def _naming(subjects: Collection[Subject]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that together name the versions of these subjects."""
    for context, within in groupby(sorted(subjects), attrgetter("context")):
        names = [one.name for one in within]
        for start in range(0, len(names), _MAX_NAMES_PER_QUERY):
            some = names[start : start + _MAX_NAMES_PER_QUERY]
            yield and_(versions.c.context == context, versions.c.subject.in_(some))


def _grouped(*conditions: ColumnElement[bool]) -> Select[tuple[str, str, int, int]]:
    number = versions.c.version
    names = versions.c.context, versions.c.subject
    grouped = select(*names, func.count().label("number"), func.max(number).label("last"))
    return grouped.where(*conditions).group_by(*names)


def _in_state(deleted: bool | None) -> tuple[ColumnElement[bool], ...]:
    return () if deleted is None else (versions.c.deleted.is_(deleted),)
