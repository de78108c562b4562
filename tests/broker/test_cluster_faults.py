"""Brokers that lose ZooKeeper, or time: they stop answering before another one can be admitted."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._kafka.error_codes import ErrorCode
from headworks._zookeeper import ZooKeeperSession, live_brokers, paths
from headworks._zookeeper.session import kazoo
from tests.broker.clients import DEADLINE, eventually
from tests.broker.cluster import Cluster, ClusterBroker, cluster

pytestmark = pytest.mark.e2e

WAIT = DEADLINE
SHORT = 2.0  # seconds that a broker is sure of itself without ZooKeeper, of a session of 6
NOT_MINE = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and an ensemble of three."""
    with cluster(tmp_path_factory.mktemp("faults"), 2, 3, session=6.0) as running:
        yield running


@pytest.fixture
def topic(two: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic whose partition 0 is at broker 1 and whose partition 1 is at broker 2.

    However the test ends, the next one finds both brokers reachable.
    """
    name = str(request.node.name).partition("[")[0]
    admin = AdminClient({"bootstrap.servers": two.bootstrap, "log_level": 0})
    eventually(lambda: all(broker.peers() == [1, 2] for broker in two.brokers.values()))
    eventually(lambda: _created(admin, NewTopic(name, 2, replica_assignment=[[1], [2]])))
    for broker in two.brokers.values():  # one tells another after it answers
        eventually(lambda b=broker: b.leaders(name) == {0: 1, 1: 2} and serves(b, name))  # type: ignore[misc]
    yield name
    for broker in two.brokers.values():
        if broker.alive:
            broker.resume()
        broker.mend()


def group_of(broker: ClusterBroker) -> str:
    return next(g for g in map(str, range(1000)) if broker.coordinator(g) == broker.number)


def serves(broker: ClusterBroker, topic: str) -> bool:
    return broker.produce(topic, broker.number - 1) == ErrorCode.NONE


class Fencing:
    """Watches whether a broker answers as owner while ZooKeeper does not know it."""

    def __init__(self, two: Cluster, broker: ClusterBroker, topic: str, group: str) -> None:
        self.answers = 0
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._two, self._broker, self._topic, self._group = two, broker, topic, group
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Fencing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(Exception), self._two.session() as session:  # it may be lost, as any
                while not self._stop.is_set():
                    self._ask(session)

    def _ask(self, session: ZooKeeperSession) -> None:
        """Gone before the questions and after their answers: the answers fell in between."""
        broker = self._broker
        if broker.number in live_brokers(session):
            return
        answers = {
            "produce": broker.produce(self._topic, broker.number - 1),
            "fetch": broker.fetch(self._topic, broker.number - 1),
            "list offsets": broker.owns(self._topic, broker.number - 1),
        }
        member = broker.heartbeat(self._group)
        if broker.number in live_brokers(session):
            return
        self.answers += 1
        self.wrong += [f"{what}: {code}" for what, code in answers.items() if not code]
        if member != ErrorCode.NOT_COORDINATOR:
            self.wrong.append(f"heartbeat: {member}")


def test_who_is_cut_off_stops_before_its_session_ends(two: Cluster, topic: str) -> None:
    broker, other = two.brokers[1], two.brokers[2]
    group = group_of(broker)
    with Fencing(two, broker, topic, group) as fencing:
        broker.cut()
        eventually(lambda: broker.produce(topic, 0) == NOT_MINE)
        eventually(lambda: broker.leaders(topic) == {0: -1, 1: 2})  # it looks several times a beat
        eventually(lambda: broker.coordinator(group) == -1)
        eventually(lambda: fencing.answers > 20)
    eventually(lambda: other.leaders(topic) == {0: -1, 1: 2})
    eventually(lambda: other.coordinator(group) == 2)
    eventually(lambda: other.heartbeat(group) == ErrorCode.UNKNOWN_MEMBER_ID)
    eventually(lambda: serves(other, topic))
    broker.mend()
    eventually(lambda: serves(broker, topic))
    eventually(lambda: other.leaders(topic) == {0: 1, 1: 2})
    eventually(lambda: other.coordinator(group) == 1)
    assert fencing.wrong == []


def test_who_wakes_up_late_answers_for_nothing_until_it_is_back(two: Cluster, topic: str) -> None:
    broker = two.brokers[2]
    group = group_of(broker)
    broker.cut()  # or it would be back too quickly to be seen
    broker.pause()
    eventually(lambda: two.living() == [1])
    broker.resume()
    assert broker.produce(topic, 1) == NOT_MINE
    with Fencing(two, broker, topic, group) as fencing:
        eventually(lambda: fencing.answers > 5)
    broker.mend()
    eventually(lambda: serves(broker, topic))
    assert fencing.wrong == []
    eventually(lambda: two.living() == [1, 2])


def test_a_short_pause_of_zookeeper_is_not_noticed(two: Cluster, topic: str) -> None:
    def is_unnoticed() -> bool:
        began = time.monotonic()
        for server in two.zookeeper.servers:
            server.pause()
        served = serves(two.brokers[1], topic)
        for server in two.zookeeper.servers:
            server.resume()
        assert served or time.monotonic() - began > SHORT
        for broker in two.brokers.values():
            eventually(lambda b=broker: serves(b, topic))  # type: ignore[misc]
        return served

    eventually(is_unnoticed)


def test_connections_that_are_lost_while_it_starts_do_not_keep_a_broker_away(
    two: Cluster, topic: str
) -> None:
    broker = two.brokers[2]
    broker.stop()
    broker.launch()
    losses = 0

    def lost_three_times() -> bool:
        nonlocal losses
        assert broker.alive, broker.words()[-2000:]
        losses += bool(sum(cable.drop() for cable in broker.cables))
        time.sleep(0.1)  # a few questions pass in between
        return losses == 3

    eventually(lost_three_times)
    broker.wait()
    eventually(lambda: serves(broker, topic))


def _connects(address: str) -> bool:
    host, port = address.split(":")
    with suppress(ConnectionRefusedError), socket.create_connection((host, int(port))):
        return True
    return False


def _is_bound(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        try:
            probe.bind((host, int(port)))
        except OSError:
            return True
    return False


def test_a_connection_succeeds_only_after_the_broker_is_registered(two: Cluster) -> None:
    broker = two.brokers[2]
    broker.kill()
    eventually(lambda: two.living() == [1])
    broker.cut()
    broker.launch()
    eventually(lambda: _is_bound(broker.address))
    assert not _connects(broker.address)
    broker.mend()
    while not _connects(broker.address):
        assert broker.alive
        time.sleep(0.01)
    assert 2 in two.living()
    broker.wait()


def test_a_lost_connection_alone_ends_nothing(two: Cluster, topic: str) -> None:
    broker = two.brokers[1]

    def told() -> list[int]:
        return [broker.words().count(what) for what in ("is registered at", "cannot be sure")]

    def ends_nothing() -> bool:
        before, longest, served = told(), 0.0, list[bool]()
        for _ in range(5):
            began = time.monotonic()
            for cable in broker.cables:
                cable.drop()
            served.append(serves(broker, topic))
            with (
                suppress(kazoo("exceptions").NoNodeError),
                two.session() as session,
            ):  # it goes on proving itself
                version = session.client.get(paths.broker(1))[1].version
                eventually(lambda v=version: session.client.get(paths.broker(1))[1].version > v)  # type: ignore[misc]
            longest = max(longest, time.monotonic() - began)
        is_unharmed = all(served) and told() == before
        assert is_unharmed or longest > SHORT
        eventually(lambda: serves(broker, topic))
        return is_unharmed

    eventually(ends_nothing, 3 * DEADLINE)


def test_a_minority_of_the_ensemble_is_not_missed(two: Cluster, topic: str) -> None:
    leader = two.zookeeper.leader()
    leader.kill()
    eventually(lambda: any(s.mode() == "leader" for s in two.zookeeper.servers if s is not leader))
    eventually(lambda: all(serves(broker, topic) for broker in two.brokers.values()))
    admin = AdminClient({"bootstrap.servers": two.bootstrap, "log_level": 0})
    eventually(lambda: _created(admin, NewTopic(f"{topic}-while", 2)))
    leader.start()
    eventually(lambda: two.living() == [1, 2])


def _created(admin: AdminClient, topic: NewTopic) -> bool:
    try:
        admin.create_topics([topic])[topic.topic].result(WAIT)
    except Exception as error:
        return "ALREADY_EXISTS" in str(error)
    return True


def test_a_node_that_was_removed_is_written_again(two: Cluster, topic: str) -> None:
    with two.session() as session:
        session.client.delete(paths.broker(1))
        eventually(lambda: 1 in live_brokers(session))
    eventually(lambda: serves(two.brokers[1], topic))


def test_without_a_majority_everybody_waits_and_goes_on(two: Cluster, topic: str) -> None:
    """The last of this module: the ensemble is stopped as a whole."""
    for server in two.zookeeper.servers:
        server.kill()
    for broker in two.brokers.values():
        eventually(
            lambda b=broker: b.produce(topic, b.number - 1) == NOT_MINE  # type: ignore[misc]
        )
    two.zookeeper.start()
    for broker in two.brokers.values():
        eventually(lambda b=broker: serves(b, topic))  # type: ignore[misc]
    eventually(lambda: two.living() == [1, 2])


def test_a_copy_of_a_folder_is_refused_while_the_original_lives(
    two: Cluster, tmp_path: Path
) -> None:
    import shutil

    from tests.broker.test_cluster import refused

    original = two.brokers[1]
    original.pause()  # or files come and go while they are copied
    shutil.copytree(original.folder / "broker", tmp_path / "broker")
    original.resume()
    eventually(lambda: two.living() == [1, 2])
    assert "with a copy of this data folder" in refused(two, tmp_path, 1)
    assert original.alive


def test_a_broker_refuses_a_zookeeper_that_lost_its_data(two: Cluster) -> None:
    """Truly the last: nothing of the cluster is left in ZooKeeper afterwards."""
    with two.session() as session:
        session.client.delete(paths.CLUSTER_ID)
        session.client.delete(paths.broker(1))
    broker = two.brokers[1]
    eventually(lambda: not broker.alive)
    assert "has lost cluster" in broker.words()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert two.brokers[2].alive, "it has lost nothing yet that it would see"
        time.sleep(0.1)
