"""The list of topics: the size, rate, schema, and table of each."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._console.sources.loads import LoadedTable, LoadsSnapshot
from headworks._console.sources.subjects import SubjectRow, SubjectsSnapshot
from headworks._console.sources.topics import TopicRow, TopicsSnapshot
from headworks._console.views.paging import ListPage, ListQuery, list_page
from headworks._console.views.visibility import CanSee


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic, with its schema and table if it has them.

    `last_message_ms` is when its log was last seen to grow, or None if that is not known.
    """

    topic: str
    partitions: int
    messages: int
    rate: float | None
    rates: tuple[float, ...]
    internal: bool
    subject: str | None
    version: int | None
    owner: str | None
    table: str | None
    loaded_rows: int | None
    last_loaded_ms: int | None
    last_message_ms: int | None


@dataclass(frozen=True, slots=True)
class TopicList:
    """The visible topics; `known` is False before the broker has answered once.

    Messages before `watched_since_ms` have no known time.
    """

    known: bool
    part: ListPage[TopicLine]
    total_rate: float
    watched_since_ms: int


_ORDERS = {
    "": lambda row: (row.internal, row.topic),
    "rate": lambda row: (-(row.rate or 0.0), row.topic),
    "messages": lambda row: (-row.messages, row.topic),
}


def topic_list(
    topics: TopicsSnapshot | None,
    subjects: SubjectsSnapshot | None,
    loads: LoadsSnapshot | None,
    can_see: CanSee,
    query: ListQuery,
) -> TopicList:
    """Return the requested page of the list of topics."""
    seen = [row for row in (topics.rows.values() if topics else ()) if can_see.topic(row.topic)]
    order = _ORDERS.get(query.sort, _ORDERS[""])
    by_topic = loads.by_topic if loads else {}

    def text(row: TopicRow) -> str:
        subject = subjects.of_topic(row.topic) if subjects else None
        owner = subject.owner if subject and can_see.subject(subject.subject) else None
        return f"{row.topic} {owner or ''}"

    part = list_page(seen, query, text, order)
    lines = tuple(
        _line(
            row,
            subjects.of_topic(row.topic) if subjects else None,
            by_topic.get(row.topic),
            can_see,
        )
        for row in part.rows
    )
    shown = ListPage(lines, part.total, part.page, part.pages, part.q, part.sort)
    since = topics.watched_since_ms if topics else 0
    return TopicList(topics is not None, shown, sum(row.rate or 0.0 for row in seen), since)


def _line(
    row: TopicRow, subject: SubjectRow | None, table: LoadedTable | None, can_see: CanSee
) -> TopicLine:
    if subject is not None and not can_see.subject(subject.subject):
        subject = None
    return TopicLine(
        row.topic,
        row.partitions,
        row.messages,
        row.rate,
        row.rates,
        row.internal,
        subject.subject if subject else None,
        subject.version if subject else None,
        subject.owner if subject else None,
        table.table if table else None,
        table.rows if table else None,
        table.last_loaded_ms if table else None,
        row.grown_ms,
    )
