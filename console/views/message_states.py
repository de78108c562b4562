"""The states of messages as cells, colors, and sentences: the same on every page.

Rules: pure. A window is judged when the reconciler judges it, so a page and an alert agree. Before
that, its missing messages are shown as still being counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headworks._audit.balance import Balance
from headworks._audit.judged_sums import JudgedSums
from headworks._audit.results import WindowState
from headworks._audit.states import DEFINITIONS, sentence

NOTHING, COMPLETE, COUNTING, SOME, MORE, MOST, OVERDUE, DROPPED, SURPLUS = range(9)
_MANY = 1_000
_ALWAYS_SHOWN = ("attempted", "loaded", "waiting", "lost")


@dataclass(frozen=True, slots=True)
class WindowCell:
    """A topic's window at a tier: its `mark`, its `grade`, and its states in words.

    The grades are the constants of this module, from NOTHING to SURPLUS. SOME, MORE, and MOST of a
    window are lost: under 1 %, at least 1 %, and at least 10 %.
    """

    window_start: int
    grade: int
    mark: str
    says: str


def window_cell(state: WindowState | None, start: int, now_ms: int, patience_ms: int) -> WindowCell:
    """Return the cell of a window, which is judged `patience_ms` after its end."""
    if state is None or (state.balance.attempted <= 0 and state.balance.accounted == 0):
        return WindowCell(start, NOTHING, "", "nothing was sent")
    balance = state.balance
    if not balance.referenced:
        arrived = f"{balance.accounted:,} arrived, and no producer counts this topic"
        return WindowCell(start, COUNTING, "?", arrived)
    said = sentence(balance)
    if balance.complete:
        return WindowCell(start, COMPLETE, "\u2713", said)
    if not state.due(now_ms, patience_ms):
        return WindowCell(start, COUNTING, "\u2026", f"{said}; still counting")
    return _judged_cell(balance, start, said, overdue=state.overdue(now_ms, patience_ms))


def _judged_cell(balance: Balance, start: int, said: str, *, overdue: bool) -> WindowCell:
    never_sent = balance.dropped + balance.failed
    gone = balance.lost + balance.unresolved
    if gone or never_sent:
        share = (gone + never_sent) / balance.attempted
        # 100 % stands only where nothing at all arrived, never by rounding.
        mark = "<1%" if share < 0.01 else f"-{share if share == 1 else min(share, 0.99):.0%}"
        grade = SOME if share < 0.01 else MORE if share < 0.1 else MOST
        return WindowCell(start, DROPPED if never_sent > gone else grade, mark, said)
    if balance.waiting:
        says = f"{said}, for too long" if overdue else f"{said}; late, and not loaded yet"
        return WindowCell(start, OVERDUE if overdue else COUNTING, "\u2026", says)
    more = balance.surplus + balance.duplicated
    mark = f"+{more}" if more < _MANY else f"+{more // _MANY}k"
    return WindowCell(start, SOME if balance.duplicated else SURPLUS, mark, said)


def headline(topics: int, sums: JudgedSums, tier: str) -> str:
    """Return the state of all topics at a tier in one or two sentences."""
    if not topics:
        return "Nothing has been counted yet."
    found = sums.judged
    bad = {
        "lost": found.lost,
        "dropped by producers": found.dropped,
        "given up by producers": found.failed,
        "left without an outcome": found.unresolved,
        "duplicated": found.duplicated,
        "not read for too long": found.waiting,
    }
    told = [(n, what) for what, n in bad.items() if n]
    names = f"{topics:,} topic{'s' * (topics != 1)}"
    if told:
        n, what = told[0]
        more = "".join(f", {n:,} were {what}" for n, what in told[1:])
        every = f"{sums.attempted:,} messages of {names}"
        first = f"{n:,} of {every} were {what} before {tier}{more}."
    elif not found.attempted:
        first = f"No messages of {names} are due yet."
    else:
        first = f"All {found.attempted:,} messages of {names} that are due arrived at {tier}."
    soon = sums.waiting - found.waiting
    later = f" {soon:,} more wait for the next load." if soon > 0 else ""
    surplus = f" {found.surplus:,} arrived that no producer reported." if found.surplus else ""
    return first + later + surplus


def states_shown(balance: Balance) -> Mapping[str, int]:
    """Return the messages in each state, in the order of the definitions."""
    return {state: getattr(balance, state) for state in DEFINITIONS}


def columns_shown(rows: Iterable[Mapping[str, int]]) -> tuple[str, ...]:
    """Return the states that a table of these rows shows: none that is empty, but for the main."""
    every = list(rows)
    return tuple(
        state for state in DEFINITIONS if state in _ALWAYS_SHOWN or any(row[state] for row in every)
    )
