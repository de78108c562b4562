"""Every producer with every consumer: the message that was sent is received."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headworks._broker.log import LogConfig, open_log
from headworks._kafka.records import Codec, iter_batches, iter_records
from tests.broker.clients import CONSUMERS, DEADLINE, PRODUCERS, Message
from tests.interop.in_place import log_folder
from tests.tools import needs

# kafka-python reads its schemas in a way that Python deprecates
pytestmark = [
    pytest.mark.contract,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

FULL = [
    Message(b"key", b"value", (("h", b"1"), ("h", b"2"), ("empty", b"")), 1_600_000_000_123),
    Message(None, b"no key", (), 1_600_000_000_001),
    Message(b"tombstone", None),
    Message(b"empty", b""),
    Message(b"", b"empty key"),
    Message(b"\x00\xff", bytes(range(256)) * 40),
    Message("schlüssel".encode(), "wärme ☃".encode(), (("☃", b"\xe2\x98\x83"),)),
]
# kcat speaks in text, cannot set timestamps, and has its own idea of null
PLAIN = [
    Message(b"key", b"value", (("a", b"1"), ("b", b"2"))),
    Message(b"k2", "wärme ☃".encode()),
]
LIBRARIES = ["confluent-kafka", "aiokafka", "kafka-python"]


@pytest.mark.parametrize("producer", LIBRARIES)
def test_all_of_a_message_survives_every_pair(address: str, topic: str, producer: str) -> None:
    PRODUCERS[producer](address, topic, FULL, "none")
    for consumer in LIBRARIES:
        assert CONSUMERS[consumer](address, topic, len(FULL)) == FULL, consumer


@needs("kcat")
@pytest.mark.parametrize("producer", LIBRARIES)
def test_kcat_reads_what_libraries_wrote(address: str, topic: str, producer: str) -> None:
    PRODUCERS[producer](address, topic, PLAIN, "none")
    assert CONSUMERS["kcat"](address, topic, len(PLAIN)) == PLAIN


@needs("kcat")
def test_libraries_read_what_kcat_wrote(address: str, topic: str) -> None:
    PRODUCERS["kcat"](address, topic, PLAIN, "none")
    for consumer in PRODUCERS:
        found = CONSUMERS[consumer](address, topic, len(PLAIN))
        assert [(m.key, m.value, m.headers) for m in found] == [
            (m.key, m.value, m.headers) for m in PLAIN
        ], consumer


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("producer", ["confluent-kafka", pytest.param("kcat", marks=needs("kcat"))])
def test_batches_keep_the_codec_they_came_with(
    address: str, topic: str, data_dir: Path, codec: str, producer: str
) -> None:
    value = b"the same again and again " * 200
    messages = [Message(b"k", value)]
    PRODUCERS[producer](address, topic, messages, codec)
    found = CONSUMERS["confluent-kafka"](address, topic, 1)
    assert [(m.key, m.value) for m in found] == [(b"k", value)]
    data = b"".join(path.read_bytes() for path in log_folder(data_dir, topic).glob("*.log"))
    [batch] = iter_batches(data)
    assert Codec(batch.codec).name.lower() == codec
    assert [r.value for r in iter_records(data, batch)] == [value]
    assert len(data) < len(value)


def test_the_log_on_disk_reads_with_our_own_reader(
    address: str, topic: str, data_dir: Path, tmp_path: Path
) -> None:
    PRODUCERS["aiokafka"](address, topic, FULL, "gzip")
    (tmp_path / "copy").mkdir()
    for path in log_folder(data_dir, topic).glob("*.log"):
        shutil.copy(path, tmp_path / "copy")
    log, recovery = open_log(tmp_path / "copy", LogConfig())
    assert (log.log_end_offset, recovery.cut_bytes) == (len(FULL), 0)
    data = log.segments[0].path.read_bytes()
    found = [
        Message(r.key, r.value, tuple((n, v or b"") for n, v in r.headers), r.timestamp)
        for b in iter_batches(data)
        for r in iter_records(data, b)
    ]
    assert found == FULL
    log.close()


def test_many_segments_read_back_in_order(address: str, topic: str) -> None:
    messages = [Message(b"%d" % n, b"x" * 500) for n in range(3000)]
    PRODUCERS["confluent-kafka"](address, topic, messages, "none")
    for consumer in LIBRARIES:
        found = CONSUMERS[consumer](address, topic, len(messages))
        assert [m.key for m in found] == [m.key for m in messages], consumer


def test_producers_create_topics_and_consumers_do_not(address: str) -> None:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

    PRODUCERS["kafka-python"](address, "made-by-producing", [Message(b"k", b"v")], "none")
    assert len(CONSUMERS["confluent-kafka"](address, "made-by-producing", 1)) == 1
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody"})
    consumer.subscribe(["made-by-consuming"])
    message = consumer.poll(2)
    assert message is None or message.error()
    consumer.close()
    topics = AdminClient({"bootstrap.servers": address}).list_topics(timeout=DEADLINE).topics
    assert "made-by-producing" in topics
    assert "made-by-consuming" not in topics
