"""The pages of lineage: of one topic, and of all."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from headworks._audit.results import Contribution
from headworks._audit.usage import CountedUse
from headworks._console.app.commands import curl
from headworks._console.app.page import Page
from headworks._console.app.reader_names import has_hidden_readers, readers_for
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.sources.topics import TopicRow
from headworks._console.views.groups import topic_consumers
from headworks._console.views.lineage import (
    LineageLine,
    lineage_overview,
    lineage_page,
    producer_names,
)
from headworks.errors import UnreachableError

_RECENT_MS = 7 * 86_400_000


def lineage(request: PageRequest) -> Page:
    """Show the producers of a topic, its readers, and its table."""
    topic, sources, sees = request.name("topic"), request.sources, request.visibility
    broker, registry = sources.topics.latest, sources.subjects.latest
    groups, audit, loads = sources.groups.latest, sources.audit.latest, sources.loads.latest
    if not (broker.value and topic in broker.value.rows and sees.topic(topic)):
        raise PageNotFoundError(f"there is no topic {topic!r}", fix="headworks topic list")
    subject = registry.value.of_topic(topic) if registry.value else None
    view = lineage_page(
        topic,
        subject if subject and sees.subject(subject.subject) else None,
        _contributions(request, topic),
        topic_consumers(topic, readers_for(request, topic), groups.value, sees),
        hidden_readers=has_hidden_readers(request, topic),
        table=loads.value.by_topic.get(topic) if loads.value else None,
    )
    states = (broker.state, registry.state, groups.state, audit.state, loads.state)
    return Page("lineage.html", f"Lineage of {topic}", view, curl(request.http), states)


def lineage_of_all(request: PageRequest) -> Page:
    """Show the producers, readers, and table of each topic."""
    sources, sees = request.sources, request.visibility
    broker, groups = sources.topics.latest, sources.groups.latest
    audit, loads = sources.audit.latest, sources.loads.latest

    def lines(rows: Sequence[TopicRow]) -> list[LineageLine]:
        uses: defaultdict[str, list[CountedUse]] = defaultdict(list)
        for use in _uses(request, [row.topic for row in rows]):
            uses[use.topic].append(use)
        return [
            LineageLine(
                row.topic,
                row.internal,
                producer_names(uses[row.topic]),
                topic_consumers(row.topic, readers_for(request, row.topic), groups.value, sees),
                has_hidden_readers(request, row.topic),
                loads.value.by_topic.get(row.topic) if loads.value else None,
            )
            for row in rows
        ]

    view = lineage_overview(broker.value, request.list_query(), sees, lines)
    states = (broker.state, groups.state, audit.state, loads.state)
    return Page("lineage_overview.html", "Lineage", view, curl(request.http), states)


def _uses(request: PageRequest, topics: Sequence[str]) -> Sequence[CountedUse]:
    """Return the uses of topics in the last week."""
    since = time.time_ns() // 1_000_000 - _RECENT_MS
    try:
        return request.sources.audits.uses(topics, since)
    except UnreachableError:  # said by the state of the audit, beside what is known without it
        return []


def _contributions(request: PageRequest, topic: str) -> Sequence[Contribution]:
    try:
        return request.sources.audits.contributions(topic)
    except UnreachableError:  # said by the state of the audit, beside what is known without it
        return []
