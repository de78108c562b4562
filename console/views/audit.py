"""The audit of one topic: the states of its messages at every tier, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headworks._audit.balance import total
from headworks._audit.results import Contribution, Explanation, LoadShare, TopicAudit
from headworks._console.views.charts import Chart
from headworks._console.views.history import audit_chart
from headworks._console.views.message_states import (
    WindowCell,
    columns_shown,
    states_shown,
    window_cell,
)


@dataclass(frozen=True, slots=True)
class TierColumn:
    """A tier: the time that windows took to complete, its counts per window, and its sums."""

    tier: str
    p50: float | None
    p95: float | None
    p99: float | None
    states: Mapping[str, int]
    arrived_share: float | None  # of the messages whose fate is known
    arrived: tuple[int, ...]
    cells: tuple[WindowCell, ...]
    reopened: int


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A topic's audit; windows are oldest first, and every list by window has their order."""

    topic: str
    windows: tuple[int, ...]
    attempted: tuple[int, ...]
    columns: tuple[str, ...]
    tiers: tuple[TierColumn, ...]
    drops: Mapping[str, int]
    chart: Chart | None


@dataclass(frozen=True, slots=True)
class WindowPage:
    """One window: the counts of each tier, host, and application, and the loads that took it."""

    topic: str
    window_start: int
    cells: Mapping[str, WindowCell]
    contributions: tuple[Contribution, ...]
    loads: tuple[LoadShare, ...]


def audit_page(found: TopicAudit, now_ms: int, patience_ms: int) -> AuditPage:
    """Return a topic's audit as the page shows it."""
    columns = tuple(
        TierColumn(
            line.tier,
            line.time_to_complete.p50,
            line.time_to_complete.p95,
            line.time_to_complete.p99,
            states_shown(total(one.balance for one in line.cells if one)),
            total(one.balance for one in line.cells if one).arrived_share,
            tuple(one.balance.accounted if one else 0 for one in line.cells),
            tuple(
                window_cell(state, start, now_ms, patience_ms)
                for start, state in zip(found.windows, line.cells, strict=True)
            ),
            sum(1 for one in line.cells if one and one.reopened),
        )
        for line in found.tiers
    )
    shown = columns_shown(one.states for one in columns)
    picture = audit_chart(found)
    return AuditPage(
        found.topic, found.windows, found.attempted, shown, columns, dict(found.drops), picture
    )


def window_page(found: Explanation, now_ms: int, patience_ms: int) -> WindowPage:
    """Return one window's counts as the page shows them."""
    return WindowPage(
        found.topic,
        found.window_start,
        {
            tier: window_cell(state, found.window_start, now_ms, patience_ms)
            for tier, state in found.states.items()
        },
        found.contributions,
        found.loads,
    )
