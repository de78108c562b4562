"""The lineage of a topic: who writes it, who reads it, and the table that it is loaded into.

Rules: pure. Producers are those that counted into the topic's newest windows: a client without the
SDK is not known. Readers are groups with committed offsets, and consumers that are declared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headworks._audit.results import Contribution
from headworks._console.sources.loads import LoadedTable
from headworks._console.sources.subjects import SubjectRow
from headworks._console.views.groups import TopicConsumer

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
