"""A member of a group without a coordinator (NetDB'11, Algorithm 1).

Rules:

- One thread, the member's thread, rebalances. It reads the group with watches on members, brokers,
  and topics, and computes this member's partitions. It releases those that moved away, claims the
  new ones, and hands them to streams. Streams continue to read the partitions that stay.
- A partition is released in this order: its stream stops, its processed messages are committed, and
  then the claim is deleted.
- The member retries a claim that another member still holds, after a pause that doubles. After
  `warn_after_tries` tries in a row it logs the owner, and continues.
- When the session has ended, the member drops all partitions without a commit. It then joins again
  under a new name.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from consumer_sdk._message import Partition
from consumer_sdk._zookeeper_group.assignment import assignment_of
from consumer_sdk._zookeeper_group.directory import (
    GroupDirectory,
    NotAMemberError,
    RegisteredPartition,
)
from consumer_sdk._zookeeper_group.subscription import wanted
from headworks._zookeeper import MemberNode, SessionState, open_session
from headworks._zookeeper.lease import LeaseThread
from headworks.errors import HeadworksError, UnreachableError

_log = logging.getLogger("headworks.consumer")
_MIN_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 2.0
_TICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class MemberTiming:
    """The timeouts of a member."""

    session_seconds: float = 6.0  # the ZooKeeper session: a silent member is dead after this
    commit_seconds: float | None = 5.0  # between commits; None: only explicit commits
    release_seconds: float = 300.0  # how long a stream may take to release a partition
    warn_after_tries: int = 4  # claims of one partition in a row before a warning


class Handover:
    """The state that the member's thread and one stream share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # guards everything below
        self.changed = threading.Event()  # set when the stream has something to do
        # Partitions for the stream to start, with the group's committed offset.
        self.to_start: dict[Partition, int | None] = {}
        self.to_release: set[Partition] = set()  # partitions for the stream to stop
        self.reading: set[Partition] = set()  # partitions that the stream reads
        self.released = threading.Condition(self.lock)  # notified when the stream has stopped some
        self.processed: dict[Partition, int] = {}  # the next offsets, not committed yet


class ZooKeeperMember:
    """A process in `group`, with one ZooKeeper session and one or more streams.

    `subscription` returns its registration for a number of streams.

    UnreachableError if ZooKeeper does not answer, UsageError for a wrong address or chroot.
    """

    def __init__(
        self,
        zookeeper: str,
        group: str,
        subscription: Callable[[int], MemberNode],
        timing: MemberTiming,
    ) -> None:
        self.name = ""  # HOST:UUID, new in every session
        self.group = group
        self.rebalances = 0  # how often the member has computed its assignment
        self._timing = timing
        self._subscription = subscription
        self._session = open_session(zookeeper, timeout=timing.session_seconds)
        self.directory = GroupDirectory(self._session, group)
        self.handovers: list[Handover] = []  # one per stream
        self._claimed: dict[RegisteredPartition, int] = {}  # the number of the stream for each
        self._lease: LeaseThread | None = None  # the proof that this process is a member
        self._joined_session_id = 0  # the session in which the member joined last
        self._wake = threading.Event()  # set when the member's thread must look at the group
        self._committing = threading.Lock()  # held during a commit, so that no offset goes back
        self._starting = threading.Lock()  # held during `start`
        self._closing = False
        self._tries = 0  # rebalances in a row that did not get every claim
        self._thread = threading.Thread(target=self._run, name="headworks-member", daemon=True)

    @property
    def started(self) -> bool:
        """Whether the member's thread runs; the number of streams is fixed then."""
        return self._thread.ident is not None

    @property
    def valid(self) -> bool:
        """Whether messages of the claimed partitions may be returned now."""
        lease = self._lease
        return lease is not None and lease.valid

    @property
    def closed(self) -> bool:
        """Whether the member has left the group."""
        return self._closing

    def start(self) -> None:
        """Join with one stream per handover; every stream may call this."""
        with self._starting:
            if self.started:
                return
            self._session.on_state(self._on_state)
            self._wake.set()
            self._thread.start()

    def commit(self) -> None:
        """Commit the processed messages of all streams; UnreachableError if that fails.

        Partitions that the member has lost are skipped: their new owner repeats the messages.
        """
        try:
            self._commit()
        except NotAMemberError:
            self._end_lease()
            self._wake.set()
        except Exception as error:
            raise self._commit_failed(repr(error)) from None

    def close(self) -> None:
        """Commit unless commits are explicit, and leave: the others rebalance at once."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        if self.started:
            self._thread.join(self._timing.session_seconds)
        if (
            self._timing.commit_seconds is not None
            and self._session.state is SessionState.CONNECTED
        ):
            try:
                self.commit()
            except UnreachableError as error:
                _log.warning("%s", error)
        if self._lease is not None:
            self._lease.end()
        self._session.close()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST and self._lease is not None:
            self._lease.end()
        self._wake.set()

    def _on_event(self, _event: object) -> None:
        self._wake.set()

    def _run(self) -> None:
        pause: float | None = None
        due = time.monotonic()
        while not self._closing:
            self._wake.wait(_TICK_SECONDS if pause is None else pause)
            if self._closing:
                return
            changed = self._wake.is_set() or pause is not None
            self._wake.clear()
            try:
                if changed:
                    pause = self._rebalance()
                if self._timing.commit_seconds is not None and time.monotonic() >= due:
                    due = time.monotonic() + self._timing.commit_seconds
                    self._commit()
            except NotAMemberError:
                self._end_lease()
                pause = _MIN_PAUSE_SECONDS
            except Exception as error:
                if not self._closing:
                    _log.warning("group %s is not settled yet: %r", self.group, error)
                pause = (
                    _MAX_PAUSE_SECONDS if isinstance(error, HeadworksError) else _MIN_PAUSE_SECONDS
                )

    def _rebalance(self) -> float | None:
        """Rebalance once; return the seconds until the next try, None if all is claimed."""
        if self._session.state is not SessionState.CONNECTED:
            return _MAX_PAUSE_SECONDS  # the session wakes the member when it returns
        if self._lease is None or self._lease.ended:
            self._join()
        assignment = self._compute_assignment()
        self._release(
            {claim for claim, stream in self._claimed.items() if assignment.get(claim) != stream}
        )
        missing = [claim for claim in assignment if claim not in self._claimed]
        claimed, others = self.directory.claim(self.name, missing, self._on_event)
        self._start_reading({claim: assignment[claim] for claim in claimed})
        self.rebalances += 1
        if not others:
            self._tries = 0
            return None
        self._tries += 1
        if self._tries == self._timing.warn_after_tries:
            claim, owner = next(iter(others.items()))
            _log.warning(
                "group %s: %d partitions are owned by others still after %d tries, the first is %s"
                " partition %d by %s",
                *(
                    self.group,
                    len(others),
                    self._tries,
                    claim.topic,
                    claim.broker_partition.partition,
                    owner,
                ),
            )
        pause = min(_MAX_PAUSE_SECONDS, _MIN_PAUSE_SECONDS * 2.0 ** min(self._tries, 8))
        return pause * random.uniform(0.5, 1.0)

    def _join(self) -> None:
        """Join under a new name, and drop what the earlier name held."""
        self._discard_all()
        if self._session.id == self._joined_session_id:
            self._session.client.restart()  # somebody removed our node; the claims go with this
        self.name = f"{socket.gethostname()}:{uuid.uuid4().hex}"
        self._joined_session_id = self._session.id
        name, node = self.name, self._subscription(len(self.handovers))
        joined = time.monotonic()
        self.directory.join(name, node)
        self._lease = LeaseThread(
            lambda: self.directory.renew(name, node),
            lambda: self._session.timeout,
            self._wake.set,
            joined=joined,
        )

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.end()

    def _compute_assignment(self) -> dict[RegisteredPartition, int]:
        view = self.directory.view(self._on_event)
        if self.name not in view.members:
            raise NotAMemberError(self.name)
        streams = {name: wanted(node, view.topics) for name, node in view.members.items()}
        topics = {topic for topic in streams[self.name] if streams[self.name][topic]}
        partitions, ids = self.directory.partitions(topics, view.brokers, self._on_event)
        assigned = assignment_of(self.name, partitions, streams)
        return {
            RegisteredPartition(topic, partition, ids[topic]): stream
            for (topic, partition), stream in assigned.items()
        }

    def _release(self, claims: set[RegisteredPartition]) -> None:
        """Stop the streams of partitions, commit, and delete the claims."""
        if not claims:
            return
        leaving = {claim: self._claimed[claim] for claim in claims}
        for stream, handover in enumerate(self.handovers):
            gone = {_partition_of(claim) for claim, owner in leaving.items() if owner == stream}
            with handover.lock:
                for partition in gone & handover.to_start.keys():
                    del handover.to_start[partition]
                handover.to_release |= gone & handover.reading
                handover.changed.set()
        self._wait_for_streams()
        if self._timing.commit_seconds is not None:
            self._commit()
        for handover in self.handovers:
            with handover.lock:
                for claim in claims:
                    handover.processed.pop(_partition_of(claim), None)
        self.directory.release(self.name, claims)
        for claim in claims:
            del self._claimed[claim]

    def _wait_for_streams(self) -> None:
        """Wait until every stream has stopped its partitions, for at most `release_seconds`."""
        deadline = time.monotonic() + self._timing.release_seconds
        for handover in self.handovers:
            with handover.lock:
                while handover.to_release and not self._session_ended():
                    handover.released.wait(_TICK_SECONDS)
                    if handover.to_release and time.monotonic() > deadline:
                        self._take_back(handover)
        if self._session_ended():
            raise NotAMemberError(self.name)

    def _take_back(self, handover: Handover) -> None:
        _log.error(
            "group %s: a consumer did not poll for %.0f s; %d partitions go to others, which repeat"
            " what it has at hand",
            *(self.group, self._timing.release_seconds, len(handover.to_release)),
        )
        handover.reading -= handover.to_release
        handover.to_release.clear()

    def _session_ended(self) -> bool:
        return self._closing or self._lease is None or self._lease.ended

    def _start_reading(self, claimed: Mapping[RegisteredPartition, int]) -> None:
        if not claimed:
            return
        positions = self.directory.offsets(claimed)
        self._claimed.update(claimed)
        for claim, stream in claimed.items():
            handover = self.handovers[stream]
            with handover.lock:
                handover.to_start[_partition_of(claim)] = positions.get(claim)
                handover.changed.set()

    def _discard_all(self) -> None:
        """Drop all partitions without a commit, because other members may own them."""
        self._claimed.clear()
        for handover in self.handovers:
            with handover.lock:
                handover.to_start.clear()
                handover.to_release.clear()
                handover.processed.clear()
                handover.reading.clear()
                handover.changed.set()

    def _commit(self) -> None:
        """Commit the processed messages; one commit at a time, so that no offset goes back."""
        with self._committing:
            held = {_partition_of(claim): claim for claim in self._claimed.copy()}
            offsets: dict[RegisteredPartition, int] = {}
            for handover in self.handovers:
                with handover.lock:
                    offsets |= {held[p]: at for p, at in handover.processed.items() if p in held}
            if not offsets:
                return
            self.directory.commit(self.name, offsets)
            for handover in self.handovers:
                with handover.lock:
                    for claim, at in offsets.items():
                        if handover.processed.get(_partition_of(claim)) == at:
                            del handover.processed[_partition_of(claim)]

    def _commit_failed(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"the positions of group {self.group} were not committed: {why}",
            fix="see that ZooKeeper answers; they are committed with the next ones",
        )


def _partition_of(claim: RegisteredPartition) -> Partition:
    return Partition(claim.topic, claim.broker_partition.partition)
