"""More of everything: consumers, backlog, partitions, connections; and memory throughout.

Rules: our broker alone; the ratio of a large case to a small one is what counts. Both backlogs are
read from the disk, not from the page cache, so that neither has an advantage.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
from pathlib import Path

from bench.broker.clients import Clients, collect, spawn
from bench.broker.contender import SIZE
from bench.broker.kafka_like import BATCHES, KafkaLike
from bench.frame import Bench

_US = "headworks"
_RATE = "messages/s"
_ERROR_AFTER_NAME = 4 + 4 + 4 + 2 + 4 + 4  # of a produce reply's frame, but for the topic's name
_ON_DISK = SIZE + 10  # bytes of a message in large batches


def run(bench: Bench, ours: KafkaLike, clients: Clients) -> None:
    """Measure all, memory between."""
    _memory(bench, ours, "before")
    for number in bench.rounds(full=3):
        _consumers(bench, ours, number)
    one, many = "read by 1 at a time, CPU", "read by 16 at a time, CPU"
    cost = bench.ratio(many, _US, _US, other_what=one)
    bench.bar("CPU per GB of fetch, 16 consumers over 1", at_most=1.25, got=cost, unit="x")
    _backlog(bench, ours)
    _memory(bench, ours, "after the backlog")
    growth = bench.ratio("memory after the backlog", _US, _US, other_what="memory before")
    bench.bar("memory after the backlog, over before", at_most=1.25, got=growth, unit="x")
    _partitions(bench, ours)
    _connections(bench, ours, clients)
    _memory(bench, ours, "at the end")


def _memory(bench: Bench, ours: KafkaLike, when: str) -> None:
    bench.record(f"memory {when}", _US, ours.spent().resident / 1e6, "MB")


def _consumers(bench: Bench, ours: KafkaLike, number: int) -> None:
    count = 100_000 if bench.quick else 1_000_000
    topic = f"consumers-{number}"
    ours.create(topic)
    ours.send(topic, count, *BATCHES["1 MB batches"])
    gigabytes = ours.stored(topic) / 1e9
    for consumers in (1, 4, 16):
        before, began = ours.spent(), time.monotonic()
        for _ in range(16 // consumers):  # every case reads all of it sixteen times
            ours.read_all([topic] * consumers, count)
        seconds = time.monotonic() - began
        cpu = (ours.spent().cpu - before.cpu) / (16 * gigabytes)
        rate = 1000 * 16 * gigabytes / seconds
        bench.record(f"read by {consumers} at a time", _US, rate, "MB/s")
        bench.record(f"read by {consumers} at a time, CPU", _US, cpu, "s/GB")
    ours.drop(topic)


def _backlog(bench: Bench, ours: KafkaLike) -> None:
    """The same gigabyte is sent and read with 1 GB in the log, and all of it with 20 GB."""
    small, large = (0.05, 0.25) if bench.quick else (1, 20)
    free = shutil.disk_usage(bench.folder).free / 1e9
    if free < large + 5:
        bench.missing(f"{large} GB of backlog", f"only {free:.0f} GB of disk are free")
        large = 0
    topic, step = "backlog", int(small * 1e9 / _ON_DISK)
    ours.create(topic)
    sent = ours.send(topic, step, *BATCHES["1 MB batches"])
    bench.record("send to an empty log", _US, sent.rate, _RATE)
    _forget_pages(ours.topic_folder(topic))
    first = ours.read(topic, step)
    bench.record(f"read {small} GB of backlog from disk", _US, first.rate, _RATE)
    got = None
    if large:
        more = int(large * 1e9 / _ON_DISK) - 2 * step
        bench.say(f"filling up to {large} GB")
        ours.send(topic, more, *BATCHES["1 MB batches"])
        os.sync()
        sent = ours.send(topic, step, *BATCHES["1 MB batches"])
        bench.record(f"send to a log of {large} GB", _US, sent.rate, _RATE)
        _forget_pages(ours.topic_folder(topic))
        whole = ours.read(topic, more + 2 * step)
        bench.record(f"read {large} GB of backlog from disk", _US, whole.rate, _RATE)
        got = whole.rate / first.rate
    bench.bar("reading 20 GB of backlog, over 1 GB", at_least=0.9, got=got, unit="x")
    ours.drop(topic)


def _forget_pages(folder: Path) -> None:
    """Write the files' dirty pages and take all of them out of the page cache."""
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _partitions(bench: Bench, ours: KafkaLike) -> None:
    count = 200_000 if bench.quick else 2_000_000
    for partitions in (1, 200 if bench.quick else 1000):
        topic = f"partitions-{partitions}"
        began = time.monotonic()
        ours.create(topic, partitions)
        bench.record(
            f"create {partitions} partitions", _US, 1000 * (time.monotonic() - began), "ms"
        )
        sent = ours.send(topic, count, "linger.ms=50", partitions=partitions)
        bench.record(f"send to {partitions} partitions", _US, sent.rate, _RATE)
        read = ours.read(topic, count, partitions=partitions)
        bench.record(f"read {partitions} partitions", _US, read.rate, _RATE)
        if partitions > 1:
            _memory(bench, ours, f"with {partitions} partitions")
        ours.drop(topic)


def _connections(bench: Bench, ours: KafkaLike, clients: Clients) -> None:
    """Sends of one message with one request at a time a connection."""
    topic = "connections"
    ours.create(topic)
    file = bench.folder / "request"
    file.write_bytes(_produce_request(topic))
    error_at = str(_ERROR_AFTER_NAME + len(topic))
    host, _, port = ours.address.rpartition(":")
    for what, peers, idle in (
        ("1 connection", 1, 0),
        ("10 connections", 10, 0),
        ("10 connections beside 990 idle", 10, 990),
        ("1,000 connections", 1000, 0),
    ):
        count = 10_000 if bench.quick or peers == 1 else 200_000
        shape = (str(peers), str(idle), str(count), str(file), error_at)
        before = ours.spent()
        running = spawn(clients.many(host, port, *shape))
        answer = collect(running)
        cpu = 1e6 * (ours.spent().cpu - before.cpu) / count
        bench.record(what, _US, answer.rate, "requests/s", cpu=cpu, cpu_unit="us/request")
        bench.record(f"{what}, p50", _US, 1e6 * answer.p50, "us")
        bench.record(f"{what}, p99", _US, 1e6 * answer.p99, "us")
    ours.drop(topic)


def _produce_request(topic: str) -> bytes:
    """A whole produce request (version 7, acks=1) of one batch of one message for partition 0."""
    from headworks._kafka.records import Record, encode_batch

    now = int(1000 * time.time())
    batch = encode_batch([Record(0, now, None, bytes(SIZE), ())])
    name, client = topic.encode(), b"bench"
    request = b"".join(
        (
            struct.pack(">hhih", 0, 7, 1, len(client)) + client,
            struct.pack(">hhii", -1, 1, 30_000, 1),  # no transaction, acks=1, timeout, one topic
            struct.pack(">h", len(name)) + name,
            struct.pack(">iii", 1, 0, len(batch)) + batch,
        )
    )
    return struct.pack(">i", len(request)) + request
