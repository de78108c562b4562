"""The first page, and the pages of the audit. No route changes anything."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from headworks._console.app.commands import headworks
from headworks._console.app.formatting import iso
from headworks._console.app.page import Page
from headworks._console.app.request import PageNotFoundError, PageRequest
from headworks._console.views.audit import audit_page, window_page
from headworks._console.views.checks import (
    HealthCheck,
    disk_check,
    groups_check,
    loads_check,
    producers_check,
    quarantine_check,
    reconciler_check,
    source_check,
    topics_check,
)
from headworks._console.views.health import health_page

_DEFAULT_TIER = "hadoop"
# Where the commands of a page ask, unless it is where they do anyway.
_AUDIT = ("bootstrap", "zookeeper", "registry", "store")


def home(request: PageRequest) -> Page:
    """Show whether all is well, and completeness: topics by windows."""
    sources = request.sources
    broker, groups = sources.topics.latest, sources.groups.latest
    audit, registry, loads = sources.audit.latest, sources.subjects.latest, sources.loads.latest
    sees, now = request.visibility, sources.now_ms()
    checks = (
        source_check(broker.state, "/topics", hangs_after=4.0),
        source_check(registry.state, "/schemas", hangs_after=10.0),
        reconciler_check(audit.value, now),
        loads_check(loads.value, now),
        groups_check(groups.value, sees),
        quarantine_check(loads.value, registry.value, sees, now),
        topics_check(loads.value, registry.value, sees),
        producers_check(audit.value, registry.value, sees),
        disk_check(loads.value),
    )
    page = _audit_page(request, tuple(one for one in checks if one is not None))
    states = (broker.state, registry.state, audit.state, loads.state, groups.state)
    return replace(page, sources=states)


def _audit_page(request: PageRequest, checks: tuple[HealthCheck, ...] = ()) -> Page:
    audit, registry, loads = (
        request.sources.audit.latest,
        request.sources.subjects.latest,
        request.sources.loads.latest,
    )
    tier = request.text("tier", _DEFAULT_TIER)
    if audit.value is not None and not request.text("tier") and tier not in audit.value.health:
        tier = min(audit.value.health, default=tier)
    view = health_page(
        audit.value,
        registry.value,
        loads.value,
        request.visibility,
        request.list_query(),
        tier=tier,
        now_ms=request.sources.now_ms(),
        checks=checks,
    )
    states = (audit.state, registry.state, loads.state)
    # The newest windows only; the command would sum all there ever were.
    since = ("--since", iso(view.windows[0])) if view.windows else ()
    command = headworks(request.sources, "audit", "status", "--tier", tier, *since, at=_AUDIT)
    return Page("health.html", "Health", view, command, states, live=True)


def audits(request: PageRequest) -> Page:
    """Show the sums of the audit for all topics."""
    return replace(_audit_page(request), template="audits.html", title="Audit")


def audit(request: PageRequest) -> Page:
    """Show the audit of one topic."""
    topic = request.name("topic")
    found = request.sources.audits.topic(topic) if request.visibility.topic(topic) else None
    if found is None or not found.windows:
        raise PageNotFoundError(
            f"no producer and no tier has counted messages of a topic {topic!r}",
            fix="headworks audit run keeps the counts; producers of the SDK send them",
        )
    view = audit_page(found, request.sources.now_ms(), _patience_ms(request))
    state = request.sources.audit.latest.state
    tiers = [one.tier for one in found.tiers]
    tier = _DEFAULT_TIER if _DEFAULT_TIER in tiers or not tiers else tiers[0]
    since = iso(min(found.windows))  # the newest windows, like the page
    words = ("audit", "status", "--tier", tier, "--topic", topic, "--since", since)
    command = headworks(request.sources, *words, at=_AUDIT)
    return Page("audit.html", f"Audit of {topic}", view, command, (state,), live=True)


def window(request: PageRequest) -> Page:
    """Show one window of a topic's audit."""
    topic, start = request.name("topic"), request.path_number("start")
    found = (
        request.sources.audits.explain(topic, start) if request.visibility.topic(topic) else None
    )
    if found is None or not (found.states or found.contributions):
        raise PageNotFoundError(
            f"no producer and no tier has counted messages of {topic!r} in that window",
            fix=f"see the windows at /audit/{quote(topic, safe='')}/windows",
        )
    view = window_page(found, request.sources.now_ms(), _patience_ms(request))
    command = headworks(request.sources, "audit", "explain", names=(topic, iso(start)), at=_AUDIT)
    return Page("window.html", f"{topic} {iso(start)}", view, command)


def _patience_ms(request: PageRequest) -> int:
    known = request.sources.audit.latest.value
    return known.patience_ms if known else 0
