"""All groups that a broker coordinates, and their timers.

Rules:

- The clock and the timers are passed in (`call_at` is that of the event loop).
- A group is in memory only while it has members. Its offsets are in the coordination store.
- A group changes between the two protocols when its members do (see `mixed_group`).
- The number of groups, the members of a group, and the bytes that all members take are bounded.
  Members that have only got an id count too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headworks._broker.groups.config import times_of
from headworks._broker.groups.consumer_group import ConsumerGroup
from headworks._broker.groups.consumer_members import (
    JOINING_EPOCH,
    ConsumerAnswer,
    ConsumerGroupTimes,
    ConsumerHeartbeat,
    SubscribableTopics,
    refused_heartbeat,
)
from headworks._broker.groups.group import ClassicGroup
from headworks._broker.groups.members import (
    JoinCallback,
    JoinRequest,
    JoinResponse,
    SyncCallback,
    SyncResponse,
)
from headworks._broker.groups.mixed_group import (
    downgraded,
    heartbeat_mixed,
    join_mixed,
    leave_mixed,
    sync_mixed,
    upgraded,
)
from headworks._kafka.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits of groups; times in seconds."""

    initial_delay: float = 0.1  # of the first rebalance of a group
    min_session: float = 0.5
    max_session: float = 1800.0
    max_members: int = 1000
    max_groups: int = 10_000
    max_name: int = 1000  # characters
    max_protocols: int = 100
    max_bytes: int = 128 << 20  # of the fields of all members
    consumer: ConsumerGroupTimes = field(default_factory=ConsumerGroupTimes)


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""

    def when(self) -> float:
        """Return when it is due."""


Group = ClassicGroup | ConsumerGroup


class GroupCoordinator:
    """The groups of a broker. `clock` and `call_at` must use the same time."""

    def __init__(
        self,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[str], None], str], Timer],
        settings: GroupSettings | None = None,
        new_id: Callable[[str], str] | None = None,
    ) -> None:
        self.groups: dict[str, Group] = {}  # by name, those with members
        self.clock = clock  # seconds, monotonic
        self._call_at = call_at  # calls a function with a group at a time of the clock
        self._settings = settings or GroupSettings()  # the limits of every group
        self._own_times: dict[str, ConsumerGroupTimes] = {}  # of groups that have own configs
        self._new_id = new_id or _random_id  # makes a member id from a client id
        self._timers: dict[str, Timer] = {}  # the next deadline of each group
        self._sizes: dict[str, int] = {}  # bytes of each group
        self._size = 0  # bytes of all groups
        self._revisions: dict[str, int] = {}  # of each group of the consumer protocol
        # Since when no other broker coordinates groups of here. Its members may still be reading.
        self._settled_from = clock()

    @property
    def default_times(self) -> ConsumerGroupTimes:
        """The times of a group of the consumer protocol that has no own configs."""
        return self._settings.consumer

    def configure(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Take the configs of all groups that have own ones; they act from the next heartbeat."""
        default = self._settings.consumer
        self._own_times = {name: times_of(own, default) for name, own in configs.items()}
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.times = self._times(group.name)

    def _times(self, name: str) -> ConsumerGroupTimes:
        return self._own_times.get(name, self._settings.consumer)

    def find(self, name: str) -> Group | None:
        """Return a group, None if it has no members."""
        return self.groups.get(name)

    def join(
        self, name: str, join: JoinRequest, reply: JoinCallback, topics: SubscribableTopics
    ) -> None:
        """See `ClassicGroup.join`; creates the group if it is new."""
        settings = self._settings
        if not name or self.too_long(name):
            reply(JoinResponse(ErrorCode.INVALID_GROUP_ID))
            return
        if len(join.protocols) > settings.max_protocols:
            reply(JoinResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
            return
        if not self.has_room(join.size):
            reply(JoinResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, join.member_id))
            return
        if not settings.min_session <= join.session_timeout <= settings.max_session:
            reply(JoinResponse(ErrorCode.INVALID_SESSION_TIMEOUT))
            return
        group = self.groups.get(name)
        if group is None:
            if join.member_id:
                reply(JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return
            if len(self.groups) >= settings.max_groups:
                reply(JoinResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            group = self.groups[name] = ClassicGroup(name, self._new_id, settings.initial_delay)
        if not join.member_id and group.member_count >= settings.max_members:
            reply(JoinResponse(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return
        if isinstance(group, ClassicGroup):
            group.join(self.clock(), join, reply)
            self.changed(group)
            return
        reply(join_mixed(group, self.clock(), join, topics, self._new_id))
        self._after_heartbeat(group)

    def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        reply: SyncCallback,
        topics: SubscribableTopics,
        *,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """See `ClassicGroup.sync`."""
        group, now = self.groups.get(name), self.clock()
        member = member_id, instance_id, generation
        if group is None:
            reply(SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        elif not self.has_room(sum(map(len, assignments.values()))):
            reply(SyncResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif isinstance(group, ClassicGroup):
            group.sync(
                now,
                *member,
                assignments,
                reply,
                protocol_type=protocol_type,
                protocol=protocol,
            )
            self.changed(group)
        else:
            synced = sync_mixed(
                group, now, *member, topics, protocol_type=protocol_type, protocol=protocol
            )
            reply(synced)
            self._after_heartbeat(group)

    def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """See `ClassicGroup.heartbeat`."""
        group, now = self.groups.get(name), self.clock()
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ClassicGroup):
            return group.heartbeat(now, member_id, instance_id, generation)
        error = heartbeat_mixed(group, now, member_id, instance_id, generation)
        self._after_heartbeat(group)
        return error

    def leave(self, name: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members, named by their ids and instance ids; return the error of each."""
        group, now = self.groups.get(name), self.clock()
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        if isinstance(group, ClassicGroup):
            errors = [group.leave(now, *member) for member in members]
            self.changed(group)
        else:
            errors = [leave_mixed(group, *member) for member in members]
            self._after_heartbeat(group)
        return errors

    def consumer_heartbeat(
        self, name: str, beat: ConsumerHeartbeat, topics: SubscribableTopics
    ) -> ConsumerAnswer:
        """See `ConsumerGroup.heartbeat`; creates the group if it is new.

        Raises InvalidPatternError, and changes nothing then.
        """
        settings, now = self._settings, self.clock()
        group = self.groups.get(name)
        if beat.regex:
            topics.matching(beat.regex)
        if beat.epoch != JOINING_EPOCH and not isinstance(group, ConsumerGroup):
            return refused_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID, beat)
        if beat.is_full and not self.has_room(beat.size):
            return refused_heartbeat(ErrorCode.COORDINATOR_NOT_AVAILABLE, beat)
        if group is None:
            if len(self.groups) >= settings.max_groups:
                return refused_heartbeat(ErrorCode.COORDINATOR_NOT_AVAILABLE, beat)
            # A member of before asks once in this time, stops reading, and joins again
            times = self._times(name)
            settles_at = self._settled_from + times.interval + times.waiting_interval
            waits = settles_at if now < settles_at else 0.0
            group = self.groups[name] = ConsumerGroup(name, times, waits)
        is_new = beat.epoch == JOINING_EPOCH and beat.member_id not in group.members
        if is_new and group.member_count >= settings.max_members:
            return refused_heartbeat(ErrorCode.GROUP_MAX_SIZE_REACHED, beat)
        if isinstance(group, ClassicGroup):
            try:
                group = upgraded(group, now, self._times(name), topics)
            except ValueError as error:
                text = f"the group {name} cannot change to the consumer protocol: {error}"
                return ConsumerAnswer(ErrorCode.GROUP_ID_NOT_FOUND, text, beat.member_id)
            self.groups[name] = group
        answer = group.heartbeat(now, beat, topics)
        self._after_heartbeat(group)
        return answer

    def _after_heartbeat(self, group: ConsumerGroup) -> None:
        """Change the group back if only members of the classic protocol are left."""
        members = group.members.values()
        if members and all(member.classic is not None for member in members):
            delay = self._settings.initial_delay
            self.groups[group.name] = classic = downgraded(group, self.clock(), self._new_id, delay)
            self.changed(classic)
        elif group.revision != self._revisions.get(group.name):
            self.changed(group)

    def too_long(self, name: str) -> bool:
        """Return whether the name of a group is too long."""
        return len(name) > self._settings.max_name

    def has_room(self, size: int) -> bool:
        """Return whether the members may take `size` bytes more."""
        return self._size + size <= self._settings.max_bytes

    def changed(self, group: Group) -> None:
        """Set the timer of a group again after a call; remove the group if it is idle."""
        timer = self._timers.pop(group.name, None)
        if timer is not None:
            timer.cancel()
        self._size -= self._sizes.pop(group.name, 0)
        self._revisions.pop(group.name, None)
        if isinstance(group, ConsumerGroup):
            self._revisions[group.name] = group.revision
        if group.idle:
            self._revisions.pop(group.name, None)
            self.groups.pop(group.name, None)
            return
        self._sizes[group.name] = size = group.size
        self._size += size
        deadline = group.next_deadline()
        if deadline is not None:
            self._timers[group.name] = self._call_at(deadline, self._tick, group.name)

    def unload(self, keeps: Callable[[str], bool]) -> None:
        """Remove the groups that another broker coordinates now; their members are told so."""
        self._settled_from = self.clock()
        for name in [name for name in self.groups if not keeps(name)]:
            group = self.groups[name]
            group.unload()
            self.changed(group)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _tick(self, name: str) -> None:
        group = self.groups[name]
        group.tick(self.clock())
        if isinstance(group, ConsumerGroup):
            self._revisions.pop(name, None)
            self._after_heartbeat(group)
        else:
            self.changed(group)


def _random_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"
