"""The pages of lineage: of one topic, and of all."""

from __future__ import annotations

import time

from headworks._audit.results import Contribution
from headworks._audit.usage import CountedUse
from headworks._console.app.commands import curl
from headworks._console.app.page import Page
from headworks._console.app.reader_names import has_hidden_readers, readers_for
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.views.groups import topic_consumers
from headworks._console.views.lineage import (
    LineageLine,
    lineage_overview,
    lineage_page,
    producer_names,
)
from headworks.errors import UnreachableError


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
    uses: dict[str, list[CountedUse]] = {}
    for use in _uses(request):
        uses.setdefault(use.topic, []).append(use)
    now = time.time_ns() // 1_000_000

    def line(topic: str, internal: bool) -> LineageLine:
        return LineageLine(
            topic,
            internal,
            producer_names(uses.get(topic, ()), topic, now),
            topic_consumers(topic, readers_for(request, topic), groups.value, sees),
            has_hidden_readers(request, topic),
            loads.value.by_topic.get(topic) if loads.value else None,
        )

    view = lineage_overview(broker.value, request.list_query(), sees, line)
    states = (broker.state, groups.state, audit.state, loads.state)
    return Page("lineage_overview.html", "Lineage", view, curl(request.http), states)


def _uses(request: PageRequest) -> list[CountedUse]:
    try:
        return request.sources.audits.uses()
    except UnreachableError:  # said by the state of the audit, beside what is known without it
        return []


def _contributions(request: PageRequest, topic: str) -> list[Contribution]:
    try:
        return request.sources.audits.contributions(topic)
    except UnreachableError:  # said by the state of the audit, beside what is known without it
        return []
