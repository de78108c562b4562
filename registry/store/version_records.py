"""Queries over the versions of subjects, without the content of their schemas.

Rule: every function works inside the caller's transaction. `deleted` selects soft-deleted versions
only (True), live ones only (False), or both (None).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    func,
    or_,
    select,
    tuple_,
)

from headworks._registry.store.tables import versions
from headworks._server.database import PreparedStatement
from headworks._subject import Subject

_MAX_NAMES_PER_QUERY = 500
_LAST_BEFORE_SURROGATES = 0xD7FF  # the next code point is no character
_NUMBERS = PreparedStatement(
    select(versions.c.version, versions.c.deleted)
    .where(versions.c.context == bindparam("context"), versions.c.subject == bindparam("subject"))
    .order_by(versions.c.version)
)


@dataclass(frozen=True, slots=True)
class VersionCounts:
    """How many versions a subject has; it has at least one."""

    subject: Subject
    live: int
    deleted: int  # soft-deleted ones
    first: int  # the least number of either
    last: int

    def number(self, deleted: bool | None) -> int:
        """How many are soft-deleted (True), live (False), or either (None)."""
        if deleted is None:
            return self.live + self.deleted
        return self.deleted if deleted else self.live

    def numbers(self, deleted: bool | None) -> range | None:
        """Return the numbers of those versions; None if the counts do not tell them."""
        every = self.live + self.deleted
        if self.number(deleted) == every == self.last - self.first + 1:
            return range(self.first, self.last + 1)
        return None


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
    number = versions.c.version
    place = versions.c.context, versions.c.subject
    ends = select(*place, func.count(), func.min(number), func.max(number)).group_by(*place)
    gaps = []
    for named in _naming(subjects):
        for context, name, count, first, last in connection.execute(
            ends.where(named, *_in_state(deleted))
        ):
            if last - first + 1 == count:  # as of nearly every subject, without reading its rows
                found[Subject(context, name)] = [*range(first, last + 1)]
            else:
                gaps.append(Subject(context, name))
    for named in _naming(gaps):
        rows = select(*place, number).where(named, *_in_state(deleted)).order_by(*place, number)
        for (context, name), each in groupby(connection.execute(rows), itemgetter(0, 1)):
            found[Subject(context, name)] = [row[2] for row in each]
    return found


def counts_under(connection: Connection, context: str | None, prefix: str) -> list[VersionCounts]:
    """Return how many versions the subjects of a context (None: of all) have, by subject.

    Only subjects whose names start with `prefix` are counted.
    """
    place = versions.c.context, versions.c.subject
    ends = func.min(versions.c.version), func.max(versions.c.version)
    within = [] if context is None else [versions.c.context == context]
    if prefix:
        within += _starts_with(connection, versions.c.subject, prefix)
    # An index tells the numbers, and a look at each row whether it is deleted. SQLite reads all
    # rows in a seventh of the time that it takes to find each one by the index of a context.
    every = connection.execute(select(*place, func.count(), *ends).where(*within).group_by(*place))
    rows = select(*place).where(versions.c.deleted, *(within if prefix else ()))
    gone = Counter(map(tuple, connection.execute(rows)))
    # Sorted here, because a database may order text by the rules of a language.
    return [
        VersionCounts(
            Subject(space, name), number - gone[space, name], gone[space, name], first, last
        )
        for space, name, number, first, last in sorted(map(tuple, every))
    ]


def chosen(
    subjects: Collection[Subject], *, deleted: bool | None = None, latest_only: bool = False
) -> ColumnElement[bool]:
    """Return the condition for the versions of some subjects; with `latest_only`, for their last.

    There are at least one and at most a few thousand subjects.
    """
    named = or_(*_naming(subjects))
    states = _in_state(deleted)
    if not latest_only:
        return and_(named, *states)
    place = versions.c.context, versions.c.subject
    last = select(*place, func.max(versions.c.version)).where(named, *states).group_by(*place)
    return tuple_(*place, versions.c.version).in_(last)


def _starts_with(
    connection: Connection, column: ColumnElement[str], prefix: str
) -> list[ColumnElement[bool]]:
    """Return conditions for names with a prefix; SQLite, which orders by bytes, uses an index."""
    found = [func.substr(column, 1, len(prefix)) == prefix]
    if connection.dialect.name == "sqlite":
        found.append(column >= prefix)
        if ord(prefix[-1]) < _LAST_BEFORE_SURROGATES:
            found.append(column < prefix[:-1] + chr(ord(prefix[-1]) + 1))
    return found


def _naming(subjects: Collection[Subject]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that together name the versions of these subjects."""
    for context, within in groupby(sorted(subjects), attrgetter("context")):
        names = [one.name for one in within]
        for start in range(0, len(names), _MAX_NAMES_PER_QUERY):
            some = names[start : start + _MAX_NAMES_PER_QUERY]
            yield and_(versions.c.context == context, versions.c.subject.in_(some))


def _in_state(deleted: bool | None) -> tuple[ColumnElement[bool], ...]:
    return () if deleted is None else (versions.c.deleted.is_(deleted),)
