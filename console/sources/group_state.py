"""Is a consumer group well? Judged by what it did over the last readings, without thresholds.

- rewound: an offset went back;
- stopped: nobody is in it, and messages wait;
- stalled: somebody is in it, messages wait, and no offset of such a partition moved;
- falling behind: it moves, and what waits in a partition grew at every reading;
- ok: everything else. A group is as well as its worst partition.

Rules: pure. The verdict is about a window of readings, so a group that has just been seen for the
first time is ok until it has shown otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

__all__ = ["Sample", "State", "judge"]

_LEAST = 3
Place = tuple[str, int]


class State(StrEnum):
    """How a group is, the worst first."""

    REWOUND = "rewound"
    STOPPED = "stopped"
    STALLED = "stalled"
    BEHIND = "falling behind"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: when, whether somebody is in it, and (committed, lag) by partition."""

    at: float
    active: bool
    positions: Mapping[Place, tuple[int, int]]

    @property
    def lag(self) -> int:
        """Messages that wait, in all partitions."""
        return sum(lag for _, lag in self.positions.values())


def judge(samples: Sequence[Sample]) -> tuple[State, str]:
    """The state of a group by its readings, oldest first, and why in a few words."""
    found = list(_partitions(samples))
    if not found:
        return State.OK, "it has no offsets yet"
    order = list(State)
    state, because = min(found, key=lambda one: order.index(one[0]))
    return state, because


def _partitions(samples: Sequence[Sample]) -> Iterator[tuple[State, str]]:
    last = samples[-1]
    for place, (_, waiting) in last.positions.items():
        seen = [sample.positions[place] for sample in samples if place in sample.positions]
        yield _judged(place, last.active, waiting, seen)


def _judged(
    place: Place, active: bool, waiting: int, seen: Sequence[tuple[int, int]]
) -> tuple[State, str]:
    where = f"{place[0]} {place[1]}"
    if any(after[0] < before[0] for before, after in pairwise(seen)):
        return State.REWOUND, f"its offset in {where} went back"
    if waiting == 0:
        return State.OK, "nothing waits"
    if not active:
        return State.STOPPED, f"nobody is in it, and {waiting:,} messages wait in {where}"
    if len(seen) < _LEAST:
        return State.OK, "it has not been watched for long"
    if all(after[0] == before[0] for before, after in pairwise(seen)) and all(
        lag > 0 for _, lag in seen
    ):
        return State.STALLED, f"{waiting:,} messages wait in {where}, and its offset stands still"
    if all(after[1] > before[1] for before, after in pairwise(seen)):
        return State.BEHIND, f"what waits in {where} grew at every reading, to {waiting:,}"
    return State.OK, "it moves"
