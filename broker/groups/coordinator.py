"""All groups that a broker coordinates, and their timers.

Rules:

- The clock and the timers are passed in (`call_at` is that of the event loop).
- A group is in memory only while it has members. Its offsets are in the coordination store.
- The number of groups, the members of a group, and the bytes that all members take are bounded.
  Members that have only got an id count too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headworks._broker.groups.group import ClassicGroup
from headworks._broker.groups.members import JoinCallback, JoinRequest, JoinResponse
from headworks._kafka.error_codes import ErrorCode

__all__ = ["GroupCoordinator", "GroupSettings", "Timer"]


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


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""

    def when(self) -> float:
        """Return when it is due."""


class GroupCoordinator:
    """The groups of a broker. `clock` and `call_at` must use the same time."""

    def __init__(
        self,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[str], None], str], Timer],
        settings: GroupSettings | None = None,
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}  # by name, those with members
        self.clock = clock
        self._call_at = call_at
        self._settings = settings or GroupSettings()
        self._timers: dict[str, Timer] = {}  # the next deadline of each group
        self._sizes: dict[str, int] = {}  # bytes of each group
        self._size = 0  # bytes of all groups

    def find(self, name: str) -> ClassicGroup | None:
        """Return a group, None if it has no members."""
        return self.groups.get(name)

    def join(self, name: str, join: JoinRequest, reply: JoinCallback) -> None:
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
            group = self.groups[name] = ClassicGroup(name, _new_id, settings.initial_delay)
        if not join.member_id and group.member_count >= settings.max_members:
            reply(JoinResponse(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return
        group.join(self.clock(), join, reply)
        self.changed(group)

    def too_long(self, name: str) -> bool:
        """Return whether the name of a group is too long."""
        return len(name) > self._settings.max_name

    def has_room(self, size: int) -> bool:
        """Return whether the members may take `size` bytes more."""
        return self._size + size <= self._settings.max_bytes

    def changed(self, group: ClassicGroup) -> None:
        """Set the timer of a group again after a call; remove the group if it is idle."""
        timer = self._timers.pop(group.name, None)
        if timer is not None:
            timer.cancel()
        self._size -= self._sizes.pop(group.name, 0)
        if group.idle:
            self.groups.pop(group.name, None)
            return
        self._sizes[group.name] = size = group.size
        self._size += size
        deadline = group.next_deadline()
        if deadline is not None:
            self._timers[group.name] = self._call_at(deadline, self._tick, group.name)

    def unload(self, keeps: Callable[[str], bool]) -> None:
        """Remove the groups that another broker coordinates now; their members are told so."""
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
        self.changed(group)


def _new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"
