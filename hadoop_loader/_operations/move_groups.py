"""The consumer groups of a move: where each of them continues on the new cluster.

Rules:

- A group is moved exactly, or not at all: it reads no message twice, and misses none.
- New messages on the new cluster: a group must have read the old one to its end, and starts at the
  beginning. Copies on the new cluster: a group continues at the copy of its first unread message.
  The messages behind it are compared, so that no guess about a mirror's offsets is made. The last
  message of each partition must be on both: nothing that is found on neither proves a copy.
- Nothing is written before every group is checked. Writing again gives the same offsets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.ranges import Watermarks
from hadoop_loader._operations.log_tails import MOST_LOOKED_BACK, last_messages, log_tails
from headworks._kafka.client_properties import client_properties
from headworks.errors import FindingsError, UsageError
from headworks.groups import (
    GroupDescription,
    GroupPosition,
    Groups,
    PartitionOffset,
    TopicPartition,
)

GroupOffsets = Mapping[str, Mapping[TopicPartition, int]]  # by group
_MIRROR_GROUPS = "headworks-mirror-"  # their offsets are of the source alone
_MAX_NAMED_PROBLEMS = 8
_FIX = (
    "let the groups read to the end of the old cluster, stop their consumers, and move again; or "
    "choose other ones with --groups"
)


class MovedGroups:
    """The groups whose whole names match `pattern`, from the cluster `old` to `new` (HOST:PORT)."""

    def __init__(self, old: str, new: str, pattern: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise UsageError(
                f"--groups {pattern!r} is no regex: {error}", fix="for example 'billing|web-.*'"
            ) from None
        self._old, self._new = old, new

    def plan(self, *, copied: bool) -> GroupOffsets:
        """Return where each group continues; `copied`: all new messages are copies of old ones.

        Raises FindingsError with the reason if a group cannot continue exactly, and UsageError if
        no group has a matching name.
        """
        with Groups(self._old) as groups:
            names = [g.name for g in groups.listed() if self._pattern.fullmatch(g.name)]
            names = [name for name in names if not name.startswith(_MIRROR_GROUPS)]
            if not names:
                raise UsageError(
                    f"no group of {self._old} has a name like {self._pattern.pattern!r}",
                    fix=f"see `headworks group list --bootstrap {self._old}`",
                )
            found = groups.described(names, age_timeout=0)
        plan = _GroupPlan(self._old, self._new, copied=copied)
        offsets = plan.offsets(found)
        problems, fixes = plan.problems, [_FIX] if plan.problems else []
        for problem, fix in self._taken(offsets):
            problems.append(problem)
            fixes.append(fix)
        if problems:
            raise FindingsError(
                f"no group was moved: {'; '.join(problems[:_MAX_NAMED_PROBLEMS])}",
                fix="; ".join(list(dict.fromkeys(fixes))[:_MAX_NAMED_PROBLEMS]),
            )
        return offsets

    def move(self, offsets: GroupOffsets) -> None:
        """Commit the offsets on the new cluster; RefusedError if a group has members there."""
        with Groups(self._new) as groups:
            for name, places in offsets.items():
                if places:
                    groups.move(name, places)

    def _taken(self, offsets: GroupOffsets) -> Iterator[tuple[str, str]]:
        """Yield the problem of each group that the new cluster has already, and the way out."""
        with Groups(self._new) as groups:
            there = [g.name for g in groups.listed() if g.name in offsets]
            found = groups.described(there, age_timeout=0) if there else []
        for one in found:
            if one.active:
                yield _has_members(one, self._new), _FIX
            ours = offsets[one.name]
            other = sorted(place for place, at in one.offsets.items() if ours.get(place, at) != at)
            if other:
                yield (
                    f"group {one.name} has its own offset in {_named(other[0])} of {self._new}",
                    "if nothing needs the offsets of the new cluster, "
                    f"`headworks group delete {one.name} --bootstrap {self._new}`",
                )


@dataclass(slots=True)
class _TopicMove:
    """The move of a group in one topic."""

    group: str
    topic: str
    marks: Mapping[int, Watermarks]  # of the new cluster
    offsets: dict[TopicPartition, int] = field(default_factory=dict)  # of the new cluster
    unread: list[PartitionOffset] = field(default_factory=list)  # the copies to continue at
    logs: dict[TopicPartition, Watermarks] = field(default_factory=dict)  # old, to be copied whole


class _GroupPlan:
    """The offsets of groups on the new cluster, and the problems of groups that can have none."""

    def __init__(self, old: str, new: str, *, copied: bool) -> None:
        self._old, self._new, self._copied = old, new, copied
        self.problems: list[str] = []
        self._old_topics = KafkaLog(client_properties(old)).partitions()
        self._new_log = KafkaLog(client_properties(new))

    def offsets(self, groups: Iterable[GroupDescription]) -> GroupOffsets:
        """Return the offsets by group; those of a group with a problem are not complete."""
        groups = list(groups)
        self.problems += [_has_members(one, self._old) for one in groups if one.active]
        known = self._new_log.partitions()
        topics = {p.topic for one in groups for p in one.positions}
        marks = self._new_log.watermarks({t: known[t] for t in topics if t in known})
        moves = [
            self._move_of(_TopicMove(one.name, topic, marks.get(topic, {})), positions)
            for one in groups
            for topic, positions in _by_topic(one).items()
            if topic in self._old_topics  # a group's offsets outlive the topic
        ]
        last = last_messages(self._old, {p: log for m in moves for p, log in m.logs.items()})
        copies = self._copies(moves, {message for message in last.values() if message})
        found: dict[str, dict[TopicPartition, int]] = {one.name: {} for one in groups}
        for move in moves:
            self._compare(move, last, copies)
            found[move.group] |= move.offsets
            found[move.group] |= {
                TopicPartition(*p[:2]): copies[p] for p in move.unread if p in copies
            }
        return found

    def _compare(
        self,
        move: _TopicMove,
        last: Mapping[TopicPartition, PartitionOffset | None],
        copies: Mapping[PartitionOffset, int],
    ) -> None:
        """The new cluster must have the last messages of the old one."""
        ends = [message for place in move.logs if (message := last.get(place))]
        missing = {TopicPartition(*p[:2]) for p in [*move.unread, *ends] if p not in copies}
        self.problems += [
            f"group {move.group}: the last messages of {_named(place)} are not the same on both"
            " clusters"
            for place in sorted(missing)
        ]
        self.problems += [
            f"group {move.group}: the last {MOST_LOOKED_BACK:,} offsets of {_named(place)} hold no"
            " message that could be compared"
            for place in sorted(move.logs.keys() - last.keys())
        ]

    def _move_of(self, move: _TopicMove, positions: list[GroupPosition]) -> _TopicMove:
        if not move.marks:
            self.problems.append(
                f"group {move.group} reads {move.topic}, which {self._new} does not have"
            )
        elif away := [p.partition for p in positions if p.log_end_offset is None]:
            self.problems.append(f"group {move.group}: no leader answers for {move.topic}{away}")
        elif not self._copied:
            self._from_beginning(move, positions)
        elif len(move.marks) == len(self._old_topics[move.topic]):
            self._from_copies(move, positions)
        else:
            self.problems.append(
                f"group {move.group}: {move.topic} has {len(self._old_topics[move.topic])} "
                f"partitions on {self._old} and {len(move.marks)} on {self._new}, so its copies "
                "cannot be compared"
            )
        return move

    def _from_beginning(self, move: _TopicMove, positions: list[GroupPosition]) -> None:
        """The group must have read the old topic to its end."""
        for position in positions:
            if position.lag == 0:
                continue
            first = _first_unread(position)
            if position.committed is None:
                problem = "has no offset in"
            elif found := log_tails(self._old, [first]):  # and not only the end of a transaction
                problem = f"has {found[first].messages:,} unread messages in"
            else:
                continue
            self.problems.append(f"group {move.group} {problem} {_named(first)}")
        move.offsets = _of_all(move.topic, {p: m.low for p, m in move.marks.items()})

    def _from_copies(self, move: _TopicMove, positions: list[GroupPosition]) -> None:
        """The group continues at the copy of its first unread message, or at the end."""
        for position in positions:
            if position.committed is None:  # its members begin as they did
                continue
            place, end = TopicPartition(position.topic, position.partition), position.log_end_offset
            assert end is not None, "checked by the caller"
            if position.lag:
                move.unread.append(_first_unread(position))
            else:
                move.offsets[place] = move.marks[position.partition].high
            move.logs[place] = Watermarks(position.log_start_offset or 0, end)

    def _copies(
        self, moves: Sequence[_TopicMove], last: Set[PartitionOffset]
    ) -> Mapping[PartitionOffset, int]:
        """Return the new offset of each old one behind which both clusters have the same messages.

        Messages are counted from the end. A mirror keeps their order, and a message that it copied
        twice makes the tails differ. Behind the `last` messages' offsets there must be one.
        """
        marks = {move.topic: move.marks for move in moves}
        asked = last | {place for move in moves for place in move.unread}
        here = log_tails(self._old, asked)
        new: dict[PartitionOffset, PartitionOffset] = {}
        for place in asked:
            mark, tail = marks[place.topic][place.partition], here.get(place)
            at = mark.high - (tail.messages if tail else 0)
            if at >= mark.low and (tail or place not in last):
                new[place] = place._replace(offset=at)
        there = log_tails(self._new, new.values())
        return {
            place: copy.offset for place, copy in new.items() if here.get(place) == there.get(copy)
        }


def _of_all(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): at for partition, at in offsets.items()}


def _by_topic(group: GroupDescription) -> Mapping[str, list[GroupPosition]]:
    found: dict[str, list[GroupPosition]] = defaultdict(list)
    for position in group.positions:
        found[position.topic].append(position)
    return found


def _first_unread(position: GroupPosition) -> PartitionOffset:
    at = max(position.committed or 0, position.log_start_offset or 0)
    return PartitionOffset(position.topic, position.partition, at)


def _has_members(group: GroupDescription, address: str) -> str:
    return f"group {group.name} has members on {address}"


def _named(place: TopicPartition | PartitionOffset) -> str:
    return f"{place.topic}[{place.partition}]"
