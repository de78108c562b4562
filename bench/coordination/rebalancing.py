"""The time that a group without a coordinator takes to settle, and its writes.

Members are the SDK's, each with its own session. The partitions exist in ZooKeeper only, and a
stream obeys at once, so the run measures the coordination alone.

Rules: the clock runs from the join (or the leave) until all partitions are assigned evenly. Nodes
are counted where they are written.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

from bench.frame import Bench
from consumer_sdk._zookeeper_group import MemberTiming, ZooKeeperMember
from consumer_sdk._zookeeper_group.member import Handover
from consumer_sdk._zookeeper_group.subscription import subscription
from headworks._cli.stack.embedded_zookeeper import EmbeddedZooKeeper
from headworks._zookeeper import BrokerNode, TopicNode, open_session, paths
from headworks.errors import UnreachableError

_MEMBERS = (2, 4, 8)
_PARTITIONS = (10, 100, 1000)
_LIMIT = 120.0
_WHO = "Headworks"


class _Stream:
    """A stream that reads nothing: it begins and lets go as soon as it is asked."""

    def __init__(self, member: ZooKeeperMember) -> None:
        self.handover = Handover()
        member.handovers.append(self.handover)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def owned(self) -> int:
        with self.handover.lock:
            return len(self.handover.reading) - len(self.handover.to_release)

    def close(self) -> None:
        self._ended.set()
        self.handover.changed.set()
        self._thread.join()

    def _run(self) -> None:
        handover = self.handover
        while not self._ended.is_set():
            handover.changed.wait()
            with handover.lock:
                handover.changed.clear()
                handover.reading -= handover.to_release
                handover.to_release.clear()
                handover.released.notify_all()
                handover.reading |= handover.to_start.keys()
                handover.to_start.clear()


class _Group:
    """Members of one group, each with a stream."""

    def __init__(self, zookeeper: str, topic: str, partitions: int) -> None:
        self._zookeeper, self._topic, self._partitions = zookeeper, topic, partitions
        self._members: list[tuple[ZooKeeperMember, _Stream]] = []
        self._left = 0

    def join(self) -> None:
        member = ZooKeeperMember(
            self._zookeeper,
            f"group-{self._topic}",
            lambda streams: subscription([self._topic], None, None, streams),
            MemberTiming(),
        )
        self._members.append((member, _Stream(member)))
        member.start()

    def leave(self) -> None:
        member, stream = self._members.pop(0)
        member.close()
        stream.close()
        self._left += member.directory.writes

    def settle(self) -> None:
        deadline = time.monotonic() + _LIMIT
        each, left = divmod(self._partitions, len(self._members))
        even = sorted([each + 1] * left + [each] * (len(self._members) - left))
        while sorted(stream.owned for _, stream in self._members) != even:
            if time.monotonic() > deadline:
                raise UnreachableError(f"the group did not settle within {_LIMIT:.0f} s")
            time.sleep(0.005)

    @property
    def writes(self) -> int:
        return self._left + sum(member.directory.writes for member, _ in self._members)

    def close(self) -> None:
        while self._members:
            self.leave()


def run(bench: Bench) -> None:
    """Join and leave, by members and partitions."""
    members = (2, 8) if bench.quick else _MEMBERS
    with _topics(bench, _PARTITIONS) as zookeeper:
        for number in bench.rounds(full=3):
            for partitions in _PARTITIONS:
                for count in members:
                    _measure(bench, zookeeper, partitions, count, f"{number}-{count}")
    bench.note(
        "a rebalance that releases everything and claims it again would write two nodes a"
        " partition; what ZooKeeper removes with a session is not counted"
    )
    for partitions in _PARTITIONS:
        bench.bar(
            f"a member joins 7 others, {partitions} partitions: settled",
            got=bench.median(f"a member joins 7 others, {partitions} partitions", _WHO),
            unit="s",
            at_most=5.0,
        )


def _measure(bench: Bench, zookeeper: str, partitions: int, count: int, name: str) -> None:
    topic = f"t{partitions}"
    group = _Group(zookeeper, topic, partitions)
    try:
        for _ in range(count - 1):
            group.join()
        group.settle()
        for what, change in (("joins", group.join), ("leaves", group.leave)):
            bench.say(f"{name}: a member {what}")
            before, began = group.writes, time.monotonic()
            change()
            group.settle()
            took = time.monotonic() - began
            case = f"a member {what} {count - 1} others, {partitions} partitions"
            bench.record(case, _WHO, took, "s")
            bench.record(f"{case}: nodes", _WHO, group.writes - before, "nodes written")
    finally:
        group.close()


@contextlib.contextmanager
def _topics(bench: Bench, partitions: Sequence[int]) -> Iterator[str]:
    """A ZooKeeper with a broker that is said to live, and topics of so many partitions."""
    with (
        EmbeddedZooKeeper(bench.folder / "zookeeper") as zookeeper,
        open_session(zookeeper.address) as session,
    ):
        for path in (paths.BROKERS, paths.TOPICS):
            session.client.ensure_path(path)
        node = BrokerNode("127.0.0.1", 9).dump()
        session.client.create(paths.broker(1), node, ephemeral=True)
        for count in partitions:
            session.client.create(paths.topic(f"t{count}"), TopicNode((1,) * count).dump())
        yield zookeeper.address
