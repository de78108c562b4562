"""Log compaction beside the serving: every client reads what stays, restarts and kills included."""

from __future__ import annotations

import os
import re
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import urllib3
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._broker.log.dump import DumpedBatch, dump_segment, segments_of
from headworks.errors import UsageError
from tests.broker.clients import CONSUMERS, DEADLINE, PRODUCERS, Message, eventually
from tests.broker.conftest import kept_address, start_broker

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
KILLS = int(os.environ.get("HEADWORKS_TEST_COMPACTION_KILLS", "3"))
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
OFTEN = ("--compaction-seconds", "0.1")


def create(address: str, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    new = NewTopic(
        topic, 1, 1, config=COMPACTED | {k.replace("_", "."): v for k, v in configs.items()}
    )
    admin.create_topics([new])[topic].result(DEADLINE)


def size(folder: Path, topic: str) -> int:
    """Bytes of the topic's segments; a compaction may move them meanwhile."""
    while True:
        try:
            return sum(p.stat().st_size for p in (folder / f"broker/logs/{topic}-0").glob("*.log"))
        except FileNotFoundError:
            continue


def read_to_end(address: str, topic: str) -> dict[bytes, bytes | None]:
    """The last value of each key, by reading from the beginning to the end."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "end"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[bytes, bytes | None] = {}
    deadline = time.monotonic() + DEADLINE
    [at] = consumer.position([TopicPartition(topic, 0)])
    while at.offset < end and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found[message.key() or b""] = message.value()
        [at] = consumer.position([TopicPartition(topic, 0)])
    consumer.close()
    return found


def stored(folder: Path, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of every record in the topic's files; empty while they are being moved."""
    try:
        return [
            (record.key, record.value)
            for path in segments_of(folder / f"broker/logs/{topic}-0")
            for item in dump_segment(path, records=True)
            if isinstance(item, DumpedBatch)
            for record in item.records
        ]
    except (UsageError, OSError):
        return []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_four_clients_read_the_compacted_records_of_four_writers(
    tmp_path: Path, codec: str
) -> None:
    with start_broker(tmp_path, *OFTEN) as process:
        create(process.address, "t")
        for name, send in PRODUCERS.items():
            own = codec if codec in ("none", "gzip") or name == "confluent-kafka" else "gzip"
            send(process.address, "t", [Message(b"%d" % k, name.encode()) for k in range(10)], own)
        last = [Message(b"%d" % k, b"last %d " % k * 20) for k in range(10)]
        PRODUCERS["confluent-kafka"](process.address, "t", last, codec)
        wanted = [(m.key, m.value) for m in last[1:]]
        producer = Producer({"bootstrap.servers": process.address})
        producer.produce("t", key=b"0", value=None)  # so that the last batch is rewritten

        def settled() -> bool:
            producer.produce("t", key=b"poke", value=b"")  # something must be new
            producer.flush(DEADLINE)
            return [pair for pair in stored(tmp_path, "t") if pair[0] != b"poke"] == wanted

        eventually(settled)
        for name, read in CONSUMERS.items():
            if codec in ("none", "gzip") or name != "kafka-python":  # it needs more libraries
                found = [(m.key, m.value) for m in read(process.address, "t", 9)]
                assert found == wanted, name
        assert process.stop() == 0
        producer.purge()
    with start_broker(tmp_path, *OFTEN) as process:
        assert read_to_end(process.address, "t") == dict([*wanted, (b"poke", b"")])


def test_a_consumer_reads_on_while_it_is_compacted_and_metrics_tell(tmp_path: Path) -> None:
    with start_broker(tmp_path, *OFTEN, "--metrics", "127.0.0.1:0") as process:
        create(process.address, "busy", segment_bytes="20000")
        producer = Producer({"bootstrap.servers": process.address, "linger.ms": 1})
        consumer = Consumer({"bootstrap.servers": process.address, "group.id": "g"})
        consumer.assign([TopicPartition("busy", 0, 0)])
        offsets: list[int] = []
        last: dict[bytes | None, bytes | None] = {}
        for number in range(5000):
            producer.produce("busy", key=b"%d" % (number % 20), value=b"%d" % number + b"." * 100)
            if number % 50 == 0:
                producer.flush(DEADLINE)
                for message in consumer.consume(1000, 0.01):
                    assert message.error() is None
                    offsets.append(message.offset() or 0)
                    last[message.key()] = message.value()
        assert producer.flush(DEADLINE) == 0
        deadline = time.monotonic() + DEADLINE
        while (not offsets or offsets[-1] < 4999) and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.1):
                offsets.append(message.offset() or 0)
                last[message.key()] = message.value()
        consumer.close()
        assert offsets == sorted(set(offsets))
        assert last == {b"%d" % (n % 20): b"%d" % n + b"." * 100 for n in range(4980, 5000)}
        found = re.search(r"http://127.0.0.1:(\d+)/metrics", process.words())
        assert found is not None

        def metric(name: str) -> float:
            text = urllib3.request("GET", found.group(0)).data.decode()
            value = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
            assert value is not None
            return float(value.group(1))

        eventually(lambda: metric("headworks_broker_compaction_freed_bytes_total") > 100_000)
        assert metric("headworks_broker_compactions_total") > 0
        assert metric("headworks_broker_compactions_failed_total") == 0
        assert metric("headworks_broker_compaction_seconds_total") > 0


def note(errors: list[Any], error: object, _: object) -> None:
    errors.append(error)


def test_messages_without_a_key_are_refused_with_their_numbers(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        create(process.address, "keyed")
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            errors: list[Any] = []
            # Only flush ends the wait, and the topic is known: both messages are in one batch.
            producer = Producer(
                {
                    "bootstrap.servers": process.address,
                    "compression.type": codec,
                    "linger.ms": 60_000,
                }
            )
            producer.list_topics("keyed", DEADLINE)
            for key in (b"a", None):
                producer.produce(
                    "keyed",
                    b"x" * 200,
                    key,
                    on_delivery=partial(note, errors),
                )
            producer.flush(DEADLINE)
            assert [error and error.name() for error in errors] == ["INVALID_RECORD"] * 2, codec
        PRODUCERS["kafka-python"](process.address, "keyed", [Message(b"k", b"v")], "none")
        assert CONSUMERS["kcat"](process.address, "keyed", 1)[0].key == b"k"


def test_a_topic_becomes_compacted_and_is_deleted_while_it_is_being_compacted(
    tmp_path: Path,
) -> None:
    with start_broker(tmp_path, *OFTEN) as process:
        create(process.address, "later", cleanup_policy="delete", segment_bytes="100000")
        producer = Producer({"bootstrap.servers": process.address, "linger.ms": 5})
        for number in range(20_000):
            producer.produce("later", key=b"%d" % (number % 7), value=b"%d" % number + b"." * 100)
            producer.poll(0)
        assert producer.flush(DEADLINE) == 0
        full = size(tmp_path, "later")
        admin = AdminClient({"bootstrap.servers": process.address})
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entry = ConfigEntry(
            "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, "later", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(DEADLINE)
        eventually(lambda: size(tmp_path, "later") < full)
        admin.delete_topics(["later"])["later"].result(DEADLINE)
        assert not (tmp_path / "broker/logs/later-0").exists()
        create(process.address, "later")
        PRODUCERS["aiokafka"](process.address, "later", [Message(b"k", b"v")], "none")
        assert len(CONSUMERS["aiokafka"](process.address, "later", 1)) == 1


def test_killed_again_and_again_it_loses_no_last_value(tmp_path: Path) -> None:
    """SIGKILL while it compacts under load: the last acknowledged value of each key is there."""
    listen = kept_address()
    process = start_broker(tmp_path, *OFTEN, listen=listen)
    create(process.address, "load", segment_bytes="50000")
    acknowledged: dict[bytes, int] = {}
    stop = threading.Event()

    def load() -> None:
        producer = Producer(
            {
                "bootstrap.servers": listen,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "reconnect.backoff.max.ms": 200,
            }
        )

        def done(error: object, message: Any) -> None:
            if error is None:
                acknowledged[message.key()] = int(message.value().split(b".")[0])

        number = 0
        while not stop.is_set():
            if len(producer) >= 2000:
                producer.poll(0.01)
                continue
            key, value = b"%d" % (number * number % 101), b"%d" % number + b"." * 100
            producer.produce("load", value, key, partition=0, on_delivery=done)
            number += 1
            producer.poll(0 if number % 100 else 0.001)
        assert producer.flush(DEADLINE) == 0

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for turn in range(KILLS):
            goal = (turn + 1) * 3000
            eventually(
                lambda goal=goal: max([*acknowledged.values()], default=0) >= goal  # type: ignore[misc]
            )
            process.kill()
            process = start_broker(tmp_path, *OFTEN, listen=listen)
    finally:
        stop.set()
        thread.join()
    found = read_to_end(process.address, "load")
    log = process.words()
    process.stop()
    assert "is not served" not in log
    assert {key: int((value or b"").split(b".")[0]) for key, value in found.items()} == acknowledged


def test_configs_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        for name, value in (
            ("min_cleanable_dirty_ratio", "1.5"),
            ("cleanup_policy", "compact,shred"),
            ("delete_retention_ms", "-1"),
            ("segment_ms", "0"),
        ):
            with pytest.raises(KafkaException, match="INVALID_CONFIG"):
                create(process.address, "no", **{name: value})
