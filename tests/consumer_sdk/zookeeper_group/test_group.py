"""Members of a group without a coordinator, over a real ZooKeeper: who reads and commits what."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from consumer_sdk import Consumer, DamagedBatchError, Partition
from consumer_sdk._zookeeper_group.assignment import BrokerPartition
from consumer_sdk._zookeeper_group.directory import (
    GroupDirectory,
    NotAMemberError,
    RegisteredPartition,
)
from consumer_sdk._zookeeper_group.member import MemberTiming, ZooKeeperMember
from consumer_sdk._zookeeper_group.subscription import subscription
from headworks._cli.group import group_app
from headworks._server import child_process
from headworks._zookeeper import ZooKeeperSession, open_session, paths
from headworks.errors import UnreachableError, UsageError
from headworks.groups import GroupKind, Groups, TopicPartition
from tests.consumer_sdk.zookeeper_group.cluster import (
    BROKER,
    declare,
    encoder,
    eventually,
    fill,
    register,
)
from tests.damage import batches, flip_bit, produce_batches, segment
from tests.ensemble import Ensemble, ensemble
from tests.waiting import until

pytestmark = pytest.mark.contract

PARTITIONS = 4
SESSION = 60  # seconds, as many as the server grants: a machine that stands still ends none
Dicts = Consumer[dict[str, Any]]


class Cluster:
    """What the tests share: a ZooKeeper, a broker that is registered there, a registry."""

    def __init__(
        self, zookeeper: Ensemble, session: ZooKeeperSession, broker: str, registry: str
    ) -> None:
        self.zookeeper, self.session = zookeeper, session
        self.broker, self.registry = broker, registry

    def topic(self, prefix: str = "d", partitions: int = PARTITIONS) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        declare(self.session, self.broker, name, partitions)
        return name

    def fill(self, topic: str, numbers: range, partitions: int = PARTITIONS) -> None:
        fill(self.broker, self.registry, topic, numbers, partitions)

    def consumer(self, group: str, **options: Any) -> Dicts:
        options["config"] = {"session.timeout.ms": SESSION * 1000} | options.get("config", {})
        return Consumer(
            group=group,
            zookeeper=self.zookeeper.address,
            membership="zookeeper",
            registry=self.registry,
            **options,
        )

    def owners(self, group: str, topic: str) -> dict[int, str]:
        with Groups(self.broker, self.zookeeper.address) as groups:
            found = groups.described([group], age_timeout=0)[0]
        return {p.partition: p.owner for p in found.positions if p.owner and p.topic == topic}

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        with Groups(self.broker, self.zookeeper.address) as groups:
            return dict(groups.described([group], age_timeout=0)[0].offsets)


@pytest.fixture(scope="module")
def cluster(
    broker: child_process.Service,
    registry: child_process.Service,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with (
        ensemble(tmp_path_factory.mktemp("zookeeper")) as running,
        open_session(running.address, timeout=SESSION) as session,
    ):
        register(session, broker.address)
        yield Cluster(running, session, broker.address, registry.url)


def numbers(consumer: Dicts, count: int) -> list[int]:
    """The next `count` numbers."""
    found = [message.event["number"] for message in itertools.islice(consumer, count)]
    assert len(found) == count
    return found


def settle(*consumers: Dicts) -> list[list[Partition]]:
    """Poll all until each partition has an owner and all have had some turns; who has what."""

    def settled() -> list[list[Partition]] | None:
        for consumer in consumers:
            assert consumer.poll(0.05) is None
        found = [consumer.assignment for consumer in consumers]
        return found if sum(map(len, found)) == PARTITIONS and all(found) else None

    found: list[list[Partition]] = eventually("a settled group", settled)
    return found


@pytest.fixture
def rotten(cluster: Cluster, broker_folder: Path) -> str:
    """A topic of one partition, with ten numbers in each of four batches; the third is damaged."""
    topic = cluster.topic(partitions=1)
    values = list(map(encoder(cluster.registry, topic), range(40)))
    produce_batches(cluster.broker, topic, values)
    path = segment(broker_folder, topic)
    flip_bit(path, batches(path)[2])
    return topic


def test_a_damaged_batch_stops_a_member_at_its_offset(cluster: Cluster, rotten: str) -> None:
    with cluster.consumer("stops-at-damage", topics=[rotten]) as consumer:
        assert numbers(consumer, 20) == list(range(20))
        for _ in range(2):  # the consumer stays in front of it
            with pytest.raises(DamagedBatchError, match=f"{rotten} partition 0 offset 20: "):
                until(lambda: consumer.poll(1))
    assert cluster.offsets("stops-at-damage") == {TopicPartition(rotten, 0): 20}


def test_a_member_may_skip_exactly_the_damaged_batch(cluster: Cluster, rotten: str) -> None:
    options: dict[str, Any] = {"topics": [rotten], "skip_damaged": True}
    with cluster.consumer("skips-damage", **options) as consumer:
        assert numbers(consumer, 30) == [*range(20), *range(30, 40)]
        assert consumer.skipped_damaged == 10
    assert cluster.offsets("skips-damage") == {TopicPartition(rotten, 0): 40}


def test_the_group_is_in_the_directories_of_the_design(cluster: Cluster) -> None:
    topic, group = cluster.topic(), "dirs"
    cluster.fill(topic, range(40))
    client = cluster.session.client
    with cluster.consumer(group, topics=[topic]) as consumer:
        assert sorted(numbers(consumer, 40)) == list(range(40))
        consumer.commit()
        (member,) = client.get_children(f"/consumers/{group}/ids")
        assert json.loads(client.get(f"/consumers/{group}/ids/{member}")[0]) == {topic: 1}
        owners = f"/consumers/{group}/owners/{topic}"
        assert sorted(client.get_children(owners)) == [f"{BROKER}-{n}" for n in range(PARTITIONS)]
        assert client.get(f"{owners}/{BROKER}-0")[0].decode() == member
        assert client.get(f"/consumers/{group}/offsets/{topic}/{BROKER}-0")[0] == b"10"
    assert client.get_children(f"/consumers/{group}/ids") == []
    assert client.get_children(owners) == []
    assert client.get(f"/consumers/{group}/offsets/{topic}/{BROKER}-3")[0] == b"10"


def test_members_share_hand_over_and_repeat_nothing(cluster: Cluster) -> None:
    topic, group = cluster.topic(), "share"
    told: list[tuple[str, list[int]]] = []
    cluster.fill(topic, range(40))
    with ExitStack() as stack:
        first = stack.enter_context(
            cluster.consumer(
                group,
                topics=[topic],
                on_assigned=lambda ps: told.append(("+", [p.partition for p in ps])),
                on_revoked=lambda ps: told.append(("-", [p.partition for p in ps])),
            )
        )
        got = numbers(first, 40)
        second = stack.enter_context(cluster.consumer(group, topics=[topic]))
        shares = settle(first, second)
        assert sorted(map(len, shares)) == [2, 2]
        # what stays is not even touched: only the other half was told to go
        kept = {p.partition for p in shares[0]}
        assert told == [("+", [0, 1, 2, 3]), ("-", sorted({0, 1, 2, 3} - kept))]
        assert set(cluster.offsets(group).values()) == {10}  # flushed before the release
        cluster.fill(topic, range(40, 80))
        got += numbers(first, 20) + numbers(second, 20)
        second.close()
        eventually("the way back", lambda: first.poll(0.05) or len(first.assignment) == PARTITIONS)
        cluster.fill(topic, range(80, 100))
        got += numbers(first, 20)
    assert sorted(got) == list(range(100))
    assert set(cluster.offsets(group).values()) == {25}


def test_a_group_begins_where_it_is_told(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.fill(topic, range(20))
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    with cluster.consumer("by-time", topics=[topic], start=hour_ago) as consumer:
        assert sorted(numbers(consumer, 20)) == list(range(20))
    with cluster.consumer("largest", topics=[topic], start="latest") as consumer:
        eventually("the claims", lambda: consumer.poll(0.05) or len(consumer.assignment) == 4)
        cluster.fill(topic, range(20, 24))
        found = numbers(consumer, 4)
        assert sorted(found) == [20, 21, 22, 23]
        last = found[-1] % 4
        other = (last + 1) % 4
        consumer.rewind({Partition(topic, other): 0})
        assert numbers(consumer, 6) == [other + 4 * n for n in range(6)]
    assert cluster.offsets("largest")[TopicPartition(topic, last)] == 6


def test_a_filter_includes_later_topics_and_excludes_denied_ones(cluster: Cluster) -> None:
    key = uuid.uuid4().hex[:6]
    early, refused = cluster.topic(f"{key}.a"), cluster.topic(f"{key}.secret")
    cluster.fill(early, range(4))
    cluster.fill(refused, range(100, 104))
    options = {"matching": f"{key}[.].*", "excluding": ".*secret.*"}
    with cluster.consumer("filter", **options) as consumer:
        assert sorted(numbers(consumer, 4)) == [0, 1, 2, 3]
        late = cluster.topic(f"{key}.b")
        cluster.fill(late, range(4, 8))
        assert sorted(numbers(consumer, 4)) == [4, 5, 6, 7]
        assert {p.topic for p in consumer.assignment} == {early, late}


def test_streams_of_one_member_share_as_members_do(cluster: Cluster) -> None:
    topic, group = cluster.topic(), "streams"
    cluster.fill(topic, range(80))
    with cluster.consumer(group, topics=[topic]) as consumer:
        streams = consumer.streams(3)
        got: Counter[int] = Counter()
        by_stream: list[int] = [0, 0, 0]
        lock = threading.Lock()

        def work(index: int) -> None:
            with streams[index] as stream:
                for message in stream:
                    with lock:
                        got[message.event["number"]] += 1
                        by_stream[index] += 1

        threads = [threading.Thread(target=work, args=[index]) for index in (1, 2)]
        for thread in threads:
            thread.start()

        def all_read() -> bool:
            message = consumer.poll(0.05)
            if message is not None:
                with lock:
                    got[message.event["number"]] += 1
                    by_stream[0] += 1
            return len(got) == 80

        eventually("all read", all_read)
        (member,) = set(cluster.owners(group, topic).values())
        node = cluster.session.client.get(paths.member(group, member))[0]
        assert json.loads(node) == {topic: 3}
        with pytest.raises(UsageError, match="before it polls"):
            consumer.streams(2)
    for thread in threads:
        thread.join(60)
    assert set(got.values()) == {1}
    assert by_stream == [40, 20, 20]  # the remainder goes to the first


def test_streams_may_ask_for_the_start_at_the_same_time(cluster: Cluster) -> None:
    """One member, one thread: the second waits until the first has started it."""
    node = subscription([cluster.topic()], None, None)
    member = ZooKeeperMember(cluster.zookeeper.address, "twice", lambda _: node, MemberTiming())
    entered, go_on = threading.Event(), threading.Event()
    told: list[object] = []

    def slowly(listener: object) -> None:
        told.append(listener)
        entered.set()
        assert go_on.wait(60)

    member._session.on_state = slowly  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(member.start)
        assert entered.wait(60)
        second = pool.submit(member.start)
        wait([second], 0.3)  # time to do it wrong
        go_on.set()
        assert first.result(60) is second.result(60) is None
    assert len(told) == 1
    assert member.started
    member.close()


def test_a_session_that_ends_is_left_behind(cluster: Cluster) -> None:
    """The member joins again under a new name, and writes nothing under the old one."""
    topic, group = cluster.topic(), "expiry"
    cluster.fill(topic, range(20))
    with cluster.consumer(group, topics=[topic], commit_every=None) as consumer:
        numbers(consumer, 20)
        before = set(cluster.owners(group, topic).values())
        # What an operator's mistake does is what expiry does: the member's node is gone.
        cluster.session.client.delete(paths.member(group, *before))

        def renewed() -> bool:
            consumer.poll(0.05)
            after = cluster.owners(group, topic)
            return len(after) == PARTITIONS and set(after.values()).isdisjoint(before)

        eventually("a new name", renewed)
        assert cluster.offsets(group) == {}
    assert cluster.owners(group, topic) == {}


def test_who_does_not_poll_loses_its_partitions_and_writes_nothing_there(cluster: Cluster) -> None:
    topic, group = cluster.topic(), "stuck"
    cluster.fill(topic, range(40))
    impatient = {"session.timeout.ms": 12_000, "max.poll.interval.ms": 12_000}
    with (
        cluster.consumer(group, topics=[topic], config=impatient) as stuck,
        cluster.consumer(group, topics=[topic], config=impatient) as heir,
    ):
        numbers(stuck, 40)
        eventually("the commit", lambda: _commits(stuck))
        eventually("the heir's half", lambda: heir.poll(0.05) or len(heir.assignment) == 2)
        cluster.fill(topic, range(40, 80))
        taken = sorted(p.partition for p in heir.assignment)
        assert sorted(numbers(heir, 20)) == [n for n in range(40, 80) if n % PARTITIONS in taken]
        eventually("the commit", lambda: _commits(heir))
        assert sorted(numbers(stuck, 20)) == [
            n for n in range(40, 80) if n % PARTITIONS not in taken
        ]
    assert set(cluster.offsets(group).values()) == {20}


def test_the_group_tools_see_and_move_it(cluster: Cluster) -> None:
    topic, group = cluster.topic(), "tools"
    cluster.fill(topic, range(40))
    where = ["--bootstrap", cluster.broker, "--zookeeper", cluster.zookeeper.address]
    with cluster.consumer(group, topics=[topic]) as consumer:
        numbers(consumer, 40)
        consumer.commit()
        refused = CliRunner().invoke(group_app, ["reset", group, "--to", "earliest", *where])
        assert "it cannot change while it has members" in str(refused.exception)
        shown = CliRunner().invoke(group_app, ["describe", group, "--format", "json", *where])
        told = json.loads(shown.stdout)
        assert (told["kind"], told["state"]) == ("decentralized", "stable")
        assert (told["lag"], told["unknown"]) == (0, 0)
        assert {p["owner"] for p in told["positions"]} == {told["members"][0]["member"]}
    reset = ["reset", group, "--shift", "-4", "--format", "json", *where]
    moved = json.loads(CliRunner().invoke(group_app, reset).stdout)
    assert [m["after"] for m in moved[0]["moves"]] == [6] * PARTITIONS
    with Groups(cluster.broker, cluster.zookeeper.address) as groups:
        found = groups.described([group])[0]
        assert found.lag == 16
        assert found.behind_ms is not None
        assert found.behind_ms < 600_000
        groups.move("made", {TopicPartition(topic, 0): 3}, kind=GroupKind.DECENTRALIZED)
    with cluster.consumer(group, topics=[topic]) as consumer:
        assert sorted(numbers(consumer, 16)) == list(range(24, 40))
    deleted = CliRunner().invoke(group_app, ["delete", group, "--yes", *where])
    assert deleted.exception is None
    with Groups(cluster.broker, cluster.zookeeper.address) as groups:
        names = {listed.name for listed in groups.listed()}
    assert "made" in names
    assert group not in names


def test_wrong_input_is_named(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        cluster.consumer("g", matching="orders(")
    here = cluster.zookeeper.address
    for zookeeper, said in (
        (f"{here}/nowhere", "no node /nowhere"),
        ("nonsense:port", "not HOST:PORT"),
    ):
        with pytest.raises(UsageError, match=said):
            Consumer(group="g", topics=["t"], zookeeper=zookeeper, membership="zookeeper")
    with pytest.raises(UsageError, match="membership='zookeeper'"):
        Consumer(group="g", topics=["t"], bootstrap=cluster.broker).streams(2)


def test_zookeeper_may_restart_under_a_group(cluster: Cluster) -> None:
    """It comes back within the session: the members are who they were, and go on."""
    attempts = itertools.count()

    def came_back_in_time() -> bool:
        """If it did not, another has joined, and may read again."""
        topic, group = cluster.topic(), f"restart-{next(attempts)}"
        cluster.fill(topic, range(20))
        with cluster.consumer(group, topics=[topic]) as consumer:
            numbers(consumer, 20)
            before = cluster.owners(group, topic)
            (server,) = cluster.zookeeper.servers
            server.kill()
            server.start()
            cluster.fill(topic, range(20, 40))
            got = numbers(consumer, 20)
            eventually("the commit", lambda: _commits(consumer))
            if eventually("the claims", lambda: cluster.owners(group, topic)) != before:
                return False
            assert sorted(got) == list(range(20, 40))
            assert set(cluster.offsets(group).values()) == {10}
            return True

    eventually("a restart within the session", came_back_in_time, 180)


def _commits(consumer: Dicts) -> bool:
    try:
        consumer.commit()
    except UnreachableError:
        return False
    return True


def test_who_is_no_member_any_more_writes_nothing(cluster: Cluster) -> None:
    """The fence: ZooKeeper itself refuses, whatever the client still believes."""
    topic, group = cluster.topic(), "fence"
    place = RegisteredPartition(topic, BrokerPartition(BROKER, 0))
    with open_session(cluster.zookeeper.address, timeout=SESSION) as session:
        directory = GroupDirectory(session, group)
        node = subscription([topic], None, None)
        directory.join("old:1", node)
        assert directory.claim("old:1", [place], print) == ([place], {})
        directory.commit("old:1", {place: 5})
        session.client.delete(paths.member(group, "old:1"))
        directory.join("heir:2", node)
        directory.commit("heir:2", {place: 9})
        for write in (
            lambda: directory.commit("old:1", {place: 6}),
            lambda: directory.release("old:1", [place]),
            lambda: directory.claim("old:1", [place], print),
        ):
            with pytest.raises(NotAMemberError):
                write()
        assert directory.offsets([place]) == {place: 9}
        assert directory.claim("heir:2", [place], print) == ([], {place: "old:1"})


def test_an_offset_is_of_one_topic_and_not_of_the_next_with_its_name(cluster: Cluster) -> None:
    topic, group = cluster.topic(), "recreated"
    broker_partition = BrokerPartition(BROKER, 0)
    old, new, unknown = (
        RegisteredPartition(topic, broker_partition, topic_id)
        for topic_id in (uuid4(), uuid4(), None)
    )
    with open_session(cluster.zookeeper.address, timeout=SESSION) as session:
        directory = GroupDirectory(session, group)
        directory.join("member:1", subscription([topic], None, None))
        directory.commit("member:1", {old: 5})
        assert directory.offsets([old]) == {old: 5}
        assert directory.offsets([new]) == {}
        assert directory.offsets([unknown]) == {unknown: 5}
        directory.commit("member:1", {unknown: 7})  # as releases without topic ids wrote it
        assert directory.offsets([new]) == {new: 7}
        path = paths.group_topic_offsets(group, topic)
        session.client.delete(path, recursive=True)  # as a broker does with a deleted topic
        directory.commit("member:1", {new: 9})
        assert directory.offsets([new]) == {new: 9}
