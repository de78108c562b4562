"""The first screen: is everything there? Topics by windows, the worst first, and what is new."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._audit.results import WindowState
from headworks._console.sources.audits import Audited
from headworks._console.sources.loads import Loads, Run
from headworks._console.sources.subjects import Subjects
from headworks._console.views.paging import Part, Wanted, part_of
from headworks._console.views.visibility import Seeing

__all__ = ["Cell", "HealthLine", "HealthPage", "Trouble", "cell_of", "health_page"]

_NEWS = 8
_TROUBLES = 20
_HOLES = "holes"  # said above the heatmap
_UNREAD = "The audit has not been read yet."


@dataclass(frozen=True, slots=True)
class Cell:
    """A topic's window at a tier. `mark` is what it shows, `grade` how good that is:

    0 nothing was sent, 1 all there, 2 still travelling, 3 a little lost or doubled, 4 more than
    1 % lost, 5 more than a tenth lost.
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
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class News:
    """Something that has happened lately, the newest first."""

    at_ms: int
    what: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is not as it should be, and is no window's: a silent tier, a wrong clock."""

    kind: str
    text: str
    topic: str | None


@dataclass(frozen=True, slots=True)
class HealthPage:
    """The heatmap of a tier, in one sentence and in cells; `further` troubles are left out."""

    kept: bool
    tier: str
    tiers: tuple[str, ...]
    sentence: str
    well: bool
    windows: tuple[int, ...]
    part: Part[HealthLine]
    left_out: int
    unreadable: int
    troubles: tuple[Trouble, ...]
    further: int
    news: tuple[News, ...]


def health_page(
    audited: Audited | None,
    subjects: Subjects | None,
    loads: Loads | None,
    seeing: Seeing,
    wanted: Wanted,
    *,
    tier: str,
    now_ms: int,
) -> HealthPage:
    """The heatmap of `tier`, with what may be seen of it."""
    health = audited.health.get(tier) if audited else None
    rows = [row for row in (health.rows if health else ()) if seeing.topic(row.sum.topic)]
    windows = health.windows if health else ()
    # The store's order is the worst first; it is kept.
    part = part_of(rows, wanted, lambda row: row.sum.topic)
    lines = tuple(
        HealthLine(
            row.sum.topic,
            row.sum.expected,
            row.sum.lost,
            row.sum.duplicated,
            row.sum.completeness,
            row.sum.referenced,
            tuple(
                cell_of(state, start, now_ms)
                for start, state in zip(windows, row.cells, strict=True)
            ),
        )
        for row in part.rows
    )
    troubles = _troubles(audited, seeing)
    lost = sum(row.sum.lost for row in rows)
    doubled = sum(row.sum.duplicated for row in rows)
    bad = sum(1 for row in rows if not row.sum.complete)
    expected = sum(row.sum.expected for row in rows)
    return HealthPage(
        audited is None or audited.kept,
        tier,
        tuple(sorted(audited.health)) if audited else (),
        _UNREAD if audited is None else _sentence(len(rows), bad, expected, lost, doubled, tier),
        bad == 0,
        windows,
        Part(lines, part.total, part.page, part.pages, part.q, part.sort),
        max(0, health.topics - len(health.rows)) if health else 0,
        audited.holes.unreadable + audited.holes.missed if audited else 0,
        troubles[:_TROUBLES],
        len(troubles[_TROUBLES:]),
        _news(subjects, loads, seeing),
    )


def cell_of(state: WindowState | None, start: int, now_ms: int) -> Cell:
    """What a window shows."""
    if state is None or (state.balance.expected <= 0 and state.balance.accounted == 0):
        return Cell(start, 0, "", "nothing was sent")
    balance = state.balance
    if not balance.referenced:
        return Cell(start, 2, "?", f"{balance.accounted:,} arrived, no producer counted any")
    said = f"{balance.expected:,} sent, {balance.lost:,} missing, {balance.duplicated:,} twice"
    if balance.complete:
        return Cell(start, 1, "\u2713", said)
    if not state.settled(now_ms) and balance.lost:
        return Cell(start, 2, "\u2026", f"{said}; still counting")
    if balance.lost == 0:
        return Cell(start, 3, "\u00d72", said)
    share = balance.lost / balance.expected
    # A hundred is said where nothing at all is there, never by rounding.
    mark = "<1%" if share < 0.01 else f"-{share if share == 1 else min(share, 0.99):.0%}"
    return Cell(start, 3 if share < 0.01 else 4 if share < 0.1 else 5, mark, said)


def _sentence(topics: int, bad: int, expected: int, lost: int, doubled: int, tier: str) -> str:
    if not topics:
        return "Nothing has been counted yet."
    total = f"{topics:,} topic{'s' * (topics != 1)}"
    if bad == 0:
        return f"All is there: {expected:,} messages of {total} are at {tier}, each exactly once."
    missing = f"{lost:,} of {expected:,} messages are not at {tier}"
    twice = f", and {doubled:,} are there twice" if doubled else ""
    return f"{bad:,} of {total} {'is' if bad == 1 else 'are'} not complete: {missing}{twice}."


def _troubles(audited: Audited | None, seeing: Seeing) -> tuple[Trouble, ...]:
    """Those of hosts and tiers, which are of no topic, are for who may see every topic."""
    return tuple(
        Trouble(one.kind, one.text, one.topic)
        for one in (audited.troubles if audited else ())
        if one.kind != _HOLES and seeing.topic(one.topic or "")
    )


def _news(subjects: Subjects | None, loads: Loads | None, seeing: Seeing) -> tuple[News, ...]:
    found = [
        News(row.registered_ms, f"version {row.version} registered", row.subject, "schema")
        for row in (subjects.rows.values() if subjects else ())
        if row.registered_ms is not None and seeing.subject(row.subject)
    ]
    found += [
        News(run.created_ms, f"{run.rows:,} rows of {_topics(run)}", str(run.number), "load")
        for run in (loads.runs[:_NEWS] if loads else ())
        if all(seeing.topic(topic) for topic in run.topics)
    ]
    return tuple(sorted(found, key=lambda one: -one.at_ms)[:_NEWS])


def _topics(run: Run) -> str:
    count = len(run.topics)
    return f"{count} topic{'s' * (count != 1)}"
