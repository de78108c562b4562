"""The pages with charts: a topic over time, and a group over time. No route changes anything."""

from __future__ import annotations

from headworks._audit.results import WindowState
from headworks._console.app.commands import curl
from headworks._console.app.page import Page
from headworks._console.app.reader_names import has_hidden_readers, readers_for
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.views.charts import SPANS, Chart, time_axis
from headworks._console.views.history import (
    MAX_LINES,
    SampledTopic,
    TopicCharts,
    group_charts,
    topic_charts,
)
from headworks.errors import UsageError

_WINDOW_MS = 600_000


def charts(request: PageRequest) -> Page:
    """Show the charts of a topic: rate, lag and delay of its groups, and completeness."""
    topic, span = request.name("topic"), span_of(request)
    broker = request.sources.topics.latest
    known = broker.value is not None and topic in broker.value.rows
    if not (known and request.visibility.topic(topic)):
        raise PageNotFoundError(f"there is no topic {topic!r}", fix="headworks topic list")
    from headworks._audit.store.samples import SampleKind  # SQLAlchemy: not for the first page

    axis = time_axis(span, request.sources.now_ms())
    groups = request.sources.groups.latest
    names = _groups(request, topic)
    audits = request.sources.audits
    before = axis.start - _WINDOW_MS  # the first rate needs a sample before
    sampled = SampledTopic(
        audits.samples(SampleKind.LOG_END, [topic], before, axis.end).get(topic),
        audits.samples(SampleKind.GROUP_LAG, names, axis.start, axis.end),
        audits.samples(SampleKind.GROUP_AGE, names, axis.start, axis.end),
    )
    windows = audits.windows(topic, SPANS[span] // _WINDOW_MS)
    hidden = has_hidden_readers(request, topic)
    audit = request.sources.audit.latest
    patience_ms = audit.value.patience_ms if audit.value else 0

    def is_due(state: WindowState) -> bool:
        return state.due(request.sources.now_ms(), patience_ms)

    view = TopicCharts(topic, span, topic_charts(axis, sampled, windows, is_due), hidden)
    states = (broker.state, groups.state, audit.state)
    command = curl(request.http)
    return Page("charts.html", f"Charts of {topic}", view, command, states, live=True)


def charts_of_group(request: PageRequest, group: str) -> tuple[Chart, ...]:
    """Return the charts of a group over the span that the request asks for."""
    from headworks._audit.store.samples import SampleKind

    axis = time_axis(span_of(request), request.sources.now_ms())
    audits = request.sources.audits
    return group_charts(
        axis,
        audits.samples(SampleKind.GROUP_LAG, [group], axis.start, axis.end),
        audits.samples(SampleKind.GROUP_AGE, [group], axis.start, axis.end),
    )


def span_of(request: PageRequest) -> str:
    """Return the span of a page's charts. Raises UsageError for an unknown one."""
    span = request.text("span", "hour")
    if span not in SPANS:
        raise UsageError(f"span is {', '.join(SPANS)}, not {span[:40]!r}")
    return span


def _groups(request: PageRequest, topic: str) -> list[str]:
    """Return the groups that read a topic and are visible, at most as many as a chart has lines."""
    readers = readers_for(request, topic)
    known = request.sources.groups.latest.value
    groups = known.rows if known else {}
    return [one.name for one in readers if one.name in groups][:MAX_LINES]
