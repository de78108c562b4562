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
from headworks.groups._log_ends import LogBounds
from headworks.groups._model import GroupDescription, GroupKind, TopicPartition

__all__ = [
    "ExportedOffsets",
    "OffsetChange",
    "OffsetShift",
    "ResetTarget",
    "dump_offsets",
    "load_offsets",
    "partitions_named",
    "planned_changes",
    "topics_named",
]

_FILE_FORMAT = "headworks-offsets/1"


@dataclass(frozen=True, slots=True)
class OffsetShift:
    """So many messages forward, or (negative) back."""

    by: int


# Where to: an end of the log, a time in ms since 1970, an offset, or relative to now.
ResetTarget = Literal["earliest", "latest"] | datetime | int | OffsetShift


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One partition's part of a change: None before, if the group had no position there."""

    partition: TopicPartition
    before: int | None
    after: int

    def as_json(self) -> dict[str, Any]:
        """The move as commands print it."""
        return {**self.partition._asdict(), "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class ExportedOffsets:
    """The positions of a group in a file."""

    name: str
    kind: GroupKind
    offsets: Mapping[TopicPartition, int]


def partitions_named(
    partitions: Sequence[str], all_of: Mapping[str, Sequence[TopicPartition]]
) -> list[TopicPartition]:
    """The partitions that TOPIC and TOPIC:N[,N..] name; UsageError for one that is not there.

    `all_of` are the partitions of each topic that is named.
    """
    found: dict[TopicPartition, None] = {}
    for text in partitions:
        topic, numbers = _parsed(text)
        there = all_of[topic]
        chosen = there if numbers is None else [TopicPartition(topic, number) for number in numbers]
        for partition in chosen:
            if partition not in there:
                raise UsageError(
                    f"there is no partition {partition.partition} of topic {topic!r}",
                    fix=f"it has {len(there)}: see `headworks topic describe {topic}`",
                )
            found[partition] = None
    return list(found)


def topics_named(partitions: Iterable[str]) -> list[str]:
    """The topics of TOPIC and TOPIC:N[,N..]."""
    return [_parsed(text)[0] for text in partitions]


def planned_changes(
    groups: Groups,
    partitions: Sequence[TopicPartition],
    target: ResetTarget,
    group: GroupDescription | None,
) -> list[OffsetChange]:
    """What moving `group` (None: one that is not there yet) in `places` would do.

    UsageError for a shift where the group has no position, or a partition that has no log now.
    """
    before = {} if group is None else group.offsets
    ends = groups.log_ends.of(partitions)
    for partition in partitions:
        if partition not in ends:
            raise UsageError(
                f"{partition.topic} partition {partition.partition} is not there, or has no leader"
                " now",
                fix="see `headworks topic describe`, or leave it out with --topic TOPIC:N,N",
            )
    if isinstance(target, datetime):
        after = groups.log_ends.at(partitions, int(target.timestamp() * 1000))
        wanted = {partition: after.get(partition, ends[partition].end) for partition in partitions}
    else:
        wanted = {
            partition: _wanted(partition, target, ends[partition], before)
            for partition in partitions
        }
    return [
        OffsetChange(
            partition,
            before.get(partition),
            min(max(wanted[partition], ends[partition].start), ends[partition].end),
        )
        for partition in partitions
    ]


def dump_offsets(groups: Iterable[ExportedOffsets]) -> str:
    """The file of exported offsets."""
    content = {
        "format": _FILE_FORMAT,
        "groups": [
            {
                "group": group.name,
                "kind": group.kind.value,
                "offsets": [
                    {**partition._asdict(), "offset": offset}
                    for partition, offset in sorted(group.offsets.items())
                ],
            }
            for group in groups
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def load_offsets(text: str, name: str) -> list[ExportedOffsets]:
    """The groups of a file; CorruptError naming the file and what is wrong in it."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != _FILE_FORMAT:
            raise ValueError(f"it does not say that its format is {_FILE_FORMAT!r}")
        return [
            ExportedOffsets(
                str(group["group"]),
                GroupKind(group["kind"]),
                {
                    TopicPartition(str(p["topic"]), _natural(p["partition"])): _natural(p["offset"])
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


def _wanted(
    partition: TopicPartition,
    target: ResetTarget,
    ends: LogBounds,
    before: Mapping[TopicPartition, int],
) -> int:
    if target == "earliest":
        return ends.start
    if target == "latest":
        return ends.end
    if isinstance(target, OffsetShift):
        if partition not in before:
            raise UsageError(
                f"the group has no position in {partition.topic} partition {partition.partition} to"
                " shift",
                fix="give --to for it",
            )
        return before[partition] + target.by
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
