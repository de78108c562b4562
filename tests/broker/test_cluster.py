"""Brokers that are peers: what every one of them knows, does and refuses, with real clients."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from typer.testing import CliRunner

from headworks._cli.group import group_app
from headworks._cli.topic import topic_app
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import TRANSACTION_APIS, ApiKey
from headworks._server import child_process
from headworks._zookeeper import TopicNode, paths
from producer_sdk import DeliveryError, Producer
from tests.broker.clients import CONSUMERS, DEADLINE, PRODUCERS, Message, eventually
from tests.broker.cluster import Cluster, ClusterBroker, cluster
from tests.broker.test_group_configs import (
    HEARTBEAT,
    SESSION,
    SET,
    SOURCE_GROUP,
    alter,
    described,
    interval,
)
from tests.broker.test_topic_ids import delete, metadata
from tests.broker.wire import Wire, kind
from tests.headworks.codec.generated_packages import build

# kafka-python asks for its own schemas with a call that Python 3.11 deprecates
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
_numbers = itertools.count()
WAIT = DEADLINE
SESSION_SECONDS = 12.0  # a broker that stands still for half of it answers all the same
ALL = {0, 1, 2}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), session=SESSION_SECONDS) as running:
        yield running


@pytest.fixture(autouse=True)
def whole_again(three: Cluster) -> Iterator[None]:
    """A test that fails while it has killed a broker is not to fail those that come after it."""
    yield
    for broker in three.brokers.values():
        if not broker.alive:
            broker.start()


_admins: dict[str, AdminClient] = {}


def admin(broker: ClusterBroker) -> AdminClient:
    """A client for a broker; kept, as its answers come only while it is there."""
    if broker.address not in _admins:
        options = {"bootstrap.servers": broker.address, "log_level": "0"}
        _admins[broker.address] = AdminClient(dict(options))
    return _admins[broker.address]


def create(three: Cluster, partitions: int = 6, *, name: str = "", **options: Any) -> str:
    name = name or f"topic-{next(_numbers)}"
    new = NewTopic(name, partitions, **options)
    admin(three.brokers[2]).create_topics([new])[name].result(WAIT)
    for broker in three.brokers.values():
        eventually(lambda b=broker: len(b.leaders(name)) == partitions)  # type: ignore[misc]
    return name


def is_free(broker: ClusterBroker, name: str) -> bool:
    """Create a topic whose name may still be that of one that is being deleted."""
    failure = admin(broker).create_topics([NewTopic(name, 1)])[name].exception(WAIT)
    assert failure is None or "is being deleted" in str(failure)
    return failure is None


def test_partitions_are_spread_and_every_broker_tells_all_of_them(three: Cluster) -> None:
    name = create(three)
    for broker in three.brokers.values():
        assert sorted(broker.leaders(name).values()) == [1, 1, 2, 2, 3, 3]
    seen = admin(three.brokers[3]).describe_cluster().result(WAIT)
    assert [node.id for node in seen.nodes] == [1, 2, 3]
    assert {node.port for node in seen.nodes} == {
        int(broker.address.rpartition(":")[2]) for broker in three.brokers.values()
    }


def test_only_the_owner_answers(three: Cluster) -> None:
    name = create(three)
    owner_of = three.brokers[1].leaders(name)
    for partition, owner in owner_of.items():
        for number, broker in three.brokers.items():
            answers = broker.produce, broker.fetch, broker.owns
            if number == owner:
                for answer in answers:
                    eventually(lambda a=answer, p=partition: a(name, p) == ErrorCode.NONE)  # type: ignore[misc]
            else:
                assert {answer(name, partition) for answer in answers} == {
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                }
    assert three.brokers[1].produce(name, 6) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_clients_reach_a_partition_by_any_broker(three: Cluster, client: str) -> None:
    name = create(three, 1)
    owner = three.brokers[1].leaders(name)[0]
    others = [broker for number, broker in three.brokers.items() if number != owner]
    sent = [Message(b"k", b"%d" % n) for n in range(20)]
    PRODUCERS[client](others[0].address, name, sent, "gzip")
    assert CONSUMERS[client](others[1].address, name, 20) == sent


def test_a_change_by_one_broker_is_everybody_s(three: Cluster) -> None:
    name = create(three, 2)
    one, two = admin(three.brokers[1]), admin(three.brokers[3])
    one.create_partitions([NewPartitions(name, 5)])[name].result(WAIT)
    for broker in three.brokers.values():
        eventually(lambda b=broker: len(b.leaders(name)) == 5)  # type: ignore[misc]
    partitions = three.brokers[1].leaders(name)
    assert sorted(list(partitions.values()).count(n) for n in (1, 2, 3)) == [1, 2, 2]
    entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    two.incremental_alter_configs([resource])[resource].result(WAIT)

    def retention(client: AdminClient) -> str:
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)
        return str(client.describe_configs([asked])[asked].result(WAIT)["retention.ms"].value)

    for broker in three.brokers.values():
        eventually(lambda b=broker: retention(admin(b)) == "123456")  # type: ignore[misc]
    two.delete_topics([name])[name].result(WAIT)
    for broker in three.brokers.values():
        eventually(lambda b=broker: not list(b.logs.glob(f"{name}-*")))  # type: ignore[misc]
        eventually(lambda b=broker: not b.leaders(name))  # type: ignore[misc]
    eventually(lambda: is_free(three.brokers[1], name))


def topic_ids(three: Cluster, name: str) -> set[uuid.UUID]:
    """The id of a topic as each broker has it: one, if they agree."""
    found = set()
    for broker in three.brokers.values():
        with Wire(broker.address) as wire:
            found.add(metadata(wire, name=name).topic_id)
    return found


def test_every_broker_has_the_id_of_a_topic_and_the_next_topic_of_its_name_has_another(
    three: Cluster,
) -> None:
    name = create(three, 3)
    [old] = topic_ids(three, name)
    with three.session() as session:
        assert TopicNode.load(session.client.get(paths.topic(name))[0], "").topic_id == old
    with Wire(three.brokers[1].address) as wire:
        deleted = delete(wire, topic_id=old)
        assert (deleted.error_code, deleted.name) == (ErrorCode.NONE, name)
    eventually(lambda: is_free(three.brokers[1], name))
    eventually(lambda: None not in topic_ids(three, name))
    [new] = topic_ids(three, name)
    assert new != old
    for broker in three.brokers.values():
        with Wire(broker.address) as wire:
            assert metadata(wire, topic_id=new).name == name
            assert metadata(wire, topic_id=old).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_of_an_older_release_has_one_id_which_its_next_change_stores(
    three: Cluster,
) -> None:
    name = f"old-{next(_numbers)}"
    with three.session() as session:
        session.client.create(paths.topic(name), TopicNode((1, 2)).dump())
        for broker in three.brokers.values():
            eventually(lambda b=broker: len(b.leaders(name)) == 2)  # type: ignore[misc]
        [derived] = topic_ids(three, name)
        assert derived is not None
        admin(three.brokers[3]).create_partitions([NewPartitions(name, 3)])[name].result(WAIT)
        assert TopicNode.load(session.client.get(paths.topic(name))[0], "").topic_id == derived
    assert topic_ids(three, name) == {derived}


def test_configs_that_are_changed_through_several_brokers_at_once_are_all_kept(
    three: Cluster,
) -> None:
    """Each broker is told of two, one after the other; no broker waits for another."""
    changes = {
        "retention.ms": "1111",
        "retention.bytes": "2222",
        "segment.bytes": "33333",
        "max.message.bytes": "44444",
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "compact",
    }
    with three.session() as session, ThreadPoolExecutor(len(changes)) as pool:
        for _ in range(3):
            name = create(three, 1)
            brokers = itertools.cycle(three.brokers.values())
            asked = [
                pool.submit(_configure_at, broker, name, *change)
                for broker, change in zip(brokers, changes.items(), strict=False)
            ]
            assert [one.result() for one in asked] == [ErrorCode.NONE] * len(changes)
            node = session.client.get(paths.topic(name))[0]
            assert TopicNode.load(node, name).configs == changes


def _configure_at(broker: ClusterBroker, topic: str, config: str, value: str) -> int:
    """Set one config through this broker; the error code."""
    resources = kind(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterConfigsResource")
    configs = kind(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterableConfig")
    change = configs(name=config, config_operation=0, value=value)
    asked = resources(resource_type=2, resource_name=topic, configs=(change,))
    with Wire(broker.address) as wire:
        reply = wire.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(asked,), validate_only=False
        )
    return int(reply.responses[0].error_code)


def test_what_one_broker_has_answered_every_other_knows(three: Cluster) -> None:
    """No wait between the answer of one and the question to the next: watches come later."""
    for number in range(15):
        one, two, last = (three.brokers[(number + turn) % 3 + 1] for turn in range(3))
        name = f"topic-{next(_numbers)}"
        assert _create_at(one, name) == ErrorCode.NONE
        assert two.leaders(name) == last.leaders(name) == {0: one.number}
        group = f"early-{number}"
        assert _commit_at(three.brokers[one.coordinator(group)], group, name) == ErrorCode.NONE
        assert _delete_at(two, name) == ErrorCode.NONE
        assert _create_at(last, name) == ErrorCode.NONE
        assert one.leaders(name) == {0: last.number}


def _create_at(broker: ClusterBroker, name: str) -> int:
    """Create a topic of one partition, there, through it; the error code."""
    topic = kind(ApiKey.CREATE_TOPICS, 5, "request", "CreatableTopic")
    placed = kind(ApiKey.CREATE_TOPICS, 5, "request", "CreatableReplicaAssignment")
    here = placed(partition_index=0, broker_ids=(broker.number,))
    asked = topic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=(here,), configs=()
    )
    with Wire(broker.address) as wire:
        reply = wire.ask(
            ApiKey.CREATE_TOPICS,
            5,
            topics=(asked,),
            timeout=timedelta(seconds=30),
            validate_only=False,
        )
    return int(reply.topics[0].error_code)


def _commit_at(broker: ClusterBroker, group: str, topic: str) -> int:
    """Commit position 7 of partition 0; the error code."""
    topics = kind(ApiKey.OFFSET_COMMIT, 3, "request", "OffsetCommitRequestTopic")
    partitions = kind(ApiKey.OFFSET_COMMIT, 3, "request", "OffsetCommitRequestPartition")
    at = partitions(partition_index=0, committed_offset=7, committed_metadata="")
    with Wire(broker.address) as wire:
        reply = wire.ask(
            8,
            3,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time=timedelta(milliseconds=-1),
            topics=(topics(name=topic, partitions=(at,)),),
        )
    return int(reply.topics[0].partitions[0].error_code)


def _delete_at(broker: ClusterBroker, name: str) -> int:
    """Delete a topic through this broker; the error code."""
    with Wire(broker.address) as wire:
        reply = wire.ask(
            ApiKey.DELETE_TOPICS, 3, topic_names=(name,), timeout=timedelta(seconds=30)
        )
    return int(reply.responses[0].error_code)


def test_a_topic_says_where_its_partitions_go(three: Cluster) -> None:
    name = f"topic-{next(_numbers)}"
    new = NewTopic(name, 3, replica_assignment=[[3], [3], [1]])
    admin(three.brokers[1]).create_topics([new])[name].result(WAIT)
    eventually(lambda: three.brokers[2].leaders(name) == {0: 3, 1: 3, 2: 1})
    with three.session() as session:
        node = TopicNode.load(session.client.get(paths.topic(name))[0], "")
        assert node.assignment == (3, 3, 1)
        for broker, count in ((3, b"2"), (1, b"1")):
            served = paths.served(name, broker)
            eventually(lambda at=served: session.client.exists(at))  # type: ignore[misc]
            assert session.client.get(served)[0] == count
        assert session.client.exists(paths.served(name, 2)) is None
    wrong = NewTopic(f"{name}-wrong", 1, replica_assignment=[[7]])
    with pytest.raises(Exception, match="of those alive: 1, 2, 3"):
        admin(three.brokers[1]).create_topics([wrong])[wrong.topic].result(WAIT)


def test_groups_are_spread_and_only_their_coordinator_answers(three: Cluster) -> None:
    groups = [f"group-{n}" for n in range(30)]
    found = {group: three.brokers[1].coordinator(group) for group in groups}
    assert set(found.values()) == {1, 2, 3}
    for group in groups[:3]:
        assert {broker.coordinator(group) for broker in three.brokers.values()} == {found[group]}
        for number, broker in three.brokers.items():
            mine = ErrorCode.UNKNOWN_MEMBER_ID
            expected = mine if number == found[group] else ErrorCode.NOT_COORDINATOR
            assert broker.heartbeat(group) == expected


def test_positions_are_where_every_tool_finds_them(three: Cluster) -> None:
    name, group = create(three, 3), f"a/group {next(_numbers)}"
    client = admin(three.brokers[1])
    offsets = [TopicPartition(name, partition, partition + 10) for partition in range(3)]
    asked = ConsumerGroupTopicPartitions(group, offsets)
    client.alter_consumer_group_offsets([asked])[group].result(WAIT)
    with three.session() as session:
        for partition, broker in three.brokers[1].leaders(name).items():
            path = paths.offset(group, name, broker, partition)
            assert path.startswith("/consumers/a%2Fgroup ")
            assert session.client.get(path)[0] == b"%d" % (partition + 10)
        session.client.set(path, b"99")  # as another tool would
    other = admin(three.brokers[3])
    found = other.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    assert [p.offset for p in found.result(WAIT).topic_partitions] == [10, 11, 99]
    listed = other.list_consumer_groups().result(WAIT)
    assert [g.group_id for g in listed.valid].count(group) == 1
    other.delete_consumer_groups([group])[group].result(WAIT)
    with three.session() as session:
        assert session.client.exists(paths.group(group)) is None


def refused(three: Cluster, folder: Path, number: int, *options: str) -> str:
    """What a broker that may not start says."""
    command = [sys.executable, "-m", "headworks._cli", "broker", "start", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(folder), "--zookeeper", three.address, *options]
    if number >= 0:
        command += ["--broker-id", str(number)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ}
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_only_members_commit_for_a_decentralized_group(three: Cluster) -> None:
    name, group = create(three, 1), "by-itself"
    coordinator = three.brokers[three.brokers[1].coordinator(group)]
    with three.session() as session:
        session.client.create(paths.member(group, "host:1"), b"{}", ephemeral=True, makepath=True)
        assert _commit_at(coordinator, group, name) == ErrorCode.UNKNOWN_MEMBER_ID
        asked = ["reset", group, "--to", "latest", "--topic", name, "--bootstrap", three.bootstrap]
        refused = CliRunner().invoke(group_app, asked).exception
        assert "the broker refused to set group by-itself" in str(refused)
    assert _commit_at(coordinator, group, name) == ErrorCode.NONE


def test_every_broker_of_a_cluster_has_the_configs_of_groups(
    three: Cluster,
) -> None:
    topic, group = create(three, 1), f"configured-{next(_numbers)}"
    coordinator = three.brokers[three.brokers[1].coordinator(group)]
    other = next(one for one in three.brokers.values() if one is not coordinator)
    with Wire(coordinator.address) as wire, Wire(other.address) as elsewhere:
        assert alter(elsewhere, group, (HEARTBEAT, "250", SET)).error_code == ErrorCode.NONE
        eventually(lambda: described(wire, group)[HEARTBEAT] == ("250", SOURCE_GROUP))
        eventually(lambda: interval(wire, group, "m", topic) == timedelta(milliseconds=250))
        assert alter(elsewhere, "another", (SESSION, "9000", SET)).error_code == ErrorCode.NONE
        assert described(elsewhere, group)[HEARTBEAT] == ("250", SOURCE_GROUP)


def test_transactions_are_refused_by_name(three: Cluster) -> None:
    broker = three.brokers[1]
    second = timedelta(seconds=1)
    with Wire(broker.address) as wire:
        served = {one.api_key for one in wire.ask(ApiKey.API_VERSIONS, 0).api_keys}
        assert not served & TRANSACTION_APIS
        refused = wire.ask(
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id="tx", transaction_timeout=second
        )
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        asked = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}
        ended = wire.ask(ApiKey.END_TXN, 3, **asked, committed=True)
        assert ended.error_code == ErrorCode.UNSUPPORTED_VERSION
        asked = {"key_type": 1, "coordinator_keys": ("tx",)}
        [found] = wire.ask(ApiKey.FIND_COORDINATOR, 4, **asked).coordinators
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "transactional.id" in found.error_message
    # librdkafka would ask again and again after another error, until its time is up
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "transactional.id": "tx", "log_level": 0}
    )
    with pytest.raises(KafkaException, match="has no transactions") as caught:
        producer.init_transactions(WAIT)
    assert caught.value.args[0].fatal()


def test_an_id_is_one_broker_s(three: Cluster, tmp_path: Path) -> None:
    words = refused(three, tmp_path, 2)
    assert f"broker 2 is alive already, at {three.brokers[2].address}" in words
    assert "--broker-id of its own" in words
    assert three.living() == [1, 2, 3]
    assert "--broker-id" in refused(three, tmp_path / "other", -1)


def test_a_dead_broker_s_partitions_wait_for_it_and_its_folder(
    three: Cluster, registry: child_process.Service, tmp_path: Path
) -> None:
    name = create(three, 3)
    dead = three.brokers[3]
    [mine] = [p for p, at in dead.leaders(name).items() if at == 3]
    eventually(lambda: dead.produce(name, mine) == ErrorCode.NONE)
    group = next(g for g in map(str, itertools.count()) if dead.coordinator(g) == 3)
    consumer = _read_and_commit(three, name, group)
    producer, ticks = _ticking(three, registry.url, tmp_path)
    dead.kill()
    alive = [three.brokers[1], three.brokers[2]]
    # at once: it is still named as the leader
    assert _away(alive[0].address, name) == [mine]
    _events_without_a_key_go_on(producer, ticks)
    for broker in alive:
        eventually(lambda b=broker: b.leaders(name)[mine] == -1)  # type: ignore[misc]
        eventually(lambda b=broker: b.coordinator(group) in (1, 2))  # type: ignore[misc]
    positions = [TopicPartition(name, mine)]
    assert [p.offset for p in consumer.committed(positions, WAIT)] == [1]
    _unkeyed_messages_go_on(alive[0].address, name, mine)
    assert "belongs to another data folder" in refused(three, tmp_path, 3)
    assert _away(alive[0].address, name) == [mine]
    dead.start()
    eventually(lambda: alive[0].leaders(name)[mine] == 3)
    eventually(lambda: dead.fetch(name, mine) == ErrorCode.NONE)
    _read_the_rest(consumer, mine)
    consumer.close()
    eventually(lambda: {producer.send_and_wait(ticks.Tick(), WAIT)[0] for _ in range(20)} == ALL)
    assert producer.close() == 0


def _away(address: str, topic: str) -> list[int]:
    """The partitions of which `headworks topic describe` says that nobody answers for them."""
    asked = ["describe", topic, "--bootstrap", address, "--format", "json"]
    shown = CliRunner().invoke(topic_app, asked)
    assert shown.exception is None, shown.output
    rows = json.loads(shown.stdout)["partitions"]
    return [row["partition"] for row in rows if row["next_offset"] is None]


def _read_and_commit(three: Cluster, name: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": three.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([name])
    end = time.monotonic() + WAIT
    while not (messages := [m for m in consumer.consume(1, 0.2) if m.error() is None]):
        assert time.monotonic() < end
    consumer.commit(message=messages[0], asynchronous=False)
    return consumer


def _read_the_rest(consumer: Consumer, committed: int) -> None:
    """Read the hundred messages without a key, and none of the partition that was read before."""
    values, partitions = set[bytes | None](), set[int | None]()

    def all_read() -> bool:
        found = [m for m in consumer.consume(100, 0.2) if m.error() is None]
        values.update(m.value() for m in found)
        partitions.update(m.partition() for m in found)
        return values >= {b"%d" % number for number in range(100)}

    eventually(all_read)
    assert committed not in partitions, "what was committed is read again"


def _unkeyed_messages_go_on(address: str, name: str, without: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address)
    sent = [producer.send(name, b"%d" % number) for number in range(100)]
    went = {future.get(WAIT).partition for future in sent}
    producer.close()
    assert went == {0, 1, 2} - {without}


def _ticking(three: Cluster, registry: str, folder: Path) -> tuple[Producer, Any]:
    """A producer that has sent an event without a key to each partition, and the events."""
    schema = {"type": "record", "name": "Tick", "namespace": "beats", "fields": []}
    create(three, 3, name="ticks")
    text = json.dumps({**schema, "headworks": {"topic": "ticks"}})
    ticks = build(folder, {"tick.avsc": text})["beats"]
    producer = Producer(
        three.bootstrap,
        registry,
        application="tests",
        auto_register=True,
        state_dir=folder / "state",
        config={"linger.ms": 0},
    )
    eventually(lambda: {producer.send_and_wait(ticks.Tick(), WAIT)[0] for _ in range(20)} == ALL)
    return producer, ticks


def _events_without_a_key_go_on(producer: Producer, ticks: Any) -> None:
    """Right after a death some may wait for the dead broker, and then none."""

    def hundred_in_a_row() -> bool:
        try:
            return len([producer.send_and_wait(ticks.Tick(), 1.0) for _ in range(100)]) == 100
        except DeliveryError:
            return False

    eventually(hundred_in_a_row)


def test_a_broker_that_joins_gets_partitions_of_new_topics(three: Cluster, tmp_path: Path) -> None:
    old = create(three, 3)
    fourth = ClusterBroker(tmp_path, 4, three.zookeeper, SESSION_SECONDS)
    try:
        fourth.start()
        eventually(lambda: all(b.peers() == [1, 2, 3, 4] for b in three.brokers.values()))
        eventually(lambda: sorted(fourth.leaders(old).values()) == [1, 2, 3])
        name = create(three, 4)
        assert sorted(fourth.leaders(name).values()) == [1, 2, 3, 4]
        assert fourth.stop() == 0
        assert three.living() == [1, 2, 3]  # it said good-bye: nobody waited for its session
        one = three.brokers[1]
        eventually(lambda: -1 in one.leaders(name).values())
        [mine] = [p for p, at in one.leaders(name).items() if at == -1]
        admin(one).delete_topics([name])[name].result(WAIT)
        with pytest.raises(Exception, match=r"removed their part: (\d, )*4"):
            admin(one).create_topics([NewTopic(name, 1)])[name].result(WAIT)
        assert (fourth.logs / f"{name}-{mine}").exists()
        fourth.start()
        eventually(lambda: not (fourth.logs / f"{name}-{mine}").exists())
        eventually(lambda: is_free(one, name))
    finally:
        fourth.close()
    _its_folder_is_lost(three, fourth, tmp_path / "new")


def _its_folder_is_lost(three: Cluster, lost: ClusterBroker, folder: Path) -> None:
    eventually(lambda: three.living() == [1, 2, 3])
    heir = ClusterBroker(folder, 4, three.zookeeper, SESSION_SECONDS, "--take-over")
    try:
        heir.start()
        eventually(lambda: three.living() == [1, 2, 3, 4])
        assert "broker 4 is alive already" in refused(three, lost.folder, 4, "--take-over")
        assert heir.stop() == 0
        assert "belongs to another data folder" in refused(three, lost.folder, 4)
    finally:
        heir.close()


def test_a_group_that_the_broker_assigns_follows_its_coordinator(three: Cluster) -> None:
    name = create(three, 3)
    group = next(g for g in map(str, itertools.count()) if three.brokers[1].coordinator(g) == 3)
    first, second = (
        Consumer(
            {
                "bootstrap.servers": three.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "log_level": 0,
            }
        )
        for _ in range(2)
    )

    def share() -> list[int]:
        for consumer in (first, second):
            consumer.poll(0.1)
        return sorted(len(consumer.assignment()) for consumer in (first, second))

    first.subscribe([name])
    second.subscribe([name])
    eventually(lambda: share() == [1, 2])
    three.brokers[3].kill()
    eventually(lambda: three.brokers[1].coordinator(group) in (1, 2))
    coordinator = admin(three.brokers[three.brokers[1].coordinator(group)])

    def members() -> int:
        share()
        found = coordinator.describe_consumer_groups([group])[group].result(WAIT)
        return len(found.members)

    eventually(lambda: members() == 2)
    eventually(lambda: share() == [1, 2])
    first.close()
    second.close()
