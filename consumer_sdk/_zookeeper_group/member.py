"""A member of a group without a coordinator: NetDB'11, Algorithm 1, with what time taught since.

Rules:

- One thread decides: it reads the group (with watches on members, brokers and topics), computes
  this member's part, takes back what is no longer in it, claims what is new, and hands it out.
  What stays is read on meanwhile.
- A partition is given up in this order: its stream stops delivering it, what was processed is
  committed, and only then the claim is deleted.
- A claim that somebody holds still is tried again after a pause that doubles; after `tries` in a
  row it is said who holds what, and it is tried on: no group comes to a stand for good.
- When the session has ended everything is dropped uncommitted, and the process joins anew under a
  new name.
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
from consumer_sdk._zookeeper_group.assignment import share_of
from consumer_sdk._zookeeper_group.directory import Directory, NotAMemberError, Place
from consumer_sdk._zookeeper_group.subscription import wanted
from headworks._zookeeper import MemberNode, SessionState, open_session
from headworks._zookeeper.lease import LeaseThread
from headworks.errors import HeadworksError, UnreachableError

__all__ = ["Handover", "Member", "Timing"]

_log = logging.getLogger("headworks.consumer")
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_TICK = 0.5


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: until a silent member is given up, between commits (None: by hand only), and how
    long a stream may take to let go of a partition; `tries`: claims before it is complained of.
    """

    session: float = 6.0
    commit_every: float | None = 5.0
    letting_go: float = 300.0
    tries: int = 4


class Handover:
    """Between the member's thread and a stream: what to begin with, what to let go of.

    `lock` guards all of it; `changed` is set when the stream has something to do.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Event()
        self.begin: dict[Partition, int | None] = {}  # with the group's position
        self.let_go: set[Partition] = set()
        self.reading: set[Partition] = set()
        self.idle = threading.Condition(self.lock)
        self.processed: dict[Partition, int] = {}  # where to go on, not committed yet


class Member:
    """A process in `group`, with one session and one name in it, and one or more streams.

    `wants` is its registration, by the number of its streams.

    UnreachableError if ZooKeeper does not answer, UsageError for a wrong address or chroot.
    """

    def __init__(
        self, zookeeper: str, group: str, wants: Callable[[int], MemberNode], timing: Timing
    ) -> None:
        self.name = ""
        self.group = group
        self.rebalances = 0
        self._timing = timing
        self._wants = wants
        self._session = open_session(zookeeper, timeout=timing.session)
        self.directory = Directory(self._session, group)
        self.handovers: list[Handover] = []
        self._held: dict[Place, int] = {}
        self._lease: LeaseThread | None = None
        self._joined_in = 0
        self._dirty = threading.Event()
        self._committing = threading.Lock()
        self._starting = threading.Lock()
        self._closing = False
        self._tried = 0
        self._thread = threading.Thread(target=self._run, name="headworks-member", daemon=True)

    @property
    def started(self) -> bool:
        """Whether it has joined; the number of streams is settled then."""
        return self._thread.ident is not None

    @property
    def valid(self) -> bool:
        """Whether what was handed out may be delivered now."""
        lease = self._lease
        return lease is not None and lease.valid

    @property
    def closed(self) -> bool:
        """Whether it has left."""
        return self._closing

    def start(self) -> None:
        """Join, with as many streams as there are handovers; its streams may all ask for it."""
        with self._starting:
            if self.started:
                return
            self._session.on_state(self._on_state)
            self._dirty.set()
            self._thread.start()

    def commit(self) -> None:
        """Write what the streams have processed; UnreachableError if that cannot be done now.

        What a member has lost meanwhile is left alone: its heir repeats it.
        """
        try:
            self._commit()
        except NotAMemberError:
            self._end_lease()
            self._dirty.set()
        except Exception as error:
            raise self._uncommitted(repr(error)) from None

    def close(self) -> None:
        """Commit, unless commits are by hand, and leave: the others rebalance at once."""
        if self._closing:
            return
        self._closing = True
        self._dirty.set()
        if self.started:
            self._thread.join(self._timing.session)
        if self._timing.commit_every is not None and self._session.state is SessionState.CONNECTED:
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
        self._dirty.set()

    def _on_event(self, _event: object) -> None:
        self._dirty.set()

    def _run(self) -> None:
        pause: float | None = None
        due = time.monotonic()
        while not self._closing:
            self._dirty.wait(_TICK if pause is None else pause)
            if self._closing:
                return
            changed = self._dirty.is_set() or pause is not None
            self._dirty.clear()
            try:
                if changed:
                    pause = self._settle()
                if self._timing.commit_every is not None and time.monotonic() >= due:
                    due = time.monotonic() + self._timing.commit_every
                    self._commit()
            except NotAMemberError:
                self._end_lease()
                pause = _FIRST_PAUSE
            except Exception as error:
                if not self._closing:
                    _log.warning("group %s is not settled yet: %r", self.group, error)
                pause = _LONGEST_PAUSE if isinstance(error, HeadworksError) else _FIRST_PAUSE

    def _settle(self) -> float | None:
        """Rebalance once; the pause until it has to be tried again, None if all is claimed."""
        if self._session.state is not SessionState.CONNECTED:
            return _LONGEST_PAUSE  # its return wakes us before
        if self._lease is None or self._lease.ended:
            self._join()
        share = self._share()
        self._give_up({place for place, stream in self._held.items() if share.get(place) != stream})
        missing = [place for place in share if place not in self._held]
        claimed, others = self.directory.claim(self.name, missing, self._on_event)
        self._hand_out({place: share[place] for place in claimed})
        self.rebalances += 1
        if not others:
            self._tried = 0
            return None
        self._tried += 1
        if self._tried == self._timing.tries:
            place, owner = next(iter(others.items()))
            _log.warning(
                "group %s: %d partitions are owned by others still after %d tries, the first is %s"
                " partition %d by %s",
                *(self.group, len(others), self._tried, place.topic, place.at.partition, owner),
            )
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._tried, 8))
        return pause * random.uniform(0.5, 1.0)

    def _join(self) -> None:
        """Join under a name that nobody ever had; what an earlier one held is given up."""
        self._drop_all()
        if self._session.id == self._joined_in:
            self._session.client.restart()  # somebody removed our node; the claims go with this
        self.name = f"{socket.gethostname()}:{uuid.uuid4().hex}"
        self._joined_in = self._session.id
        name, node = self.name, self._wants(len(self.handovers))
        joined = time.monotonic()
        self.directory.join(name, node)
        self._lease = LeaseThread(
            lambda: self.directory.renew(name, node),
            lambda: self._session.timeout,
            self._dirty.set,
            joined=joined,
        )

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.end()

    def _share(self) -> dict[Place, int]:
        view = self.directory.view(self._on_event)
        if self.name not in view.members:
            raise NotAMemberError(self.name)
        streams = {name: wanted(node, view.topics) for name, node in view.members.items()}
        topics = {topic for topic in streams[self.name] if streams[self.name][topic]}
        partitions = self.directory.partitions(topics, view.brokers, self._on_event)
        dealt = share_of(self.name, partitions, streams)
        return {Place(*key): stream for key, stream in dealt.items()}

    def _give_up(self, places: set[Place]) -> None:
        """Have streams stop, commit what they processed, and delete the claims."""
        if not places:
            return
        leaving = {place: self._held[place] for place in places}
        for stream, handover in enumerate(self.handovers):
            gone = {_bare(place) for place, owner in leaving.items() if owner == stream}
            with handover.lock:
                for partition in gone & handover.begin.keys():
                    del handover.begin[partition]
                handover.let_go |= gone & handover.reading
                handover.changed.set()
        self._wait_for_streams()
        if self._timing.commit_every is not None:
            self._commit()
        for handover in self.handovers:
            with handover.lock:
                for place in places:
                    handover.processed.pop(_bare(place), None)
        self.directory.release(self.name, places)
        for place in places:
            del self._held[place]

    def _wait_for_streams(self) -> None:
        """Until no stream reads what it was asked to let go of, or it took too long over it."""
        deadline = time.monotonic() + self._timing.letting_go
        for handover in self.handovers:
            with handover.lock:
                while handover.let_go and not self._ended():
                    handover.idle.wait(_TICK)
                    if handover.let_go and time.monotonic() > deadline:
                        self._force(handover)
        if self._ended():
            raise NotAMemberError(self.name)

    def _force(self, handover: Handover) -> None:
        _log.error(
            "group %s: a consumer did not poll for %.0f s; %d partitions go to others, which repeat"
            " what it has at hand",
            *(self.group, self._timing.letting_go, len(handover.let_go)),
        )
        handover.reading -= handover.let_go
        handover.let_go.clear()

    def _ended(self) -> bool:
        return self._closing or self._lease is None or self._lease.ended

    def _hand_out(self, claimed: Mapping[Place, int]) -> None:
        if not claimed:
            return
        positions = self.directory.offsets(claimed)
        self._held.update(claimed)
        for place, stream in claimed.items():
            handover = self.handovers[stream]
            with handover.lock:
                handover.begin[_bare(place)] = positions.get(place)
                handover.changed.set()

    def _drop_all(self) -> None:
        """Everything that was held may be somebody else's: forget it, uncommitted."""
        self._held.clear()
        for handover in self.handovers:
            with handover.lock:
                handover.begin.clear()
                handover.let_go.clear()
                handover.processed.clear()
                handover.reading.clear()
                handover.changed.set()

    def _commit(self) -> None:
        """Write what was processed; one at a time, so that no position ever goes back."""
        with self._committing:
            held = {_bare(place): place for place in self._held.copy()}
            offsets: dict[Place, int] = {}
            for handover in self.handovers:
                with handover.lock:
                    offsets |= {held[p]: at for p, at in handover.processed.items() if p in held}
            if not offsets:
                return
            self.directory.commit(self.name, offsets)
            for handover in self.handovers:
                with handover.lock:
                    for place, at in offsets.items():
                        if handover.processed.get(_bare(place)) == at:
                            del handover.processed[_bare(place)]

    def _uncommitted(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"the positions of group {self.group} were not committed: {why}",
            fix="see that ZooKeeper answers; they are committed with the next ones",
        )


def _bare(place: Place) -> Partition:
    return Partition(place.topic, place.at.partition)
