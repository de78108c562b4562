"""The audit of one topic: what was sent and what arrived at every tier, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headworks._audit.balance import Balance
from headworks._audit.results import Contribution, Explanation, LoadShare, TopicAudit
from headworks._console.views.health import WindowCell, window_cell

__all__ = ["AuditPage", "TierColumn", "WindowPage", "audit_page", "window_page"]


@dataclass(frozen=True, slots=True)
class TierColumn:
    """A tier: the time that windows took to complete, its counts per window, and its sums."""

    tier: str
    p50: float | None
    p95: float | None
    p99: float | None
    expected: int
    lost: int
    duplicated: int
    quarantined: int
    completeness: float
    arrived: tuple[int, ...]
    cells: tuple[WindowCell, ...]
    reopened: int


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A topic's audit; windows are oldest first, and every list by window has their order."""

    topic: str
    windows: tuple[int, ...]
    attempted: tuple[int, ...]
    tiers: tuple[TierColumn, ...]
    drops: Mapping[str, int]
    top: int


@dataclass(frozen=True, slots=True)
class WindowPage:
    """One window: the counts of each tier, host, and application, and the loads that took it."""

    topic: str
    window_start: int
    cells: Mapping[str, WindowCell]
    contributions: tuple[Contribution, ...]
    loads: tuple[LoadShare, ...]


def audit_page(found: TopicAudit, now_ms: int) -> AuditPage:
    """Return a topic's audit as the page shows it."""
    columns = tuple(
        TierColumn(
            line.tier,
            line.time_to_complete.p50,
            line.time_to_complete.p95,
            line.time_to_complete.p99,
            sum(one.balance.expected for one in line.cells if one),
            sum(one.balance.lost for one in line.cells if one),
            sum(one.balance.duplicated for one in line.cells if one),
            sum(one.balance.quarantined for one in line.cells if one),
            _completeness([one.balance for one in line.cells if one]),
            tuple(one.balance.accounted if one else 0 for one in line.cells),
            tuple(
                window_cell(state, start, now_ms)
                for start, state in zip(found.windows, line.cells, strict=True)
            ),
            sum(1 for one in line.cells if one and one.reopened),
        )
        for line in found.tiers
    )
    top = max((*found.attempted, *(n for column in columns for n in column.arrived)), default=0)
    return AuditPage(found.topic, found.windows, found.attempted, columns, dict(found.drops), top)


def window_page(found: Explanation, now_ms: int) -> WindowPage:
    """Return one window's counts as the page shows them."""
    return WindowPage(
        found.topic,
        found.window_start,
        {
            tier: window_cell(state, found.window_start, now_ms)
            for tier, state in found.states.items()
        },
        found.contributions,
        found.loads,
    )


def _completeness(balances: list[Balance]) -> float:
    expected = sum(max(0, one.expected) for one in balances)
    return 1.0 if expected == 0 else (expected - sum(one.lost for one in balances)) / expected
