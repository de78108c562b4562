"""One search over topics, schemas, fields, owners, groups, and tables.

Rules: pure, over the last snapshots. A name that the principal may not see is not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headworks._console.sources.groups import GroupsSnapshot
from headworks._console.sources.loads import LoadsSnapshot
from headworks._console.sources.subjects import SubjectRow, SubjectsSnapshot
from headworks._console.sources.topics import TopicsSnapshot
from headworks._console.views.visibility import CanSee

MAX_HITS = 25


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Something found: `name` is that of the page to open, and `says` why it was found."""

    name: str
    says: str


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """The hits of one kind (topic, schema, field, owner, group, table); `total` counts all."""

    kind: str
    hits: tuple[SearchHit, ...]
    total: int


@dataclass(frozen=True, slots=True)
class SearchPage:
    """The result of a search; `read` is False while a source has not been read yet."""

    q: str
    found: tuple[SearchGroup, ...]
    read: bool


@dataclass(frozen=True, slots=True)
class Searched:
    """The snapshots that are searched."""

    topics: TopicsSnapshot | None
    subjects: SubjectsSnapshot | None
    groups: GroupsSnapshot | None
    loads: LoadsSnapshot | None


def search(every: Searched, can_see: CanSee, q: str) -> SearchPage:
    """Return what contains every word of `q`; nothing for an empty one."""
    words = q.lower().split()
    found = []
    if words:
        for kind, hits in (
            ("topic", _topics(every, can_see, words)),
            ("schema", _schemas(every, can_see, words)),
            ("field", _fields(every, can_see, words)),
            ("owner", _owners(every, can_see, words)),
            ("group", _groups(every, can_see, words)),
            ("table", _tables(every, can_see, words)),
        ):
            some = list(hits)
            if some:
                found.append(SearchGroup(kind, tuple(some[:MAX_HITS]), len(some)))
    sources = (every.topics, every.subjects, every.groups, every.loads)
    return SearchPage(q, tuple(found), all(one is not None for one in sources))


def _holds(words: list[str], *texts: str | None) -> bool:
    text = " ".join(one for one in texts if one).lower()
    return all(word in text for word in words)


def _subjects(every: Searched, can_see: CanSee) -> Iterator[SubjectRow]:
    for row in every.subjects.rows.values() if every.subjects else ():
        if can_see.subject(row.subject):
            yield row


def _topics(every: Searched, can_see: CanSee, words: list[str]) -> Iterator[SearchHit]:
    for row in every.topics.rows.values() if every.topics else ():
        if can_see.topic(row.topic) and _holds(words, row.topic):
            yield SearchHit(row.topic, f"{row.messages:,} messages")


def _schemas(every: Searched, can_see: CanSee, words: list[str]) -> Iterator[SearchHit]:
    for row in _subjects(every, can_see):
        if _holds(words, row.subject, row.type_name, row.doc):
            yield SearchHit(row.subject, row.doc or row.type_name or "")


def _fields(every: Searched, can_see: CanSee, words: list[str]) -> Iterator[SearchHit]:
    for row in _subjects(every, can_see):
        paths = [path for path in row.paths if _holds(words, path)]
        if paths:
            more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
            yield SearchHit(row.subject, ", ".join(paths[:5]) + more)


def _owners(every: Searched, can_see: CanSee, words: list[str]) -> Iterator[SearchHit]:
    for row in _subjects(every, can_see):
        if row.owner and _holds(words, row.owner):
            yield SearchHit(row.subject, f"owner {row.owner}")


def _groups(every: Searched, can_see: CanSee, words: list[str]) -> Iterator[SearchHit]:
    for name, row in every.groups.rows.items() if every.groups else ():
        topics = [topic for topic in row.topics if can_see.topic(topic)]
        if can_see.group(name) and _holds(words, name, *topics):
            yield SearchHit(name, f"reads {', '.join(topics[:5])}" if topics else "reads nothing")


def _tables(every: Searched, can_see: CanSee, words: list[str]) -> Iterator[SearchHit]:
    for row in every.loads.by_topic.values() if every.loads else ():
        if can_see.topic(row.topic) and _holds(words, row.table, row.topic):
            yield SearchHit(row.topic, f"{row.table}, {row.rows:,} rows")
