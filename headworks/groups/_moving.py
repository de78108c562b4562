"""Where a reset puts a group, and the file that offsets are exported to.

Rules:

- A target outside of the log means its nearest end: an offset that is not there would make the
  next member begin wherever its own `start` says.
- What is to be done is computed here and shown before it is done; nothing is changed here.
- A line of the file that cannot be used is refused by its number, with all the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from headworks.errors import CorruptError, UsageError
from headworks.groups._groups import Groups
from headworks.groups._log_ends import Ends
from headworks.groups._model import Group, Kind, Place

__all__ = [
    "Exported",
    "Move",
    "Shift",
    "Target",
    "dump",
    "load",
    "plan",
    "targets_of",
    "topics_named",
]

_FORMAT = "headworks-offsets/1"


@dataclass(frozen=True, slots=True)
class Shift:
    """So many messages forward, or (negative) back."""

    by: int


# Where to: an end of the log, a time in ms since 1970, an offset, or relative to now.
Target = Literal["earliest", "latest"] | datetime | int | Shift


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's part of a change: None before, if the group had no position there."""

    place: Place
    before: int | None
    after: int

    def as_json(self) -> dict[str, Any]:
        """The move as commands print it."""
        return {**self.place._asdict(), "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Exported:
    """The positions of a group in a file."""

    name: str
    kind: Kind
    offsets: Mapping[Place, int]


def targets_of(places: Sequence[str], all_of: Mapping[str, Sequence[Place]]) -> list[Place]:
    """The partitions that TOPIC and TOPIC:N[,N..] name; UsageError for one that is not there.

    `all_of` are the partitions of each topic that is named.
    """
    found: dict[Place, None] = {}
    for text in places:
        topic, numbers = _parsed(text)
        there = all_of[topic]
        chosen = there if numbers is None else [Place(topic, number) for number in numbers]
        for place in chosen:
            if place not in there:
                raise UsageError(
                    f"there is no partition {place.partition} of topic {topic!r}",
                    fix=f"it has {len(there)}: see `headworks topic describe {topic}`",
                )
            found[place] = None
    return list(found)


def topics_named(places: Iterable[str]) -> list[str]:
    """The topics of TOPIC and TOPIC:N[,N..]."""
    return [_parsed(text)[0] for text in places]


def plan(
    groups: Groups, places: Sequence[Place], target: Target, group: Group | None
) -> list[Move]:
    """What moving `group` (None: one that is not there yet) in `places` would do.

    UsageError for a shift where the group has no position, or a partition that has no log now.
    """
    before = {} if group is None else group.offsets
    ends = groups.log_ends.of(places)
    for place in places:
        if place not in ends:
            raise UsageError(
                f"{place.topic} partition {place.partition} is not there, or has no leader now",
                fix="see `headworks topic describe`, or leave it out with --topic TOPIC:N,N",
            )
    if isinstance(target, datetime):
        after = groups.log_ends.at(places, int(target.timestamp() * 1000))
        wanted = {place: after.get(place, ends[place].end) for place in places}
    else:
        wanted = {place: _wanted(place, target, ends[place], before) for place in places}
    return [
        Move(place, before.get(place), min(max(wanted[place], ends[place].start), ends[place].end))
        for place in places
    ]


def dump(groups: Iterable[Exported]) -> str:
    """The file of exported offsets."""
    content = {
        "format": _FORMAT,
        "groups": [
            {
                "group": group.name,
                "kind": group.kind.value,
                "offsets": [
                    {**place._asdict(), "offset": offset}
                    for place, offset in sorted(group.offsets.items())
                ],
            }
            for group in groups
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def load(text: str, name: str) -> list[Exported]:
    """The groups of a file; CorruptError naming the file and what is wrong in it."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"it does not say that its format is {_FORMAT!r}")
        return [
            Exported(
                str(group["group"]),
                Kind(group["kind"]),
                {
                    Place(str(p["topic"]), _natural(p["partition"])): _natural(p["offset"])
                    for p in group["offsets"]
                },
            )
            for group in content["groups"]
        ]
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptError(
            f"{name} is not a file of exported offsets: {error}",
            fix="write one with `headworks group offsets-export GROUP`",
        ) from None


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is neither an offset nor a partition")
    return value


def _wanted(place: Place, target: Target, ends: Ends, before: Mapping[Place, int]) -> int:
    if target == "earliest":
        return ends.start
    if target == "latest":
        return ends.end
    if isinstance(target, Shift):
        if place not in before:
            raise UsageError(
                f"the group has no position in {place.topic} partition {place.partition} to shift",
                fix="give --to for it",
            )
        return before[place] + target.by
    assert isinstance(target, int)
    return target


def _parsed(text: str) -> tuple[str, list[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        return topic, [int(number) for number in numbers.split(",")]
    except ValueError:
        raise UsageError(
            f"--topic {text!r}: {numbers!r} is not a list of partitions",
            fix="for example orders, or orders:0,3",
        ) from None
