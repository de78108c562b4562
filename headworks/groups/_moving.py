"""The offsets that a reset sets, and the file of exported offsets.

Rules:

- A target outside the log means the nearest end of the log. With an offset outside the log, the
  next member would begin at its own `start`.
- This module computes changes, so that commands can show them first. It changes nothing.
- A file with a wrong entry is rejected as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from headworks.errors import UsageError
from headworks.groups._groups import Groups
from headworks.groups._log_ends import LogBounds
from headworks.groups._model import GroupDescription, GroupKind, TopicPartition

_FILE_FORMAT = "headworks-offsets/1"


@dataclass(frozen=True, slots=True)
class OffsetShift:
    """A number of messages forward, or (negative) back."""

    by: int


# An end of the log, a time, an offset, or a shift from the committed offset.
ResetTarget = Literal["earliest", "latest"] | datetime | int | OffsetShift


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A change of the offset in one partition; `before` is None if nothing was committed."""

    partition: TopicPartition
    before: int | None
    after: int

    def as_json(self) -> dict[str, Any]:
        """Return the change as commands print it."""
        return {**self.partition._asdict(), "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class ExportedOffsets:
    """The offsets of a group in a file."""

    name: str
    kind: GroupKind
    offsets: Mapping[TopicPartition, int]


def partitions_named(
    partitions: Sequence[str], all_of: Mapping[str, Sequence[TopicPartition]]
) -> list[TopicPartition]:
    """Return the partitions that TOPIC and TOPIC:N[,N..] name; UsageError for a missing one.

    `all_of` holds the partitions of each named topic.
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
    """Return the topics of TOPIC and TOPIC:N[,N..]."""
    return [_parsed(text)[0] for text in partitions]


def planned_changes(
    groups: Groups,
    partitions: Sequence[TopicPartition],
    target: ResetTarget,
    group: GroupDescription | None,
) -> list[OffsetChange]:
    """Return the changes that move `group` (None: a new one) to `target` in `partitions`.

    UsageError for a shift in a partition without a committed offset, and for a partition without a
    leader.
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
    """Return the text of the file."""
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
    """Return the groups of a file; UsageError with its name and the reason."""
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
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UsageError(
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
