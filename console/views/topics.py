"""The list of topics: size, rate, schema and table of each."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._console.sources.loads import Loads, Table
from headworks._console.sources.subjects import SubjectRow, Subjects
from headworks._console.sources.topics import TopicRow, Topics
from headworks._console.views.paging import Part, Wanted, part_of
from headworks._console.views.visibility import Seeing

__all__ = ["TopicLine", "TopicList", "topic_list"]


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic, and where its schema and its table are, if it has them."""

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


@dataclass(frozen=True, slots=True)
class TopicList:
    """The topics that may be seen; `known` is False before the broker has answered once."""

    known: bool
    part: Part[TopicLine]
    total_rate: float


_ORDERS = {
    "": lambda row: (row.internal, row.topic),
    "rate": lambda row: (-(row.rate or 0.0), row.topic),
    "messages": lambda row: (-row.messages, row.topic),
}


def topic_list(
    topics: Topics | None,
    subjects: Subjects | None,
    loads: Loads | None,
    seeing: Seeing,
    wanted: Wanted,
) -> TopicList:
    """The page that is wanted of the list of topics."""
    seen = [row for row in (topics.rows.values() if topics else ()) if seeing.topic(row.topic)]
    order = _ORDERS.get(wanted.sort, _ORDERS[""])
    part = part_of(seen, wanted, lambda row: row.topic, order)
    by_topic = loads.by_topic if loads else {}
    lines = tuple(
        _line(
            row, subjects.of_topic(row.topic) if subjects else None, by_topic.get(row.topic), seeing
        )
        for row in part.rows
    )
    shown = Part(lines, part.total, part.page, part.pages, part.q, part.sort)
    return TopicList(topics is not None, shown, sum(row.rate or 0.0 for row in seen))


def _line(
    row: TopicRow, subject: SubjectRow | None, table: Table | None, seeing: Seeing
) -> TopicLine:
    if subject is not None and not seeing.subject(subject.subject):
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
    )
