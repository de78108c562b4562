"""The experiment of the NetDB'11 paper: one producer, then one consumer that reads all.

200-byte messages, batches of 1 and of 50 (and of 1 MB), files flushed asynchronously. Only Kafka's
protocol has batches; the others send message by message, as in the paper.

Rules:

- All contenders run at once, and are idle while one works. Each does every case in each round, and
  each log is read several times.
- Before a case begins, dirty pages of the page cache are written, its own pages are used once, and
  the machine is idle. No contender pays for another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bench.broker.contender import SIZE, Contender
from bench.frame import Bench
from bench.machine import let_others_rest, touch_pages
from headworks.errors import HeadworksError

_RATE = "messages/s"
_COST = "us/message"
# Messages per case: as many as take some seconds.
_COUNTS = {
    "RabbitMQ": 200_000,
    "ActiveMQ": 150_000,
    "NATS JetStream": 1_000_000,
    "Apache Kafka, batch 1": 150_000,
    "batch 1": 500_000,
    "batch 50": 4_000_000,
    "1 MB batches": 5_000_000,
}
_QUICK, _WARM = 20, 5  # times fewer, in a quick run and to warm up
_READINGS = 3  # of all of it, by a new consumer each


def run(bench: Bench, contenders: Sequence[Contender]) -> None:
    """Measure everybody in each round, and judge."""
    lost: set[str] = set()
    for contender in contenders:
        bench.note(f"{contender.name}: {contender.client}")
    bench.say("warming up")
    _all(bench, contenders, -1, lost)
    for number in bench.rounds(full=5):
        _all(bench, contenders, number, lost)
    _bars(bench)


def _all(bench: Bench, contenders: Sequence[Contender], number: int, lost: set[str]) -> None:
    for contender in contenders:
        for batch in contender.batches:
            if contender.name in lost:
                continue
            try:
                _case(bench, contender, batch, number)
            except HeadworksError as error:
                if contender.name == "headworks":
                    raise
                lost.add(contender.name)
                bench.missing(contender.name, str(error))


def _case(bench: Bench, contender: Contender, batch: str, number: int) -> None:
    """One production and one consumption; round -1 warms up and is not recorded."""
    name = contender.name
    count = _COUNTS.get(name) or _COUNTS.get(f"{name}, {batch}") or _COUNTS[batch]
    count //= _QUICK if bench.quick else 1
    count //= _WARM if number < 0 else 1
    queue = f"netdb-{batch.replace(' ', '-')}-{number + 1}"
    let_others_rest()
    touch_pages(bench.folder, count * SIZE * 3 // 2)
    os.sync()
    before, on_disk = contender.spent(), contender.stored(queue)
    sent = contender.produce(queue, count, batch)
    between = contender.spent()
    os.sync()
    taken = contender.stored(queue) - on_disk
    done = [("produce", sent, between.cpu - before.cpu)]
    for _ in range(_READINGS if contender.rereads else 1):
        read, then = contender.consume(queue, count), contender.spent()
        done.append(("consume", read, then.cpu - between.cpu))
        between = then
    contender.drop(queue)
    if number < 0:
        return
    for what, answer, cpu in done:
        cost = 1e6 * cpu / (count + contender.warming)
        bench.record(f"{what}, {batch}", name, answer.rate, _RATE, cpu=cost, cpu_unit=_COST)
    overhead = taken / (count + contender.warming) - SIZE
    bench.record(f"disk, {batch}", name, overhead, "bytes over a message's own")


def _bars(bench: Bench) -> None:
    us = "headworks"
    for what, peer, least in (
        ("produce, batch 1", "RabbitMQ", 3.0),
        ("produce, batch 1", "ActiveMQ", 5.0),
        ("produce, batch 50", "RabbitMQ", 50.0),
        ("produce, batch 50", "NATS JetStream", 6.0),
        ("consume, batch 50", "NATS JetStream", 7.0),
        ("produce, batch 1", "Apache Kafka", 0.7),
        ("produce, batch 50", "Apache Kafka", 1.0),
        ("produce, 1 MB batches", "Apache Kafka", 1.0),
        ("consume, batch 50", "Apache Kafka", 1.0),
        ("consume, 1 MB batches", "Apache Kafka", 1.0),
    ):
        verb = what.partition(",")[0]
        theirs = what if peer == "Apache Kafka" else f"{verb}, batch 1"
        got = bench.ratio(what, us, peer, other_what=theirs)
        bench.bar(f"{what}, against {peer}", at_least=least, got=got, unit="x")
    bench.bar(
        "disk overhead, batch 50",
        at_most=10.5,
        got=bench.median("disk, batch 50", us),
        unit="bytes/message",
    )
