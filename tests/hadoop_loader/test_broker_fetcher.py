"""Reading without objects: the same messages as librdkafka gives, from brokers and from bytes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Producer

from hadoop_loader._fetch.batches import data_batches, decode_batches
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.kafka_log import KafkaFetcher
from hadoop_loader._fetch.messages import (
    MAX_TIMESTAMP_MS,
    NO_SCHEMA,
    FetchedMessage,
    MessageColumns,
)
from hadoop_loader._fetch.ranges import FetchRange, OffsetGapError
from hadoop_loader._fetch.requests import FetchedPartition
from headworks._kafka.client_properties import client_properties
from headworks._kafka.records import Codec, InvalidBatchError, Record, encode_batch
from headworks._kafka.records.batch import APPEND_TIME, CONTROL, TRANSACTIONAL
from headworks._native import COMPILED
from headworks._server.child_process import Service
from headworks._wire import prefix
from headworks.errors import CorruptError, UnreachableError

pytestmark = pytest.mark.contract

FORMS = (False, True) if COMPILED else (False,)  # generated Python, and compiled code


def read(
    fetcher: BrokerFetcher | KafkaFetcher, ranges: Sequence[FetchRange]
) -> list[FetchedMessage]:
    found = [m for _, part in fetcher.fetch(ranges) for m in part]
    return sorted(found, key=lambda m: (m.partition, m.offset))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_gives_what_librdkafka_gives(broker: Service, codec: str) -> None:
    topic = f"loader.raw.{codec}"
    producer = Producer(
        {"bootstrap.servers": broker.address, "compression.type": codec, "linger.ms": 20}
    )
    for n in range(3000):
        value = None if n % 97 == 0 else b"value %d " % n * (n % 40)
        producer.produce(
            topic,
            value,
            key=[None, b"", b"k%d" % n][n % 3],
            timestamp=n if n % 500 else 2**62 + n,
            partition=n % 2,
        )
        if n % 700 == 0:
            producer.flush()
    producer.flush()
    client = client_properties(broker.address)
    ranges = [
        FetchRange(topic, 0, 10, 1490),
        FetchRange(topic, 1, 3, 700),
        FetchRange(topic, 1, 900, 1500),
    ]
    expected = read(KafkaFetcher(client), ranges)
    assert len(expected) == 1480 + 697 + 600
    assert {m.timestamp for m in expected if m.timestamp > 3000} == {MAX_TIMESTAMP_MS}
    for compiled in FORMS:
        with BrokerFetcher(client, compiled=compiled) as fetcher:
            assert read(fetcher, ranges) == expected
            assert read(fetcher, ranges[:1]) == expected[:1480]


def test_a_fetch_that_is_given_up_leaves_nothing_behind(broker: Service) -> None:
    topic = "loader.raw.given-up"
    producer = Producer({"bootstrap.servers": broker.address, "batch.size": 100_000})
    for n in range(300):
        producer.produce(topic, b"%d" % n + bytes(99_000), partition=0)
    producer.flush()
    with BrokerFetcher(client_properties(broker.address), compiled=False) as fetcher:
        _, first = next(iter(fetcher.fetch([FetchRange(topic, 0, 0, 300)])))
        assert 0 < len(first) < 300
        again = read(fetcher, [FetchRange(topic, 0, 0, 300)])
    assert [m.offset for m in again] == list(range(300))


def test_several_topics_are_read_at_once(broker: Service) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "batch.size": 100_000})
    sizes = {"loader.many.small": 10, "loader.many.large": 99_000, "loader.many.none": 0}
    for topic, size in sizes.items():
        for n in range(150):
            producer.produce(topic, b"%d" % n + bytes(size), partition=n % 2)
    producer.flush()
    names = sorted(sizes)
    ranges = [FetchRange(topic, p, 3, 75 - i) for i, topic in enumerate(names) for p in (0, 1)]
    expected = {(r.topic, r.partition): list(range(r.start, r.end)) for r in ranges}
    client = client_properties(broker.address)
    raw = BrokerFetcher(client, compiled=False)
    with raw:
        for fetcher in (raw, KafkaFetcher(client)):
            found: dict[tuple[str, int], list[int]] = {}
            for topic, part in fetcher.fetch(ranges):
                for m in part:
                    found.setdefault((topic, m.partition), []).append(m.offset)
                    assert len(m.value or b"") == sizes[topic] + len(
                        b"%d" % (2 * m.offset + m.partition)
                    )
            assert found == expected


def test_offsets_that_are_gone_are_told(broker: Service) -> None:
    topic = "loader.raw.gone"
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"v", partition=0)
    producer.flush()
    told = r"gone\[0\] offset 70, and perhaps more, was dropped by the broker's retention"
    with (
        BrokerFetcher(client_properties(broker.address)) as fetcher,
        pytest.raises(OffsetGapError, match=told) as caught,
    ):
        read(fetcher, [FetchRange(topic, 0, 70, 80)])
    assert "--skip-lost" in str(caught.value)
    with pytest.raises(OffsetGapError, match=told):
        read(KafkaFetcher(client_properties(broker.address)), [FetchRange(topic, 0, 70, 80)])


def test_a_silent_broker_is_unreachable() -> None:
    refused = BrokerFetcher(client_properties("127.0.0.1:1"), timeout=1)
    with pytest.raises(UnreachableError, match=r"broker 127\.0\.0\.1:1"):
        read(refused, [FetchRange("t", 0, 0, 5)])
    with listener(b"") as address:
        mute = BrokerFetcher(client_properties(address), timeout=1)
        with pytest.raises(UnreachableError, match="sends nothing"):  # by librdkafka
            read(mute, [FetchRange("t", 0, 0, 5)])


def test_a_broker_that_talks_nonsense_is_left_to_librdkafka() -> None:
    nonsense = struct.pack(">ii", 1 << 30, 7) + b"HTTP/1.1 400 Bad Request"
    with listener(nonsense) as address:
        fetcher = BrokerFetcher(client_properties(address), timeout=1)
        with pytest.raises(UnreachableError):
            read(fetcher, [FetchRange("t", 0, 0, 5)])


def test_a_connection_that_breaks_is_made_again(broker: Service) -> None:
    topic = "loader.raw.broken"
    producer = Producer({"bootstrap.servers": broker.address, "batch.size": 100_000})
    for n in range(300):
        producer.produce(topic, b"%d" % n + bytes(99_000), partition=0)
    producer.flush()
    with BrokerFetcher(client_properties(broker.address), compiled=False) as fetcher:
        found: list[int] = []
        for _, part in fetcher.fetch([FetchRange(topic, 0, 0, 300)]):
            if not found:
                for connection in fetcher._connections.values():
                    connection._socket.shutdown(socket.SHUT_RDWR)
            found += [m.offset for m in part]
    assert found == list(range(300))


@contextmanager
def listener(reply: bytes) -> Iterator[str]:
    """A server that sends `reply` to everyone who says something, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):  # who hung up is not told
                    connection.recv(1000)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def record(offset: int, value: bytes | None = b"v", timestamp: int = 1000) -> Record:
    return Record(offset, timestamp, None, value, ())


def fetched(
    *batches: bytes, aborted: tuple[tuple[int, int], ...] = (), partition: int = 0
) -> FetchedPartition:
    return FetchedPartition("t", partition, 0, 1 << 40, aborted, memoryview(b"".join(batches)))


def offsets(reply: FetchedPartition, start: int = 0) -> tuple[list[int], int]:
    found, position, damage = data_batches(reply, start)
    assert damage is None
    both = [[m.offset for part in decode_batches(found, compiled=c) for m in part] for c in FORMS]
    assert both[0] == both[-1]
    return both[0], position


def test_control_and_aborted_batches_are_no_messages() -> None:
    def of(producer: int, base: int, *, attributes: int = TRANSACTIONAL) -> bytes:
        return encode_batch(
            [record(base), record(base + 1)],
            base_offset=base,
            producer=(producer, 0, 0),
            attributes=attributes,
        )

    end = TRANSACTIONAL | CONTROL
    batches = [
        of(1, 0),  # aborted
        of(2, 2),  # committed
        of(1, 4),  # aborted
        of(-1, 6, attributes=0),
        of(1, 8, attributes=end),
        of(1, 10),  # a later transaction of the same producer
        of(2, 12, attributes=end),
    ]
    assert offsets(fetched(*batches, aborted=((1, 0),))) == ([2, 3, 6, 7, 10, 11], 14)
    assert offsets(fetched(*batches[-1:]), 12) == ([], 14)


def test_a_batch_that_the_reply_cuts_is_left_for_the_next() -> None:
    whole = encode_batch([record(n) for n in range(3)])
    cut = encode_batch([record(n) for n in range(3)], base_offset=3)[:-1]
    assert offsets(fetched(whole, cut)) == ([0, 1, 2], 3)
    assert offsets(fetched(cut), 3) == ([], 3)


def test_the_logs_own_time_counts_for_all_records() -> None:
    batch = encode_batch([record(0, timestamp=5), record(1, timestamp=9)], attributes=APPEND_TIME)
    for compiled in FORMS:
        (found,) = decode_batches(data_batches(fetched(batch), 0)[0], compiled=compiled)
        assert [m.timestamp for m in found] == [9, 9]


def test_damage_is_told() -> None:
    batch = bytearray(encode_batch([record(n, bytes(50)) for n in range(3)]))
    batch[80] ^= 1
    intact = encode_batch([record(n) for n in range(2)])
    found, position, damage = data_batches(fetched(intact + bytes(batch)), 0)
    assert (len(found), position) == (1, 2), "what is before it is read"
    assert isinstance(damage, InvalidBatchError)
    assert damage.message.startswith("CRC32C is ")
    lies = encode_batch([record(0)] * 3, codec=Codec.NONE)
    body = bytearray(lies)
    body[61] = 126  # the first record is longer than the batch
    from crc32c import crc32c

    struct.pack_into(">I", body, 17, crc32c(bytes(body[21:])))
    found, _, _ = data_batches(fetched(bytes(body)), 0)
    for compiled in FORMS:
        with pytest.raises(CorruptError):
            list(decode_batches(found, compiled=compiled))
    many = bytearray(lies)
    struct.pack_into(">i", many, 57, 1 << 30)
    struct.pack_into(">I", many, 17, crc32c(bytes(many[21:])))
    found, _, _ = data_batches(fetched(bytes(many)), 0)
    with pytest.raises(CorruptError, match="do not fit"):
        list(decode_batches(found))


def test_schema_ids_are_read_for_all_at_once() -> None:
    values = [prefix(7) + b"x", None, b"", b"\0\0\0", b"\1" + bytes(9), prefix(2**32 - 1)]
    found = MessageColumns.of(
        FetchedMessage(0, n, 0, None, value) for n, value in enumerate(values)
    )
    assert found.schema_ids().to_pylist() == [
        7,
        NO_SCHEMA,
        NO_SCHEMA,
        NO_SCHEMA,
        NO_SCHEMA,
        2**32 - 1,
    ]
    assert [m.value for m in found] == values
    assert [m.offset for m in found[1:3]] == [1, 2]
