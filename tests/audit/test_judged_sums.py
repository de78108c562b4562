"""The sums of a snapshot, as of a later time, are those of its windows at that time."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._audit.balance import Balance, total
from headworks._audit.judged_sums import JudgedSums, SettledSums
from headworks._audit.results import SETTLED_MS, WindowState
from headworks._audit_counting import WINDOW_MS

pytestmark = pytest.mark.unit

PATIENCE = 3 * WINDOW_MS
_NONE = Balance(
    **{one.name: 0 for one in fields(Balance) if one.type == "int"},
    topic="t",
    window_start=None,
    referenced=True,
)
_SMALL = st.integers(0, 2)
_BALANCES = st.builds(
    lambda sent, waiting, lost, surplus, known: replace(
        _NONE, attempted=sent, waiting=waiting, lost=lost, surplus=surplus, referenced=known
    ),
    *(_SMALL, _SMALL, _SMALL, _SMALL, st.booleans()),
)
# Times around which a judgment changes: the end of a window, two minutes, and the patience.
_TIMES = st.sampled_from(
    [n * WINDOW_MS + more for n in range(9) for more in (0, 1, SETTLED_MS, SETTLED_MS + 1)]
)
_STATES = st.lists(
    st.none()
    | st.builds(
        lambda balance, start, heard: WindowState(balance, start, None, None, heard, None),
        *(_BALANCES, st.sampled_from([0, WINDOW_MS]), _TIMES),
    ),
    max_size=4,
)


def expected(topics: list[list[WindowState | None]], now: int) -> JudgedSums:
    """Judge each window by itself."""
    states = [s for states in topics for s in states if s is not None and s.balance.referenced]
    judged = [
        s.balance if s.overdue(now, PATIENCE) else replace(s.balance, waiting=0)
        for s in states
        if s.due(now, PATIENCE)
    ]
    attempted = sum(s.balance.attempted for s in states)
    return JudgedSums(total(judged), attempted, sum(s.balance.waiting for s in states))


@given(st.lists(_STATES, max_size=3), _TIMES, _TIMES)
def test_settled_windows_stay_as_they_were_judged(
    topics: list[list[WindowState | None]], one: int, other: int
) -> None:
    read_at, now = sorted((one, other))
    settled = [SettledSums.of(states, read_at, PATIENCE) for states in topics]
    assert JudgedSums.of(settled, now, PATIENCE) == expected(topics, now)


def test_final_windows_are_not_kept_one_by_one() -> None:
    late = 100 * WINDOW_MS
    lost = replace(_NONE, attempted=5, lost=2)
    states = [WindowState(lost, n * WINDOW_MS, None, None, 0, None) for n in range(36)]
    sums = SettledSums.of(states, late, PATIENCE)
    assert (sums.judged.lost, sums.attempted, sums.others) == (72, 180, ())
