"""The sums of many windows that are judged, as of any time.

Rules: pure. A judgment changes with time only from "not yet" to final, so the windows of a snapshot
that are final are summed once. A page adds the others, the newest, at each request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headworks._audit.balance import Balance, total
from headworks._audit.results import WindowState


@dataclass(frozen=True, slots=True)
class SettledSums:
    """Windows of a topic: the sum of those whose judgment is final, and the others as they are.

    `attempted` and `waiting` are the messages of all. Windows whose topics no producer counts are
    left out.
    """

    judged: Balance
    attempted: int
    waiting: int
    others: tuple[WindowState, ...]

    @classmethod
    def of(cls, states: Iterable[WindowState | None], now_ms: int, patience_ms: int) -> SettledSums:
        """Sum the windows that no time after `now_ms` judges otherwise."""
        known = [state for state in states if state is not None and state.balance.referenced]
        final: list[WindowState] = []
        others: list[WindowState] = []
        for state in known:
            waits = _still_waits(state, now_ms, patience_ms)
            is_final = state.due(now_ms, patience_ms) and not waits
            (final if is_final else others).append(state)
        return cls(
            total(state.balance for state in final),
            sum(state.balance.attempted for state in known),
            sum(state.balance.waiting for state in known),
            tuple(others),
        )


@dataclass(frozen=True, slots=True)
class JudgedSums:
    """The sums of the windows that are judged, and what was attempted and waits in all windows."""

    judged: Balance
    attempted: int
    waiting: int

    @classmethod
    def of(cls, topics: Iterable[SettledSums], now_ms: int, patience_ms: int) -> JudgedSums:
        """Return the sums as of a time that is not before that of the `topics`."""
        rows = list(topics)
        due = [
            replace(state.balance, waiting=0)
            if _still_waits(state, now_ms, patience_ms)
            else state.balance
            for row in rows
            for state in row.others
            if state.due(now_ms, patience_ms)
        ]
        return cls(
            total([*(row.judged for row in rows), *due]),
            sum(row.attempted for row in rows),
            sum(row.waiting for row in rows),
        )

    @property
    def well(self) -> bool:
        """Return whether nothing that is due is missing or duplicated."""
        found = self.judged
        return not (found.missing or found.dropped or found.failed or found.duplicated)


def _still_waits(state: WindowState, now_ms: int, patience_ms: int) -> bool:
    """Return whether messages of a window wait, and not for too long yet."""
    return state.balance.waiting > 0 and not state.overdue(now_ms, patience_ms)
