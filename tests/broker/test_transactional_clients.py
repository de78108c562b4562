"""Transactions by real clients: committed, aborted, fenced, timed out, and over a restart."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import urllib3
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.kafka_log import KafkaFetcher, KafkaLog
from hadoop_loader._fetch.ranges import FetchRange
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from tests.broker.clients import DEADLINE, eventually
from tests.broker.conftest import kept_address, start_broker
from tests.broker.wire import Wire, kind
from tests.interop.in_place import is_apache_kafka

# kafka-python reads its schemas in a way that Python deprecates
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

_SHORT_MS = 5000  # the timeout of a transaction that its producer leaves open
_LONG_MS = 600_000  # the timeout of one that a successor ends

Transaction = tuple[Sequence[str], bool]  # messages, and whether to commit them


def _confluent(address: str, topic: str, name: str, transactions: Sequence[Transaction]) -> None:
    producer = transactional(address, name)
    for messages, commit in transactions:
        producer.begin_transaction()
        for message in messages:
            producer.produce(topic, message, partition=0)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE)


def _aiokafka(address: str, topic: str, name: str, transactions: Sequence[Transaction]) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=name)
        await producer.start()
        try:
            for messages, commit in transactions:
                await producer.begin_transaction()
                for message in messages:
                    await producer.send_and_wait(topic, message.encode(), partition=0)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        finally:
            await producer.stop()

    asyncio.run(run())


def _kafka_python(address: str, topic: str, name: str, transactions: Sequence[Transaction]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, transactional_id=name)
    producer.init_transactions()
    for messages, commit in transactions:
        producer.begin_transaction()
        for message in messages:
            producer.send(topic, message.encode(), partition=0).get(DEADLINE)
        (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.close()


PRODUCERS: dict[str, Callable[[str, str, str, Sequence[Transaction]], None]] = {
    "confluent-kafka": _confluent,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
}


def _late_confluent(
    address: str, topic: str, name: str, aborted: Callable[[], object], timeout_ms: int = _SHORT_MS
) -> None:
    producer = transactional(address, name, **{"transaction.timeout.ms": timeout_ms})
    producer.begin_transaction()
    producer.produce(topic, "late", partition=0)
    producer.flush()
    aborted()
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE)


def _late_aiokafka(
    address: str, topic: str, name: str, aborted: Callable[[], object], timeout_ms: int = _SHORT_MS
) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import ProducerFenced

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"late", partition=0)
            await asyncio.to_thread(aborted)
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())


def _late_kafka_python(
    address: str, topic: str, name: str, aborted: Callable[[], object], timeout_ms: int = _SHORT_MS
) -> None:
    from kafka import KafkaProducer
    from kafka.errors import ProducerFencedError

    producer = KafkaProducer(
        bootstrap_servers=address, transactional_id=name, transaction_timeout_ms=timeout_ms
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late", partition=0).get(DEADLINE)
        aborted()
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    finally:
        producer.close()


# They write "late" in a transaction, wait until it is aborted, and fail to commit it.
LATE_PRODUCERS: dict[str, Callable[..., None]] = {
    "confluent-kafka": _late_confluent,
    "aiokafka": _late_aiokafka,
    "kafka-python": _late_kafka_python,
}


def transactional(address: str, name: str, **properties: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": name, "log_level": 0, **properties}
    )
    producer.init_transactions(DEADLINE)
    return producer


def read(address: str, topic: str, *, committed: bool = True) -> list[str]:
    """Read a partition to its end: its last stable offset, if only committed records count."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, end = [], time.monotonic() + DEADLINE
    while time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if (problem := message.error()) is not None:
            assert problem.code() == KafkaError._PARTITION_EOF
            break
        value: Any = message.value()
        found.append(value.decode())
    consumer.close()
    return found


def aiokafka_read(address: str, topic: str, count: int) -> list[str]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as Place

    async def run() -> list[str]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            consumer.assign([Place(topic, 0)])
            async with asyncio.timeout(DEADLINE):
                return [(await consumer.getone()).value.decode() for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(run())


def ends(address: str, topic: str) -> tuple[int, int]:
    """The last stable offset and the end of a partition."""
    admin, place = AdminClient({"bootstrap.servers": address}), TopicPartition(topic, 0)
    found = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        spec: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = admin.list_offsets({place: spec}, isolation_level=level)
        found.append(asked[place].result(DEADLINE).offset)
    return found[0], found[1]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_of_a_group_commits_its_offsets_in_a_transaction(
    address: str, topic: str, new_name: Callable[[], str], protocol: str
) -> None:
    group, place = new_name(), TopicPartition(topic, 0)
    plain = Producer({"bootstrap.servers": address})
    plain.produce(topic, "in", partition=0)
    plain.flush()
    options = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": address, "enable.auto.commit": False, **options})
    consumer.subscribe([topic])
    producer = transactional(address, new_name())
    eventually(lambda: bool(consumer.consume(1, 0.2)))
    metadata = consumer.consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, DEADLINE)
    producer.commit_transaction(DEADLINE)
    assert consumer.committed([place], timeout=DEADLINE)[0].offset == 1
    consumer.close()
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], metadata, DEADLINE)
    assert caught.value.args[0].txn_requires_abort(), "it is no member any more"
    producer.abort_transaction(DEADLINE)


@pytest.mark.parametrize("client", PRODUCERS)
def test_only_what_was_committed_is_read(
    address: str, topic: str, new_name: Callable[[], str], client: str
) -> None:
    plan = [(["a", "b"], True), (["c", "d"], False), (["e"], True), (["f"], False), (["g"], True)]
    PRODUCERS[client](address, topic, new_name(), plan)
    assert read(address, topic) == ["a", "b", "e", "g"]
    assert read(address, topic, committed=False) == ["a", "b", "c", "d", "e", "f", "g"]
    assert aiokafka_read(address, topic, 4) == ["a", "b", "e", "g"]
    assert ends(address, topic) == (12, 12), "a marker has an offset"


def test_an_open_transaction_holds_readers_and_a_new_producer_ends_it(
    address: str, topic: str, new_name: Callable[[], str]
) -> None:
    name = new_name()
    plain = Producer({"bootstrap.servers": address})
    plain.produce(topic, "before", partition=0)
    plain.flush()
    old = transactional(address, name)
    old.begin_transaction()
    old.produce(topic, "open", partition=0)
    old.flush()
    plain.produce(topic, "after", partition=0)
    plain.flush()
    assert read(address, topic) == ["before"]
    stable, end = ends(address, topic)
    assert stable < end
    with Wire(address) as wire:
        [listed] = [
            one
            for one in wire.ask(
                ApiKey.LIST_TRANSACTIONS, 0, state_filters=("Ongoing",), producer_id_filters=()
            ).transaction_states
            if one.transactional_id == name
        ]
        asked = {"transactional_ids": (name,)}
        [state] = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, **asked).transaction_states
        assert (state.transaction_state, state.producer_id) == ("Ongoing", listed.producer_id)
        assert [(t.topic, t.partitions) for t in state.topics] == [(topic, (0,))]
        place = kind(ApiKey.DESCRIBE_PRODUCERS, 0, "request", "TopicRequest")(
            name=topic, partition_indexes=(0,)
        )
        [described] = wire.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=(place,)).topics
        [producer] = described.partitions[0].active_producers
        assert (producer.producer_id, producer.current_txn_start_offset) == (
            state.producer_id,
            stable,
        )
    transactional(address, name)
    assert read(address, topic) == ["before", "after"], "the new producer aborted it"
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(DEADLINE)
    assert caught.value.args[0].code() == KafkaError._FENCED


def test_the_loader_reads_what_was_committed_and_ends_before_an_open_transaction(
    address: str, topic: str, new_name: Callable[[], str]
) -> None:
    _confluent(address, topic, new_name(), [(["a"], True), (["b"], False), (["c"], True)])
    open_one = transactional(address, new_name())
    open_one.begin_transaction()
    open_one.produce(topic, "open", partition=0)
    open_one.flush()
    _confluent(address, topic, new_name(), [(["behind it"], True)])
    client = {"bootstrap.servers": address}
    end = KafkaLog(client).watermarks({topic: [0]})[topic][0].high
    assert end == 6
    sockets = BrokerFetcher(client)
    for fetcher in (sockets, KafkaFetcher(client)):
        found = [
            message.value
            for _, messages in fetcher.fetch([FetchRange(topic, 0, 0, end)])
            for message in messages
        ]
        assert found == [b"a", b"c"]
    sockets.close()
    open_one.abort_transaction(DEADLINE)
    assert KafkaLog(client).watermarks({topic: [0]})[topic][0].high == 10


@pytest.mark.parametrize("client", LATE_PRODUCERS)
def test_a_transaction_that_times_out_is_aborted(
    address: str, topic: str, new_name: Callable[[], str], client: str
) -> None:
    LATE_PRODUCERS[client](
        address, topic, new_name(), lambda: eventually(lambda: ends(address, topic) == (2, 2))
    )
    assert read(address, topic) == []


@pytest.mark.parametrize("client", LATE_PRODUCERS)
def test_a_producer_is_fenced_by_its_successor(
    address: str, topic: str, new_name: Callable[[], str], client: str
) -> None:
    name = new_name()
    successor = partial(PRODUCERS[client], address, topic, name, [(["end"], True)])
    LATE_PRODUCERS[client](address, topic, name, successor, timeout_ms=_LONG_MS)
    assert read(address, topic) == ["end"]
    assert read(address, topic, committed=False) == ["late", "end"]


def test_offsets_are_committed_with_the_transaction(
    address: str, topic: str, new_name: Callable[[], str]
) -> None:
    group, place = new_name(), TopicPartition(topic, 0)
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    producer = transactional(address, new_name())
    admin = AdminClient({"bootstrap.servers": address})

    def committed(*, stable: bool = False) -> int:
        [asked] = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [place])], require_stable=stable
        ).values()
        found: Any = asked.result(DEADLINE).topic_partitions[0]
        assert found.error is None
        return int(found.offset)

    def may_change() -> bool:
        with Wire(address) as wire:
            asked = kind(ApiKey.OFFSET_FETCH, 7, "request", "OffsetFetchRequestTopic")(
                name=topic, partition_indexes=(0,)
            )
            answer = wire.ask(
                ApiKey.OFFSET_FETCH, 7, group_id=group, topics=(asked,), require_stable=True
            )
            code: int = answer.topics[0].partitions[0].error_code
        return code == ErrorCode.UNSTABLE_OFFSET_COMMIT

    for offset, commit in ((3, True), (7, False), (9, True)):
        before = committed(stable=True)
        producer.begin_transaction()
        producer.produce(topic, "out", partition=0)
        to = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(to, consumer.consumer_group_metadata(), DEADLINE)
        assert committed() == before
        assert may_change()
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE)
        if is_apache_kafka():  # it answers earlier
            eventually(lambda: not may_change())
        assert committed(stable=True) == (offset if commit else before)
    consumer.close()


def test_a_transaction_goes_on_over_a_kill_of_the_broker(tmp_path: Path) -> None:
    """Messages acknowledged before the kill are in the transaction that commits after it."""
    address = kept_address()
    running = start_broker(tmp_path, listen=address)
    try:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE)
        producer = transactional(address, "tx")
        for number, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            producer.produce("t", f"before {number}", partition=0)
            producer.flush()
            running.kill()
            running = start_broker(tmp_path, listen=address)
            producer.produce("t", f"after {number}", partition=0)
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE)
        assert read(address, "t") == ["before 0", "after 0", "before 2", "after 2"]
    finally:
        running.stop()
    dump = [
        sys.executable,
        "-m",
        "headworks._cli",
        "log",
        "dump",
        str(tmp_path / "broker" / "logs" / "t-0"),
    ]
    text = subprocess.run([*dump], capture_output=True, text=True, check=True).stdout
    assert text.count("marker: commit") == 2
    assert text.count("marker: abort") == 1
    assert text.count("transactional") == 6
    lines = subprocess.run(
        [*dump, "--format", "json"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    markers = [json.loads(line)["marker"] for line in lines]
    assert [one for one in markers if one] == ["commit", "abort", "commit"]


def test_a_batch_outside_of_an_open_transaction_is_refused(
    address: str, topic: str, new_name: Callable[[], str]
) -> None:
    from headworks._kafka.records import Record, encode_batch
    from tests.broker.wire import produce, produced

    name = new_name()
    producer = transactional(address, name)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    with Wire(address) as wire:
        asked = {"transactional_ids": (name,)}
        [state] = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, **asked).transaction_states
        writer = state.producer_id, state.producer_epoch, 1
        records = encode_batch([Record(0, 1, b"k", b"v", ())], producer=writer)
        wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, records))
        assert produced(wire.receive()[1], topic)[0] == ErrorCode.INVALID_TXN_STATE
        producer.commit_transaction(DEADLINE)
        wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, records))
        assert produced(wire.receive()[1], topic)[0] == ErrorCode.NONE


def test_the_metrics_show_transactions(tmp_path: Path, new_name: Callable[[], str]) -> None:
    def shown(name: str) -> float:
        [url] = re.findall(r"http://127.0.0.1:\d+/metrics", process.words())
        page = urllib3.request("GET", url).data.decode()
        return float(re.findall(rf"^{name} (.*)$", page, re.MULTILINE)[0])

    with start_broker(tmp_path, "--metrics", "127.0.0.1:0") as process:
        producer = transactional(process.address, "tx")
        for end in (producer.commit_transaction, producer.abort_transaction, None):
            producer.begin_transaction()
            producer.produce("t", "message")
            producer.flush()
            if end is not None:
                end(DEADLINE)
        assert shown("headworks_broker_transactions_open") == 1
        eventually(lambda: shown("headworks_broker_transaction_oldest_seconds") > 0)
        transactional(process.address, "tx")
        assert shown("headworks_broker_transactions_open") == 0
        assert shown("headworks_broker_transaction_oldest_seconds") == 0
        assert shown("headworks_broker_transactions_committed_total") == 1
        assert shown("headworks_broker_transactions_aborted_total") == 2
        assert shown("headworks_broker_producers_fenced_total") == 1


@pytest.mark.our_broker("Apache Kafka takes a transactional batch of no producer")
def test_what_is_written_without_a_transaction_is_refused(address: str, topic: str) -> None:
    from headworks._kafka.records import Record, encode_batch
    from headworks._kafka.records.batch import CONTROL, TRANSACTIONAL
    from tests.broker.wire import produce, produced

    with Wire(address) as wire:
        for attributes, producer, code in (
            (TRANSACTIONAL, (5, 0, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (TRANSACTIONAL, (-1, -1, -1), ErrorCode.INVALID_TXN_STATE),
            (TRANSACTIONAL | CONTROL, (5, 0, 0), ErrorCode.INVALID_RECORD),
        ):
            records = encode_batch(
                [Record(0, 1, b"k", b"v", ())], producer=producer, attributes=attributes
            )
            body = produce(topic, 0, records)
            wire.send(ApiKey.PRODUCE, 7, b"\0\x02tx" + body[2:])
            assert produced(wire.receive()[1], topic)[0] == code
