"""Consumers of both protocols without sockets, as their libraries behave, on one coordinator.

A consumer reads the partitions in `owned`. It starts to read others only after it was told so, and
stops when it was told so, when it is fenced, or when it was silent for too long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import count
from uuid import UUID

from headworks._broker.groups import (
    ConsumerGroupTimes,
    ConsumerHeartbeat,
    GroupCoordinator,
    GroupSettings,
    JoinRequest,
    JoinResponse,
    SyncResponse,
)
from headworks._broker.groups.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from headworks._kafka.protocol import ErrorCode
from tests.broker.topics import FakeTopics

GROUP = "g"
SESSION_SECONDS, REBALANCE_SECONDS = 10.0, 8.0
Named = tuple[str, int]


class _Timer:
    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due, self.callback = due, callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def when(self) -> float:
        return self.due


class Rig:
    """A coordinator, its clock, and the topics."""

    def __init__(self, **counts: int) -> None:
        self.now = 100.0
        self.topics = FakeTopics(**counts)
        self.timers: list[_Timer] = []
        times = ConsumerGroupTimes(SESSION_SECONDS, 1.0, 0.5)
        settings = GroupSettings(initial_delay=0.0, consumer=times)
        numbers = count(1)
        self.coordinator = GroupCoordinator(
            lambda: self.now, self._call_at, settings, lambda prefix: f"{prefix}-{next(numbers)}"
        )
        self.now += SESSION_SECONDS  # no consumer of an earlier coordinator is left

    def _call_at(self, due: float, callback: Callable[[str], None], name: str) -> _Timer:
        timer = _Timer(due, lambda: callback(name))
        self.timers.append(timer)
        return timer

    def wait(self, seconds: float) -> None:
        """Let time pass, and fire the timers that are due."""
        end = self.now + seconds
        while True:
            self.timers = [timer for timer in self.timers if not timer.cancelled]
            timer = min(self.timers, key=lambda timer: timer.due, default=None)
            if timer is None or timer.due > end:
                break
            self.timers.remove(timer)
            self.now = max(self.now, timer.due)
            timer.callback()
        self.now = end

    def names(self, ids: frozenset[tuple[UUID, int]]) -> set[Named]:
        """Partitions by the names of their topics, of those that exist."""
        by_id = {topic.topic_id: topic.name for topic in self.topics.topics.values()}
        return {(by_id[one], index) for one, index in ids if one in by_id}


class Native:
    """A consumer of the consumer protocol."""

    def __init__(
        self, rig: Rig, name: str, topics: frozenset[str], instance_id: str | None = None
    ) -> None:
        self.rig, self.name, self.instance_id = rig, name, instance_id
        self.topics = topics
        self.regex: str | None = None
        self.assignor: str | None = None
        self.epoch = 0
        self.owned: frozenset[tuple[UUID, int]] = frozenset()
        self.target: frozenset[tuple[UUID, int]] = frozenset()
        self.full = True  # whether the next heartbeat sends everything
        self.heard = rig.now
        self.error = ErrorCode.NONE

    @property
    def reads(self) -> frozenset[tuple[UUID, int]]:
        """The partitions that it reads now."""
        return self.owned

    def step(self, *, lost: bool = False, reconciles: bool = True) -> None:
        """Send a heartbeat; its answer may be `lost`, and the consumer may be slow."""
        says = self.full or self.owned != self.target or reconciles
        answer = self.rig.coordinator.consumer_heartbeat(
            GROUP,
            ConsumerHeartbeat(
                self.name,
                self.epoch,
                instance_id=self.instance_id,
                rebalance_timeout=REBALANCE_SECONDS if self.full else None,
                topic_names=self.topics if self.full else None,
                regex=self.regex if self.full else None,
                assignor=self.assignor if self.full else None,
                owned=self.owned if says else None,
            ),
            self.rig.topics,
        )
        if lost:
            self.full = True
            return
        self.error = answer.error
        if answer.error:
            self.expel()
            return
        self.heard, self.full = self.rig.now, False
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.target = answer.assigned
        if reconciles:
            self.reconcile()

    def reconcile(self) -> None:
        """Stop reading what it may not read any more, and start with the rest."""
        self.owned = self.target

    def expel(self) -> None:
        """Stop reading, and join again with the next heartbeat."""
        self.owned = self.target = frozenset()
        self.epoch, self.full = 0, True
        self.heard = self.rig.now

    def leave(self, *, for_a_while: bool = False) -> None:
        """Leave the group."""
        self.owned = self.target = frozenset()
        beat = ConsumerHeartbeat(self.name, -2 if for_a_while else -1, instance_id=self.instance_id)
        self.rig.coordinator.consumer_heartbeat(GROUP, beat, self.rig.topics)

    def knows_that_it_is_out(self) -> bool:
        """Whether it was silent for so long that it stops by itself."""
        return self.rig.now - self.heard >= min(SESSION_SECONDS, REBALANCE_SECONDS)


class Classic:
    """A consumer of the classic protocol, eager or cooperative."""

    def __init__(
        self, rig: Rig, topics: frozenset[str], *, cooperative: bool, instance_id: str | None = None
    ) -> None:
        self.rig, self.topics, self.cooperative = rig, topics, cooperative
        self.instance_id = instance_id
        self.name, self.generation = "", -1
        self.owned: set[Named] = set()
        self._ids: dict[str, UUID] = {}  # of its topics when it was told to read them
        self._planned: int | None = None  # the version of the topics for which it assigned
        self._ids_then: dict[str, UUID] = {}  # of all topics at its last sync
        self.heard = rig.now
        self._joined: list[JoinResponse] | None = None
        self._synced: list[SyncResponse] | None = None
        self.is_in = False

    @property
    def reads(self) -> frozenset[tuple[UUID, int]]:
        """The partitions that it reads now."""
        return frozenset((self._ids[name], index) for name, index in self.owned)

    def step(self) -> None:
        """Do the next thing: join, sync, send a heartbeat, or look for an answer."""
        if self._joined is not None:
            self._after_join()
        elif self._synced is not None:
            self._after_sync()
        elif not self.is_in:
            self._join()
        else:
            self._heartbeat()

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = set()
        self._joined = []
        metadata = _subscription(self.topics, self.owned)
        name = "cooperative-sticky" if self.cooperative else "range"
        join = JoinRequest(
            member_id=self.name,
            instance_id=self.instance_id,
            client_id="c",
            host="h",
            session_timeout=SESSION_SECONDS,
            rebalance_timeout=REBALANCE_SECONDS,
            protocol_type="consumer",
            protocols=((name, metadata), ("both", metadata)),
            needs_id=True,
        )
        self.rig.coordinator.join(GROUP, join, self._joined.append, self.rig.topics)

    def _after_join(self) -> None:
        assert self._joined is not None
        if not self._joined:
            self.heard = self.rig.now  # a member that waits for an answer is not removed
            return
        [joined], self._joined = self._joined, None
        if joined.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.name = joined.member_id
        elif joined.error == ErrorCode.NONE:
            self.heard = self.rig.now
            self.name, self.generation = joined.member_id, joined.generation
            leads = joined.leader == self.name
            plan = self._plan(joined) if leads else {}
            self._planned = self.rig.topics.version if leads else None
            self._synced = []
            self._ids_then = {name: t.topic_id for name, t in self.rig.topics.topics.items()}
            self.rig.coordinator.sync(
                GROUP,
                self.name,
                self.instance_id,
                self.generation,
                plan,
                self._synced.append,
                self.rig.topics,
            )
        elif joined.error != ErrorCode.REBALANCE_IN_PROGRESS:
            self.expel()

    def _after_sync(self) -> None:
        assert self._synced is not None
        if not self._synced:
            self.heard = self.rig.now
            return
        [synced], self._synced = self._synced, None
        if synced.error == ErrorCode.NONE:
            self.heard = self.rig.now
            before, self.owned = self.owned, set(read_assignment(synced.assignment))
            self._ids |= {name: self._ids_then[name] for name, _ in self.owned - before}
            # a cooperative consumer that had to stop reading something joins again to say so
            self.is_in = not (before - self.owned)
        elif synced.error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_in = False
        else:
            self.expel(keeps_name=synced.error == ErrorCode.ILLEGAL_GENERATION)

    def _heartbeat(self) -> None:
        if self._planned not in (None, self.rig.topics.version):  # a leader watches the topics
            self.is_in = False
            return
        error = self.rig.coordinator.heartbeat(GROUP, self.name, self.instance_id, self.generation)
        if error == ErrorCode.NONE:
            self.heard = self.rig.now
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.heard = self.rig.now
            self.is_in = False
        else:
            self.expel(keeps_name=error == ErrorCode.ILLEGAL_GENERATION)

    def _plan(self, joined: JoinResponse) -> dict[str, bytes]:
        """Assign as a leader: nothing that another member still reads."""
        read = {member: read_subscription(metadata) for member, _, metadata in joined.members}
        owner = {one: member for member, found in read.items() for one in found.owned}
        plan: dict[str, list[Named]] = {member: [] for member in read}
        for topic in self.rig.topics.topics.values():
            able = sorted(member for member, found in read.items() if topic.name in found.topics)
            for index in range(topic.count if able else 0):
                member = able[index % len(able)]
                if owner.get((topic.name, index), member) == member:
                    plan[member].append((topic.name, index))
        return {member: write_assignment(found) for member, found in plan.items()}

    def expel(self, *, keeps_name: bool = False) -> None:
        """Stop reading, and join again, as a new member unless it keeps its name."""
        self.owned = set()
        self.name = self.name if keeps_name else ""
        self.generation, self.is_in = -1, False
        self.heard = self.rig.now
        self._joined = self._synced = None

    def leave(self) -> None:
        """Leave the group."""
        if self.name:
            self.rig.coordinator.leave(GROUP, [(self.name, self.instance_id)])
        self.expel()

    def knows_that_it_is_out(self) -> bool:
        """Whether it was silent for so long that it stops by itself."""
        return self.rig.now - self.heard >= min(SESSION_SECONDS, REBALANCE_SECONDS)


def _subscription(topics: frozenset[str], owned: set[Named]) -> bytes:
    """A subscription of version 1."""
    out = [struct.pack(">hi", 1, len(topics))]
    out += [struct.pack(">h", len(topic)) + topic.encode() for topic in sorted(topics)]
    out.append(struct.pack(">i", -1))
    # the partitions that it owns are encoded as in an assignment, between its version and its data
    return b"".join(out) + write_assignment(owned)[2:-4]
