"""The state of a consumer group, from its last samples, without thresholds.

- rewound: an offset decreased;
- stopped: the group has no members, and messages wait;
- stalled: the group has members, messages wait, and no offset of such a partition moved;
- falling behind: the group moves, and a partition's lag grew in every sample;
- ok: everything else.

Rules: pure. A group has the state of its worst partition. A new group is ok until its samples show
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

__all__ = ["GroupSample", "GroupState", "group_state"]

_MIN_SAMPLES = 3
PartitionKey = tuple[str, int]


class GroupState(StrEnum):
    """The state of a group, the worst first."""

    REWOUND = "rewound"
    STOPPED = "stopped"
    STALLED = "stalled"
    BEHIND = "falling behind"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One sample: its time, whether the group has members, and (committed, lag) by partition."""

    at: float
    active: bool
    positions: Mapping[PartitionKey, tuple[int, int]]

    @property
    def lag(self) -> int:
        """The lag of all partitions together, in messages."""
        return sum(lag for _, lag in self.positions.values())


def group_state(samples: Sequence[GroupSample]) -> tuple[GroupState, str]:
    """Return the state of a group and a short reason. `samples` are oldest first."""
    found = list(_partitions(samples))
    if not found:
        return GroupState.OK, "it has no offsets yet"
    order = list(GroupState)
    state, because = min(found, key=lambda one: order.index(one[0]))
    return state, because


def _partitions(samples: Sequence[GroupSample]) -> Iterator[tuple[GroupState, str]]:
    last = samples[-1]
    for place, (_, waiting) in last.positions.items():
        seen = [sample.positions[place] for sample in samples if place in sample.positions]
        yield _partition_state(place, last.active, waiting, seen)


def _partition_state(
    place: PartitionKey, active: bool, waiting: int, seen: Sequence[tuple[int, int]]
) -> tuple[GroupState, str]:
    where = f"{place[0]} {place[1]}"
    if any(after[0] < before[0] for before, after in pairwise(seen)):
        return GroupState.REWOUND, f"its offset in {where} went back"
    if waiting == 0:
        return GroupState.OK, "nothing waits"
    if not active:
        return GroupState.STOPPED, f"nobody is in it, and {waiting:,} messages wait in {where}"
    if len(seen) < _MIN_SAMPLES:
        return GroupState.OK, "it has not been watched for long"
    if all(after[0] == before[0] for before, after in pairwise(seen)) and all(
        lag > 0 for _, lag in seen
    ):
        return (
            GroupState.STALLED,
            f"{waiting:,} messages wait in {where}, and its offset stands still",
        )
    if all(after[1] > before[1] for before, after in pairwise(seen)):
        return GroupState.BEHIND, f"what waits in {where} grew at every reading, to {waiting:,}"
    return GroupState.OK, "it moves"
