"""Both kinds of groups as one: list them, describe them with their lag, move and delete them.

Rules:

- The number of calls grows with the groups, and not with topics or partitions. To describe all
  groups takes one call to list them, one to describe them, one for the partitions of all topics,
  and one for each end of the logs. A pipelined read of ZooKeeper, and an OffsetFetch per classic
  group, up to a hundred at a time, come on top.
- A group is shown in all partitions of the topics that it has committed in, because partitions
  without a committed offset may hold unread messages.
- Ages of unread messages are read within `age_timeout` seconds, from all partitions at once. An age
  that is not read by then is None. Ages are cached, so a caller that polls reads little.
- A group that has members is never moved or deleted.
- In cluster mode, brokers list every group with committed offsets, of both kinds. A group with a
  directory of members is decentralized.
- Not shared between threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from headworks._zookeeper.session import ZooKeeperSession, open_session
from headworks.errors import RefusedError, UsageError
from headworks.groups._classic import ClassicGroups
from headworks.groups._decentralized import DecentralizedGroups
from headworks.groups._log_ends import LogBounds, LogOffsets, TimestampLookup
from headworks.groups._model import (
    GroupDescription,
    GroupKind,
    GroupListing,
    GroupPosition,
    TopicPartition,
    position_of,
)

_ZOOKEEPER_TIMEOUT_SECONDS = 5.0


class Groups:
    """The groups of the broker or cluster at `bootstrap`, and of `zookeeper` if it is given.

    UnreachableError if ZooKeeper does not answer; the broker is asked at the first call.
    """

    def __init__(
        self,
        bootstrap: str,
        zookeeper: str | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._classic = ClassicGroups(bootstrap)
        self.log_ends = LogOffsets(self._classic)
        self._timestamps = TimestampLookup(bootstrap)
        self._session: ZooKeeperSession | None = None
        self._decentralized: DecentralizedGroups | None = None
        if zookeeper is not None:
            self._session = open_session(zookeeper, wait=_ZOOKEEPER_TIMEOUT_SECONDS)
            self._decentralized = DecentralizedGroups(self._session)
        self._now = now

    def listed(self) -> list[GroupListing]:
        """Return all groups, sorted by name."""
        found = {group.name: group for group in self._classic.listed()}
        for group in () if self._decentralized is None else self._decentralized.listed():
            # A group with classic members and no others has changed its kind.
            if group.active or not (group.name in found and found[group.name].active):
                found[group.name] = group
        return [found[name] for name in sorted(found)]

    def described(
        self, names: Iterable[str] | None = None, *, age_timeout: float = 5.0
    ) -> list[GroupDescription]:
        """Return groups with members, positions, and lag: those named, or all.

        With `age_timeout` 0, no message is read, and the ages of unread messages are None.
        UsageError for a missing group.
        """
        listed = {group.name: group for group in self.listed()}
        wanted = sorted(listed) if names is None else list(dict.fromkeys(names))
        for name in wanted:
            if name not in listed:
                raise UsageError(f"there is no group {name!r}", fix="see `headworks group list`")
        classic = [name for name in wanted if listed[name].kind is GroupKind.CLASSIC]
        others = [name for name in wanted if listed[name].kind is GroupKind.DECENTRALIZED]
        found = self._classic.described(classic)
        found += self._registry.described(others) if others else []
        return self._measured(found, age_timeout)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of topics; UsageError for a missing topic."""
        return self._classic.partitions(topics)

    def move(
        self, name: str, offsets: Mapping[TopicPartition, int], *, kind: GroupKind | None = None
    ) -> None:
        """Commit offsets for a group; RefusedError if it has members.

        A missing group is created, of `kind` (default: classic).
        """
        found = self.refuse_active([name]).get(name)
        if (found.kind if found else kind or GroupKind.CLASSIC) is GroupKind.DECENTRALIZED:
            self._registry.set_offsets(name, offsets)
        else:
            self._classic.set_offsets(name, offsets)

    def delete(self, name: str) -> None:
        """Delete a group; UsageError if it is missing, RefusedError if it has members."""
        found = self.refuse_active([name]).get(name)
        if found is None:
            raise UsageError(f"there is no group {name!r}", fix="see `headworks group list`")
        if found.kind is GroupKind.DECENTRALIZED:
            self._registry.delete(name)
        else:
            self._classic.delete(name)

    def refuse_active(self, names: Iterable[str]) -> dict[str, GroupListing]:
        """Return the groups that exist among `names`; RefusedError if one has members."""
        listed = {group.name: group for group in self.listed()}
        found = {name: listed[name] for name in names if name in listed}
        for group in found.values():
            if group.active:
                raise RefusedError(
                    f"group {group.name} is {group.state}: it cannot change while it has members",
                    fix="stop its consumers first",
                )
        return found

    def close(self) -> None:
        """Close the connections."""
        self._timestamps.close()
        if self._session is not None:
            self._session.close()

    def __enter__(self) -> Groups:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _registry(self) -> DecentralizedGroups:
        if self._decentralized is None:
            raise UsageError(
                "decentralized groups live in ZooKeeper, and none is named",
                fix="give --zookeeper, or set `zookeeper`",
            )
        return self._decentralized

    def _measured(
        self, groups: Sequence[GroupDescription], age_timeout: float
    ) -> list[GroupDescription]:
        wholes = self._whole_topics(groups)
        partitions = {
            TopicPartition(p.topic, p.partition) for positions in wholes for p in positions
        }
        ends = self.log_ends.of(partitions)
        with_ends = [[_at_ends(p, ends) for p in positions] for positions in wholes]
        unread = {
            next_unread
            for ps in with_ends
            for p in ps
            if (next_unread := p.next_unread) is not None
        }
        times = self._timestamps.of(unread, age_timeout) if unread and age_timeout > 0 else {}
        now = int(self._now() * 1000)

        def aged(position: GroupPosition) -> GroupPosition:
            next_unread = position.next_unread
            if next_unread is None:
                behind = None if position.lag is None else 0
            else:
                behind = max(0, now - times[next_unread]) if next_unread in times else None
            return replace(position, behind_ms=behind)

        return [
            GroupDescription(
                g.name, g.kind, g.active, g.state, g.members, tuple(map(aged, positions))
            )
            for g, positions in zip(groups, with_ends, strict=True)
        ]

    def _whole_topics(self, groups: Sequence[GroupDescription]) -> list[list[GroupPosition]]:
        """Return the groups' positions, with those partitions in which they have none."""
        topics = {p.topic for group in groups for p in group.positions}
        partitions_of: dict[str, list[TopicPartition]] = {}
        for partition in self._classic.present(topics) if topics else ():
            partitions_of.setdefault(partition.topic, []).append(partition)
        found = []
        for group in groups:
            known = {TopicPartition(p.topic, p.partition): p for p in group.positions}
            for topic in {partition.topic for partition in known}:
                for partition in partitions_of.get(topic, ()):
                    known.setdefault(partition, position_of(partition))
            found.append([known[partition] for partition in sorted(known)])
        return found


def _at_ends(position: GroupPosition, ends: Mapping[TopicPartition, LogBounds]) -> GroupPosition:
    found = ends.get(TopicPartition(position.topic, position.partition))
    return (
        position
        if found is None
        else replace(position, log_start_offset=found.start, log_end_offset=found.end)
    )
