"""The first screen: completeness of topics by windows, the worst first, and recent changes."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._audit.results import WindowState
from headworks._console.sources.audits import AuditSnapshot
from headworks._console.sources.loads import LoadRun, LoadsSnapshot
from headworks._console.sources.subjects import SubjectsSnapshot
from headworks._console.views.paging import ListPage, ListQuery, list_page
from headworks._console.views.visibility import CanSee

__all__ = ["HealthLine", "HealthPage", "HealthProblem", "WindowCell", "health_page", "window_cell"]

_MAX_RECENT_CHANGES = 8
_MAX_PROBLEMS = 20
_HOLES_KIND = "holes"  # said above the heatmap
_NOT_READ_YET = "The audit has not been read yet."


@dataclass(frozen=True, slots=True)
class WindowCell:
    """A topic's window at a tier: its `mark`, and a `grade`.

    Grades: 0 nothing was sent, 1 complete, 2 still arriving, 3 under 1 % lost or duplicates, 4 at
    least 1 % lost, 5 at least 10 % lost.
    """

    window_start: int
    grade: int
    mark: str
    says: str


@dataclass(frozen=True, slots=True)
class HealthLine:
    """A topic's line in the heatmap."""

    topic: str
    expected: int
    lost: int
    duplicated: int
    completeness: float
    referenced: bool
    cells: tuple[WindowCell, ...]


@dataclass(frozen=True, slots=True)
class RecentChange:
    """A recent event: a registered version or a load."""

    at_ms: int
    what: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """A finding that concerns no window: a silent tier or a wrong clock, for example."""

    kind: str
    text: str
    topic: str | None


@dataclass(frozen=True, slots=True)
class HealthPage:
    """The heatmap of a tier as a sentence and as cells; `further` counts problems left out."""

    kept: bool
    tier: str
    tiers: tuple[str, ...]
    sentence: str
    well: bool
    windows: tuple[int, ...]
    part: ListPage[HealthLine]
    left_out: int
    unreadable: int
    troubles: tuple[HealthProblem, ...]
    further: int
    news: tuple[RecentChange, ...]


def health_page(
    audit: AuditSnapshot | None,
    subjects: SubjectsSnapshot | None,
    loads: LoadsSnapshot | None,
    can_see: CanSee,
    query: ListQuery,
    *,
    tier: str,
    now_ms: int,
) -> HealthPage:
    """Return the heatmap of `tier`, with the visible topics."""
    health = audit.health.get(tier) if audit else None
    rows = [row for row in (health.rows if health else ()) if can_see.topic(row.sum.topic)]
    windows = health.windows if health else ()
    # The store's order is the worst first; it is kept.
    part = list_page(rows, query, lambda row: row.sum.topic)
    lines = tuple(
        HealthLine(
            row.sum.topic,
            row.sum.expected,
            row.sum.lost,
            row.sum.duplicated,
            row.sum.completeness,
            row.sum.referenced,
            tuple(
                window_cell(state, start, now_ms)
                for start, state in zip(windows, row.cells, strict=True)
            ),
        )
        for row in part.rows
    )
    troubles = _problems(audit, can_see)
    lost = sum(row.sum.lost for row in rows)
    duplicated = sum(row.sum.duplicated for row in rows)
    bad = sum(1 for row in rows if not row.sum.complete)
    expected = sum(row.sum.expected for row in rows)
    return HealthPage(
        audit is None or audit.has_store,
        tier,
        tuple(sorted(audit.health)) if audit else (),
        _NOT_READ_YET
        if audit is None
        else _sentence(len(rows), bad, expected, lost, duplicated, tier),
        bad == 0,
        windows,
        ListPage(lines, part.total, part.page, part.pages, part.q, part.sort),
        max(0, health.topics - len(health.rows)) if health else 0,
        audit.holes.unreadable + audit.holes.missed if audit else 0,
        troubles[:_MAX_PROBLEMS],
        len(troubles[_MAX_PROBLEMS:]),
        _recent_changes(subjects, loads, can_see),
    )


def window_cell(state: WindowState | None, start: int, now_ms: int) -> WindowCell:
    """Return the cell of a window."""
    if state is None or (state.balance.expected <= 0 and state.balance.accounted == 0):
        return WindowCell(start, 0, "", "nothing was sent")
    balance = state.balance
    if not balance.referenced:
        return WindowCell(start, 2, "?", f"{balance.accounted:,} arrived, no producer counted any")
    said = f"{balance.expected:,} sent, {balance.lost:,} missing, {balance.duplicated:,} twice"
    if balance.complete:
        return WindowCell(start, 1, "\u2713", said)
    if not state.settled(now_ms) and balance.lost:
        return WindowCell(start, 2, "\u2026", f"{said}; still counting")
    if balance.lost == 0:
        return WindowCell(start, 3, "\u00d72", said)
    share = balance.lost / balance.expected
    # A hundred is said where nothing at all is there, never by rounding.
    mark = "<1%" if share < 0.01 else f"-{share if share == 1 else min(share, 0.99):.0%}"
    return WindowCell(start, 3 if share < 0.01 else 4 if share < 0.1 else 5, mark, said)


def _sentence(topics: int, bad: int, expected: int, lost: int, duplicated: int, tier: str) -> str:
    if not topics:
        return "Nothing has been counted yet."
    total = f"{topics:,} topic{'s' * (topics != 1)}"
    if bad == 0:
        return f"All is there: {expected:,} messages of {total} are at {tier}, each exactly once."
    missing = f"{lost:,} of {expected:,} messages are not at {tier}"
    twice = f", and {duplicated:,} are there twice" if duplicated else ""
    return f"{bad:,} of {total} {'is' if bad == 1 else 'are'} not complete: {missing}{twice}."


def _problems(audit: AuditSnapshot | None, can_see: CanSee) -> tuple[HealthProblem, ...]:
    """Return the visible findings; those without a topic need visibility of every topic."""
    return tuple(
        HealthProblem(one.kind, one.text, one.topic)
        for one in (audit.general_findings if audit else ())
        if one.kind != _HOLES_KIND and can_see.topic(one.topic or "")
    )


def _recent_changes(
    subjects: SubjectsSnapshot | None, loads: LoadsSnapshot | None, can_see: CanSee
) -> tuple[RecentChange, ...]:
    found = [
        RecentChange(row.registered_ms, f"version {row.version} registered", row.subject, "schema")
        for row in (subjects.rows.values() if subjects else ())
        if row.registered_ms is not None and can_see.subject(row.subject)
    ]
    found += [
        RecentChange(
            run.created_ms, f"{run.rows:,} rows of {_topics(run)}", str(run.number), "load"
        )
        for run in (loads.runs[:_MAX_RECENT_CHANGES] if loads else ())
        if all(can_see.topic(topic) for topic in run.topics)
    ]
    return tuple(sorted(found, key=lambda one: -one.at_ms)[:_MAX_RECENT_CHANGES])


def _topics(run: LoadRun) -> str:
    count = len(run.topics)
    return f"{count} topic{'s' * (count != 1)}"
