"""The pages with charts: a topic over time, and a group over time. No route changes anything."""

from __future__ import annotations

from headworks._audit.results import WindowState
from headworks._console.app.commands import curl
from headworks._console.app.page import Page
from headworks._console.app.reader_names import has_hidden_readers, readers_for
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.views.charts import SPANS, Chart, Period, TimeAxis, shown_period
from headworks._console.views.history import (
    MAX_LINES,
    SampledTopic,
    TopicCharts,
    group_charts,
    topic_charts,
)
from headworks._console.views.messages import read_time
from headworks.errors import UsageError

_WINDOW_MS = 600_000
_WINDOWS_AHEAD = 6  # event times may be an hour ahead


def charts(request: PageRequest) -> Page:
    """Show the charts of a topic: rate, lag and delay of its groups, and completeness."""
    topic, span = request.name("topic"), span_of(request)
    axis, period = _shown(request, span)
    broker = request.sources.topics.latest
    known = broker.value is not None and topic in broker.value.rows
    if not (known and request.visibility.topic(topic)):
        raise PageNotFoundError(f"there is no topic {topic!r}", fix="headworks topic list")
    from headworks._audit.store.samples import SampleKind  # SQLAlchemy: not for the first page

    groups = request.sources.groups.latest
    names = _groups(request, topic)
    audits = request.sources.audits
    before = axis.start - _WINDOW_MS  # the first rate needs a sample before
    sampled = SampledTopic(
        audits.samples(SampleKind.LOG_END, [topic], before, axis.end).get(topic),
        audits.samples(SampleKind.GROUP_LAG, names, axis.start, axis.end),
        audits.samples(SampleKind.GROUP_AGE, names, axis.start, axis.end),
    )
    count = SPANS[span] // _WINDOW_MS
    windows = (
        audits.windows(topic, count)
        if period.is_newest
        else audits.windows(topic, count + _WINDOWS_AHEAD, until=period.end)
    )
    hidden = has_hidden_readers(request, topic)
    audit = request.sources.audit.latest
    patience_ms = audit.value.patience_ms if audit.value else 0

    def is_due(state: WindowState) -> bool:
        return state.due(request.sources.now_ms(), patience_ms)

    view = TopicCharts(topic, span, period, topic_charts(axis, sampled, windows, is_due), hidden)
    states = (broker.state, groups.state, audit.state)
    command = curl(request.http)
    live = period.is_newest
    return Page("charts.html", f"Charts of {topic}", view, command, states, live=live)


def charts_of_group(request: PageRequest, group: str) -> tuple[Period, tuple[Chart, ...]]:
    """Return the period that the request asks for, and the charts of a group over it."""
    from headworks._audit.store.samples import SampleKind

    axis, period = _shown(request, span_of(request))
    audits = request.sources.audits
    return period, group_charts(
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


def _shown(request: PageRequest, span: str) -> tuple[TimeAxis, Period]:
    return shown_period(span, request.sources.now_ms(), read_time(request.text("until")))


def _groups(request: PageRequest, topic: str) -> list[str]:
    """Return the groups that read a topic and are visible, at most as many as a chart has lines."""
    readers = readers_for(request, topic)
    known = request.sources.groups.latest.value
    groups = known.rows if known else {}
    return [one.name for one in readers if one.name in groups][:MAX_LINES]
