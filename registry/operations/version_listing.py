"""Lists of subjects, and pages of the versions of all of them, by subject and number.

Rule: a page starts at a position, so it needs the counts of all versions before it. The listing
remembers the counts of the last lists for as long as the store has their revision. So a client that
reads 40,000 versions page by page has them counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from threading import Lock

from sqlalchemy import Connection

from headworks._registry.store import (
    RegistryStore,
    schemas,
    settings,
    version_lines,
    version_records,
)
from headworks._registry.store.schemas import ListedVersion, VersionPage
from headworks._registry.store.version_records import VersionCounts
from headworks._subject import ANY_CONTEXT, Subject

_SUBJECTS_AT_ONCE = 20
_MAX_COUNTED_PREFIXES = 4


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """Which versions a list includes: live ones by default."""

    deleted: bool = False  # soft-deleted ones too
    deleted_only: bool = False  # soft-deleted ones only
    negative: bool = False  # both, and soft-deleted ones as negative numbers

    @property
    def state(self) -> bool | None:
        """Soft-deleted versions only (True), live ones only (False), or both (None)."""
        if self.deleted_only:
            return True
        return None if self.deleted or self.negative else False

    def lists(self, counts: VersionCounts) -> bool:
        """Whether a list of subjects has this one; it is deleted if no version of it is live."""
        if counts.live:
            return not self.deleted_only
        return self.deleted or self.deleted_only


@dataclass(frozen=True, slots=True)
class VersionQuery:
    """A request for the versions of all subjects, by subject and number."""

    prefix: str = ""  # of the subjects' names
    version_filter: VersionFilter = VersionFilter()
    latest_only: bool = False
    aliases: bool = False  # also the subjects that have an alias under the prefix
    rule_types: tuple[str, ...] = ()  # if any, only versions with a rule of such a type
    first: int = 0  # position of the first version in that order
    last: int = 1000  # position after the last version


class VersionListing:
    """Lists the subjects and versions of a store; safe to share between threads."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store
        # The counts of the last lists, by prefix, with the revision that they belong to.
        self._counted: tuple[int, dict[Subject, Mapping[Subject, VersionCounts]]] = (-1, {})
        # SQLite releases the interpreter's lock for each row. Two threads that pass it on a
        # thousand times take longer than one after the other.
        self._one_page = Lock()
        # The list of which the database could not compose a page: most of its pages are alike.
        self._uncomposed: tuple[int, VersionQuery] | None = None

    def subjects(
        self, connection: Connection, prefix: str, version_filter: VersionFilter
    ) -> list[Subject]:
        """Return the subjects that start with `prefix` (":*:" for every context), sorted."""
        counts = self._counts(connection, prefix)
        return [one.subject for one in counts.values() if version_filter.lists(one)]

    def numbers(
        self, connection: Connection, subjects: Sequence[Subject], version_filter: VersionFilter
    ) -> dict[Subject, Sequence[int]]:
        """Return the version numbers of subjects, ascending; the counts tell nearly all."""
        state, (revision, counted) = version_filter.state, self._counted
        if revision != self._store.revision_in(connection):
            counted = {}
        found: dict[Subject, Sequence[int]] = {}
        for subject in subjects:
            known = next(
                (counts[subject] for counts in counted.values() if subject in counts), None
            )
            if known is not None and (numbers := known.numbers(state)) is not None:
                found[subject] = numbers
        rest = [subject for subject in subjects if subject not in found]
        return found | version_records.numbers_by_subject(connection, rest, deleted=state)

    def page(
        self, connection: Connection, query: VersionQuery, seen: Callable[[str], bool] | None
    ) -> Iterator[tuple[ListedVersion, list[str]]]:
        """Yield versions with the aliases of their subjects, by subject and number.

        Subjects for which `seen` returns false are left out; None: no subject is.
        """
        names = _names_of(connection, query)
        found: Iterable[ListedVersion]
        if query.rule_types:
            every = _every_version(connection, self._page_of(connection, query, seen, names))
            ruled = (one for one in every if _has_rule(one, query.rule_types))
            found = islice(ruled, query.first, query.last)
        else:
            page = self._page_of(connection, query, seen, names)
            with self._one_page:
                found = schemas.page_of(connection, page)
        return ((one, names.get(one.subject, [])) for one in found)

    def lines(
        self, connection: Connection, query: VersionQuery, seen: Callable[[str], bool] | None
    ) -> bytes | None:
        """Return the lines of what `page` yields; None if the database cannot compose them."""
        asked = self._store.revision_in(connection), replace(query, first=0, last=0)
        if query.rule_types or asked == self._uncomposed:
            return None
        names = _names_of(connection, query)
        page = self._page_of(connection, query, seen, names)
        found = None
        if names.keys().isdisjoint(page.subjects):
            found = version_lines.page_of(connection, page)
        if found is None:
            self._uncomposed = asked
        return found

    def _page_of(
        self,
        connection: Connection,
        query: VersionQuery,
        seen: Callable[[str], bool] | None,
        names: Mapping[Subject, list[str]],
    ) -> VersionPage:
        """Return where the versions of a query are; those of all its subjects, if it has rules."""
        counts = self._counts(connection, query.prefix)
        numbers = _numbers(connection, query.version_filter, counts, names)
        if seen is not None:
            numbers = [one for one in numbers if seen(str(one[0]))]
        state = _necessary_state(query.version_filter, counts, names)
        if query.rule_types:
            subjects = [subject for subject, _ in numbers]
            return VersionPage(subjects, state, query.latest_only)
        subjects, skipped = _part_of(numbers, query)
        return VersionPage(subjects, state, query.latest_only, skipped, query.last - query.first)

    def _counts(self, connection: Connection, prefix: str) -> Mapping[Subject, VersionCounts]:
        """Return the counts of the subjects under a prefix, sorted by subject."""
        within, now = Subject.parse(prefix), self._store.revision_in(connection)
        revision, counted = self._counted
        if revision != now or (within not in counted and len(counted) == _MAX_COUNTED_PREFIXES):
            counted = {}
        if within not in counted:
            context = None if within.context == ANY_CONTEXT else within.context
            found = version_records.counts_under(connection, context, within.name)
            counted = counted | {within: {one.subject: one for one in found}}
            self._counted = now, counted
        return counted[within]


def _numbers(
    connection: Connection,
    version_filter: VersionFilter,
    counts: Mapping[Subject, VersionCounts],
    names: Collection[Subject],
) -> list[tuple[Subject, int]]:
    """Return how many versions a list has of each subject; `names`: those with an alias there."""
    state = version_filter.state
    listed = [one for one in counts.values() if version_filter.lists(one)]
    under = [(one.subject, one.number(state)) for one in listed]
    if not names:
        return under
    found = {one.subject: one.number(state) for one in counts.values()}
    elsewhere = [one for one in names if one not in found]  # only an alias has the prefix
    rest = version_records.numbers_by_subject(connection, elsewhere, deleted=state)
    found |= {subject: len(each) for subject, each in rest.items()}
    return [(one, found[one]) for one in sorted({*names, *(subject for subject, _ in under)})]


def _necessary_state(
    version_filter: VersionFilter, counts: Mapping[Subject, VersionCounts], names: Iterable[Subject]
) -> bool | None:
    """Return the state to select; both, if none is soft-deleted and live ones are wanted.

    The query for the latest versions needs an index only, if it does not ask for a state.
    """
    state = version_filter.state
    every_live = not any(one.deleted for one in counts.values())
    counted = all(subject in counts for subject in names)
    return None if state is False and every_live and counted else state


def _part_of(
    numbers: Iterable[tuple[Subject, int]], query: VersionQuery
) -> tuple[list[Subject], int]:
    """Return the subjects of the versions of a page, and how many to skip of the first one."""
    first, last = query.first, query.last
    some: list[Subject] = []
    skipped = at = 0
    for subject, number in numbers:
        count = min(number, 1) if query.latest_only else number
        if count and at < last and at + count > first:
            skipped = skipped if some else max(0, first - at)
            some.append(subject)
        at += count
    return some, skipped


def _names_of(connection: Connection, query: VersionQuery) -> dict[Subject, list[str]]:
    """Return the aliases under the prefix of a query, by the subject that they stand for."""
    if not query.aliases:
        return {}
    within = Subject.parse(query.prefix)
    names: dict[Subject, list[str]] = {}
    for scope, alias in settings.aliases(connection).items():
        name = Subject.parse(scope)
        if within.context in (ANY_CONTEXT, name.context) and name.name.startswith(within.name):
            names.setdefault(Subject.parse(alias, within=name.context), []).append(scope)
    return names


def _every_version(connection: Connection, page: VersionPage) -> Iterator[ListedVersion]:
    """Yield the versions of a page by subject and number; reads some subjects ahead."""
    for start in range(0, len(page.subjects), _SUBJECTS_AT_ONCE):
        some = page.subjects[start : start + _SUBJECTS_AT_ONCE]
        yield from schemas.page_of(connection, replace(page, subjects=some))


def _has_rule(version: ListedVersion, types: Sequence[str]) -> bool:
    rules = version.rule_set or {}
    return any(rule.get("type") in types for part in rules.values() for rule in part)
