"""The lineage of topics: who writes each, who reads it, and the table that it is loaded into.

Rules: pure. Producers of one topic are those that counted into its newest windows. The overview has
those that reported in the last week. A client without the SDK is not known. Readers are groups with
committed offsets, and consumers that are declared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headworks._audit.results import Contribution
from headworks._audit.usage import CountedUse
from headworks._console.sources.loads import LoadedTable
from headworks._console.sources.subjects import SubjectRow
from headworks._console.sources.topics import TopicRow, TopicsSnapshot
from headworks._console.views.groups import TopicConsumer
from headworks._console.views.paging import ListPage, ListQuery, list_page
from headworks._console.views.visibility import CanSee

PRODUCER_TIER = "producer"
_MIRROR_PREFIX = "mirror:"


@dataclass(frozen=True, slots=True)
class LineageProducer:
    """An application that writes the topic, its hosts, and its messages in the newest windows."""

    application: str
    hosts: tuple[str, ...]
    messages: int
    last_sent: int


@dataclass(frozen=True, slots=True)
class LineagePage:
    """A topic between its producers and its readers; `mirrors` copy it from other clusters."""

    topic: str
    subject: str | None
    version: int | None
    owner: str | None
    producers: tuple[LineageProducer, ...]
    mirrors: tuple[str, ...]
    readers: tuple[TopicConsumer, ...]
    hidden_readers: bool
    table: LoadedTable | None


def lineage_page(
    topic: str,
    subject: SubjectRow | None,
    contributions: Sequence[Contribution],
    readers: tuple[TopicConsumer, ...],
    *,
    hidden_readers: bool,
    table: LoadedTable | None,
) -> LineagePage:
    """Return the lineage of a topic."""
    hosts: defaultdict[str, list[Contribution]] = defaultdict(list)
    for one in contributions:
        if one.tier == PRODUCER_TIER:
            hosts[one.application].append(one)
    producers = tuple(
        LineageProducer(
            application,
            tuple(sorted({one.host for one in some})),
            sum(one.counts.get("attempted", 0) for one in some),
            max(one.last_sent for one in some),
        )
        for application, some in sorted(hosts.items())
    )
    tiers = {one.tier for one in contributions if one.tier.startswith(_MIRROR_PREFIX)}
    mirrors = sorted(tier.removeprefix(_MIRROR_PREFIX) for tier in tiers)
    return LineagePage(
        topic,
        subject.subject if subject else None,
        subject.version if subject else None,
        subject.owner if subject else None,
        producers,
        tuple(mirrors),
        readers,
        hidden_readers,
        table,
    )


@dataclass(frozen=True, slots=True)
class LineageLine:
    """A topic in the overview, with the names of its producers, its readers, and its table."""

    topic: str
    internal: bool
    producers: tuple[str, ...]  # applications, and `mirror NAME`
    readers: tuple[TopicConsumer, ...]
    hidden_readers: bool
    table: LoadedTable | None


@dataclass(frozen=True, slots=True)
class LineageOverview:
    """The visible topics; `known` is False before the broker has answered once."""

    known: bool
    part: ListPage[LineageLine]


def lineage_overview(
    topics: TopicsSnapshot | None,
    query: ListQuery,
    can_see: CanSee,
    lines: Callable[[Sequence[TopicRow]], Sequence[LineageLine]],
) -> LineageOverview:
    """Return the requested page of the overview; `lines` returns those of its topics."""
    rows = topics.rows.values() if topics else ()
    seen = [row for row in rows if can_see.topic(row.topic)]
    part = list_page(seen, query, lambda row: row.topic, lambda row: (row.internal, row.topic))
    shown = ListPage(tuple(lines(part.rows)), part.total, part.page, part.pages, part.q, part.sort)
    return LineageOverview(topics is not None, shown)


def producer_names(uses: Iterable[CountedUse]) -> tuple[str, ...]:
    """Return the names of the programs that wrote with these uses of one topic."""
    names = set()
    for use in uses:
        if use.tier == PRODUCER_TIER:
            names.add(use.application)
        elif use.tier.startswith(_MIRROR_PREFIX):
            names.add(f"mirror {use.tier.removeprefix(_MIRROR_PREFIX)}")
    return tuple(sorted(names - {""}))
