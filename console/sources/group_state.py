"""The state of a consumer group, from its samples of the last two minutes.

- rewound: an offset decreased;
- stopped: the group has no members, and messages wait;
- stalled: the group has members and messages wait, and no offset of such a partition moved for a
  minute. After two minutes one partition is enough, if the group keeps up with its others;
- falling behind: the lag of all partitions together grew in each quarter of the last two minutes,
  by at least a twentieth of what arrived;
- ok: everything else.

Rules:

- Pure, and the times are those of the samples. A new group is ok until its samples show otherwise.
- The lowest lag of a time counts, because offsets are committed in steps.
- A slow consumer handles one partition after another, because clients fetch a partition's messages
  in large batches. A partition that waits for its turn is not stalled.
- Samples may be far apart, because a broker was away. The one before the two minutes then counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

TREND_SECONDS = 120.0
_MIN_TREND_SECONDS = 105.0
_MAX_GAP_SECONDS = 30.0
_STILL_SECONDS = 60.0
_KEPT_UP_SECONDS = 15.0  # of messages may wait in partitions that a group keeps up with
_QUARTERS = 4
_MIN_GROWTH = 0.05  # of the messages that arrived
PartitionKey = tuple[str, int]
Verdict = tuple["GroupState", str]


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


def group_state(samples: Sequence[GroupSample]) -> Verdict:
    """Return the state of a group and a short reason. `samples` are oldest first."""
    last = samples[-1]
    if not last.positions:
        return GroupState.OK, "it has no offsets yet"
    if (place := _rewound(samples)) is not None:
        return GroupState.REWOUND, f"its offset in {_name(place)} moved back"
    if last.lag == 0:
        return GroupState.OK, "it has no lag"
    if not last.active:
        place = max(last.positions, key=lambda one: last.positions[one][1])
        most = last.positions[place][1]
        return GroupState.STOPPED, (
            f"it has no members and a lag of {last.lag:,}, of which {most:,} in {_name(place)}"
        )
    recent = recent_samples(samples)
    return _stalled(recent) or _behind(recent) or (GroupState.OK, "its offset advances")


def recent_samples(samples: Sequence[GroupSample]) -> Sequence[GroupSample]:
    """Return the samples of the last two minutes, and the one before them if it is near enough."""
    until = samples[-1].at
    first = next(n for n, one in enumerate(samples) if until - one.at <= TREND_SECONDS)
    if first > 0 and until - samples[first - 1].at <= TREND_SECONDS + _MAX_GAP_SECONDS:
        first -= 1
    return samples[first:]


def _rewound(samples: Sequence[GroupSample]) -> PartitionKey | None:
    for before, after in pairwise(samples):
        for place, (committed, _) in after.positions.items():
            if place in before.positions and committed < before.positions[place][0]:
                return place
    return None


def _stalled(recent: Sequence[GroupSample]) -> Verdict | None:
    """Return the verdict on a group of which no offset moves, or that of one partition."""
    still = {
        place: seconds
        for place, (_, waiting) in recent[-1].positions.items()
        if waiting > 0 and (seconds := _still_seconds(recent, place)) >= 0
    }
    if not still:
        return None
    place = max(still, key=lambda one: still[one])
    if min(still.values()) < _STILL_SECONDS:
        stuck = {one for one, seconds in still.items() if seconds >= _MIN_TREND_SECONDS}
        if not stuck or not _keeps_up(recent, recent[-1].positions.keys() - stuck):
            return None
    waiting = recent[-1].positions[place][1]
    return GroupState.STALLED, (
        f"its lag in {_name(place)} is {waiting:,}, and its offset has not changed "
        f"for {still[place]:.0f} s"
    )


def _keeps_up(recent: Sequence[GroupSample], places: Collection[PartitionKey]) -> bool:
    """Return whether few messages waited in these partitions at some time of the last minute."""
    first, last = recent[0], recent[-1]
    known = [one for one in places if one in first.positions]
    arrived = sum(sum(last.positions[one]) - sum(first.positions[one]) for one in known)
    lowest = min(
        sum(sample.positions.get(one, (0, 0))[1] for one in known)
        for sample in recent
        if last.at - sample.at <= _STILL_SECONDS
    )
    return lowest * (last.at - first.at) <= arrived * _KEPT_UP_SECONDS


def _still_seconds(recent: Sequence[GroupSample], place: PartitionKey) -> float:
    """Return for how long messages have waited in a partition and its offset did not change."""
    last = recent[-1]
    since = last.at
    for sample in reversed(recent):
        committed, lag = sample.positions.get(place, (-1, 0))
        if committed != last.positions[place][0] or lag == 0 or not sample.active:
            break
        since = sample.at
    return last.at - since


def _behind(recent: Sequence[GroupSample]) -> Verdict | None:
    """Return the verdict on a group whose lag grows steadily."""
    first, last = recent[0], recent[-1]
    span = last.at - first.at
    if span < _MIN_TREND_SECONDS:
        return None
    places = set.intersection(*({*sample.positions} for sample in recent))
    lows: list[float] = [float("inf")] * _QUARTERS
    for sample in recent:
        quarter = min(_QUARTERS - 1, int((sample.at - first.at) / span * _QUARTERS))
        lows[quarter] = min(lows[quarter], sum(sample.positions[one][1] for one in places))
    arrived = sum(sum(last.positions[one]) - sum(first.positions[one]) for one in places)
    growth = lows[-1] - lows[0]
    if any(after <= before for before, after in pairwise(lows)) or growth == float("inf"):
        return None
    if growth < _MIN_GROWTH * arrived:
        return None
    return GroupState.BEHIND, (
        f"its lag grew from {lows[0]:,.0f} to {lows[-1]:,.0f} in {span:.0f} s, "
        f"while {arrived:,} messages arrived"
    )


def _name(place: PartitionKey) -> str:
    return f"{place[0]} {place[1]}"
