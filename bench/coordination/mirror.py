"""The mirror beside a plain consumer and a plain producer, all three in Python, on two brokers.

Rules: the consumer only reads and the producer only writes, each as fast as confluent_kafka allows.
The mirror does both at once. All move the same messages in the same partitions, uncompressed, with
the same acknowledgments. The mirror's clock runs from its first message on the target to its last,
so its start is not measured. The bar is the best that a program of one thread could do: the
consumer's time and the producer's, one after the other.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.frame import Bench
from bench.processes import Usage
from headworks._server import child_process
from headworks.errors import UnreachableError

_PARTITIONS = 4
_SIZES = (200, 1000)
_MB = 1e6
_US, _READ, _WRITE = "headworks mirror", "plain consumer", "plain producer"
_BOTH = "one after the other"
_LIMIT = 600.0


@dataclass(frozen=True, slots=True)
class _Load:
    """So many messages of one size."""

    size: int
    count: int

    @property
    def mb(self) -> float:
        return self.size * self.count / _MB


def run(bench: Bench) -> None:
    """Measure all three with small and with larger messages."""
    total = 100e6 if bench.quick else 250e6
    loads = [_Load(size, int(total / size)) for size in _SIZES]
    folder = bench.folder / "mirror"
    with _broker(folder / "source") as source, _broker(folder / "target") as target:
        for number in bench.rounds(full=3):
            for load in loads:
                topic = f"mirror-{load.size}-{number}"
                _create(source.address, topic)
                _create(target.address, f"{topic}-plain")
                what = f"messages of {load.size} bytes"
                writing = _write(target.address, f"{topic}-plain", load)
                bench.record(what, _WRITE, load.mb / writing, "MB/s")
                _write(source.address, topic, load)
                reading = _read(source.address, topic, load)
                bench.record(what, _READ, load.mb / reading, "MB/s")
                bench.record(what, _BOTH, load.mb / (reading + writing), "MB/s")
                _mirror(bench, what, source.address, target.address, topic, load)
                for address, name in ((source, topic), (target, topic), (target, f"{topic}-plain")):
                    _drop(address.address, name)
    for load in loads:
        what = f"messages of {load.size} bytes"
        bench.bar(
            f"the mirror against {_BOTH}, {what}",
            at_least=0.8,
            unit="x",
            got=bench.ratio(what, _US, _BOTH),
        )


def _broker(folder: object) -> child_process.Service:
    return child_process.start(
        ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
    )


def _create(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(30)


def _drop(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic])[topic].result(60)


def _write(address: str, topic: str, load: _Load) -> float:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 900_000,
            "queue.buffering.max.kbytes": 32 << 10,
        }
    )
    value = os.urandom(load.size)
    began = time.monotonic()
    for number in range(load.count):
        while True:
            try:
                producer.produce(topic, value, partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(_LIMIT):
        raise UnreachableError(f"the broker at {address} did not take all messages of {topic}")
    return time.monotonic() - began


def _read(address: str, topic: str, load: _Load) -> float:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(_PARTITIONS)])
    began, found = time.monotonic(), 0
    while found < load.count:
        for message in consumer.consume(2000, 0.1):
            found += message.error() is None and len(message.value() or b"") == load.size
        if time.monotonic() - began > _LIMIT:
            raise UnreachableError(f"the broker at {address} did not give all messages of {topic}")
    seconds = time.monotonic() - began
    consumer.close()
    return seconds


def _mirror(bench: Bench, what: str, source: str, target: str, topic: str, load: _Load) -> None:
    arguments = [
        "mirror", "--from", source, "--to", target, "--topics", re.escape(topic),
        "--name", topic, "--no-audit", "--compression", "none",
        "--data-dir", str(bench.folder / "mirror"),
    ]  # fmt: skip
    consumer = Consumer({"bootstrap.servers": target, "group.id": "bench"})
    with child_process.start(arguments) as running:
        usage = Usage(running.process.pid)
        ends = [0]
        while not ends[-1]:
            ends = [_written(consumer, topic)]
            time.sleep(0.01)
        began, first, before = time.monotonic(), ends[-1], usage.now().cpu
        while (now := _written(consumer, topic)) < load.count:
            if time.monotonic() - began > _LIMIT:
                raise UnreachableError(f"the mirror has copied {now} of {load.count} messages")
            time.sleep(0.02)
        seconds = time.monotonic() - began
        cpu = usage.now().cpu - before
    consumer.close()
    moved = load.count - first
    bench.record(
        what,
        _US,
        moved * load.size / _MB / seconds,
        "MB/s",
        cpu=1e6 * cpu / moved,
        cpu_unit="us/message",
    )


def _written(consumer: Consumer, topic: str) -> int:
    """How many messages the copy has."""
    found = consumer.list_topics(topic, timeout=30).topics[topic]
    if found.error is not None:
        return 0
    places = [TopicPartition(topic, index) for index in found.partitions]
    return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
