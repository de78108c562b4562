"""Reading a log: against the real broker, and what a log with gaps sends."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from hadoop_loader._fetch.kafka_log import KafkaFetcher, KafkaLog
from hadoop_loader._fetch.ranges import FetchRange, Watermarks
from headworks._kafka.client_properties import client_properties
from headworks._server.child_process import Service
from headworks.errors import UnreachableError

pytestmark = pytest.mark.unit

TOPIC = "loader.fetch"


@pytest.mark.e2e
def test_reads_ranges_exactly(broker: Service) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for n in range(500):
        producer.produce(TOPIC, str(n).encode(), key=b"k", timestamp=1000 + n)
    producer.flush()
    log = KafkaLog(client_properties(broker.address))
    partitions = log.partitions()
    assert TOPIC in partitions
    assert not [name for name in partitions if name.startswith("__")]
    marks = log.watermarks({TOPIC: partitions[TOPIC]})[TOPIC]
    (used,) = [p for p, mark in marks.items() if mark.high]
    assert marks[used] == Watermarks(0, 500)
    ranges = [FetchRange(TOPIC, used, 10, 200), FetchRange(TOPIC, used, 450, 500)]
    found = [
        m
        for _, batch in KafkaFetcher(client_properties(broker.address)).fetch(ranges)
        for m in batch
    ]
    assert [m.offset for m in found] == [*range(10, 200), *range(450, 500)]
    assert (found[0].value, found[0].key, found[0].timestamp) == (b"10", b"k", 1010)


@pytest.mark.seconds
def test_a_silent_broker_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match=r"broker 127\.0\.0\.1:1"):
        KafkaLog(client_properties("127.0.0.1:1"), timeout=1).partitions()
    fetcher = KafkaFetcher(client_properties("127.0.0.1:1"), timeout=1)
    with pytest.raises(UnreachableError):
        list(fetcher.fetch([FetchRange("t", 0, 0, 5)]))


class Sent:
    """A message as librdkafka gives it."""

    def __init__(self, partition: int, offset: int, error: Any = None) -> None:
        self._at, self._error = (partition, offset), error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def error(self) -> Any:
        return self._error

    def timestamp(self) -> tuple[int, int]:
        return (0, -1)

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"


def test_gaps_end_a_range_where_it_ends() -> None:
    fetcher = KafkaFetcher(client_properties(""))
    ends = {("t", partition): 10 for partition in range(4)}
    end_of_partition = KafkaError(KafkaError._PARTITION_EOF)
    sent = [
        Sent(0, 3),
        Sent(0, 12),  # the range ends in a gap: the next message is behind it
        Sent(0, 13),
        Sent(1, 9),  # the last offset itself
        Sent(2, 5),
        Sent(2, 10, end_of_partition),  # the log ends with a gap
        Sent(3, 7, end_of_partition),  # the end was reached, but more is to come
    ]
    starts = dict.fromkeys(ends, 0)
    messages, done, damaged = fetcher._sort_out(sent, ends, starts)
    assert (damaged, starts["t", 2]) == ({}, 6)
    assert [(m.partition, m.offset, m.timestamp) for m in messages["t"]] == [
        (0, 3, 0),
        (1, 9, 0),
        (2, 5, 0),
    ]
    assert done == [("t", 0), ("t", 1), ("t", 2)]
    assert ends == {("t", 3): 10}
