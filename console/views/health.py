"""The first screen: the state of topics by windows, the worst first, and recent changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headworks._audit.judged_sums import JudgedSums, SettledSums
from headworks._audit.results import HealthRow
from headworks._console.sources.audits import AuditSnapshot
from headworks._console.sources.loads import LoadRun, LoadsSnapshot
from headworks._console.sources.subjects import SubjectsSnapshot
from headworks._console.views.checks import (
    CheckLevel,
    HealthCheck,
    WorstTopic,
    is_well,
    messages_check,
    topic_owner,
    verdict,
    worst_first,
)
from headworks._console.views.message_states import (
    WindowCell,
    columns_shown,
    headline,
    states_shown,
    window_cell,
)
from headworks._console.views.paging import ListPage, ListQuery, list_page
from headworks._console.views.visibility import CanSee

if TYPE_CHECKING:
    from headworks._audit.findings import AuditFinding

_MAX_RECENT_CHANGES = 8
_MAX_PROBLEMS = 20
_HOLES_KIND = "holes"  # said above the heatmap
# The findings whose alert rules page somebody, the worst first; the rules open a ticket for others.
URGENT_KINDS = (_HOLES_KIND, "lost", "dropped", "failed", "duplicated", "overdue", "silent")
_NOT_READ_YET = "The audit has not been read yet."


@dataclass(frozen=True, slots=True)
class HealthLine:
    """A topic's line in the heatmap."""

    topic: str
    states: Mapping[str, int]
    arrived_share: float | None  # of the messages whose fate is known
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
    """A finding of the reconciler; `level` is BAD if it is urgent, and else WARN."""

    kind: str
    level: CheckLevel
    text: str
    topic: str | None
    owner: str | None  # of the topic's schema


@dataclass(frozen=True, slots=True)
class HealthPage:
    """The checks, and the heatmap of a tier; `further` counts problems left out."""

    verdict: str
    checks: tuple[HealthCheck, ...]
    kept: bool
    tier: str
    tiers: tuple[str, ...]
    sentence: str
    well: bool
    windows: tuple[int, ...]
    columns: tuple[str, ...]
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
    checks: Sequence[HealthCheck] = (),
) -> HealthPage:
    """Return the heatmap of `tier`, with the visible topics, and the checks with its own."""
    health = audit.health.get(tier) if audit else None
    patience = audit.patience_ms if audit else 0
    every = zip(health.rows, audit.settled[tier], strict=True) if audit and health else ()
    seen = [(row, sums) for row, sums in every if can_see.topic(row.sum.topic)]
    rows = [row for row, _ in seen]
    windows = health.windows if health else ()
    # The store's order is the worst first; it is kept.
    part = list_page(rows, query, lambda row: row.sum.topic)
    lines = tuple(
        HealthLine(
            row.sum.topic,
            states_shown(row.sum),
            row.sum.arrived_share,
            row.sum.referenced,
            tuple(
                window_cell(state, start, now_ms, patience)
                for start, state in zip(windows, row.cells, strict=True)
            ),
        )
        for row in part.rows
    )
    troubles = _problems(audit, subjects, can_see)
    sums = JudgedSums.of((settled for _, settled in seen), now_ms, patience)
    sentence = _NOT_READ_YET if audit is None else headline(len(rows), sums, tier)
    worst = None if sums.well else _worst(rows, windows, subjects, can_see, now_ms, patience)
    judged = [*checks, messages_check(sums.well, sentence, worst)] if rows else list(checks)
    return HealthPage(
        verdict(judged),
        worst_first(judged),
        audit is None or audit.thresholds is not None,
        tier,
        tuple(sorted(audit.health)) if audit else (),
        sentence,
        is_well(judged),
        windows,
        columns_shown(line.states for line in lines),
        ListPage(lines, part.total, part.page, part.pages, part.q, part.sort),
        max(0, health.topics - len(health.rows)) if health else 0,
        audit.holes.unreadable + audit.holes.missed if audit else 0,
        troubles[:_MAX_PROBLEMS],
        len(troubles[_MAX_PROBLEMS:]),
        _recent_changes(subjects, loads, can_see),
    )


def _worst(
    rows: Sequence[HealthRow],
    windows: Sequence[int],
    subjects: SubjectsSnapshot | None,
    can_see: CanSee,
    now_ms: int,
    patience_ms: int,
) -> WorstTopic | None:
    """Return the first topic of `rows` that is not well; they have the worst first."""
    for row in rows:
        for start, state in zip(windows, row.cells, strict=True):
            alone = SettledSums.of([state], now_ms, patience_ms)
            if not JudgedSums.of([alone], now_ms, patience_ms).well:
                return WorstTopic(
                    row.sum.topic, topic_owner(row.sum.topic, subjects, can_see), start
                )
    return None


def _problems(
    audit: AuditSnapshot | None, subjects: SubjectsSnapshot | None, can_see: CanSee
) -> tuple[HealthProblem, ...]:
    """Return the visible findings, urgent ones first, so that none of them is cut off.

    Those without a topic need visibility of every topic.
    """
    seen = [
        one
        for one in (audit.findings if audit else ())
        if one.kind != _HOLES_KIND and can_see.topic(one.topic or "")
    ]
    return tuple(
        HealthProblem(
            one.kind,
            CheckLevel.BAD if one.kind in URGENT_KINDS else CheckLevel.WARN,
            one.text,
            one.topic,
            topic_owner(one.topic, subjects, can_see),
        )
        for one in sorted(seen, key=_urgency)
    )


def _urgency(finding: AuditFinding) -> int:
    """Return the place of a finding's kind in URGENT_KINDS; those of other kinds follow."""
    kinds = URGENT_KINDS
    return kinds.index(finding.kind) if finding.kind in kinds else len(kinds)


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
