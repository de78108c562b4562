"""Every call of `send` to a broker that accepts connections and never answers, timed.

The slowest thousandth of short calls is mostly the machine's: whatever runs when the processor is
taken away for a moment is slow. So stretches of sends alternate with stretches of two controls, and
a reader can compare the three in one run:

- a loop of Python that calls nothing, and whose median follows that of `send`;
- the client of librdkafka alone, given ready bytes, which takes less time than `send`.
"""

from __future__ import annotations

import gc
import resource
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from statistics import median, quantiles

import confluent_kafka

from bench.frame import Bench
from bench.sdk.events import TOPIC, Measured
from producer_sdk import Producer
from producer_sdk._hung_broker import HungBroker

US = "headworks"
ALONE = "no SDK: a loop that takes as long as `send`"
CLIENT = "confluent-kafka, ready bytes"
P50 = "send to a broker that hangs, p50"
P999 = "send to a broker that hangs, p99.9"
MEMORY = "memory after the queue is full"
_STRETCH = 2_000  # calls


class _Loop:
    """A call that does nothing for as long as another call took."""

    def __init__(self) -> None:
        self._turns = range(100)

    def __call__(self) -> None:
        for _ in self._turns:
            pass

    def follow(self, theirs: float, mine: float) -> None:
        """Take as long as the other call, whose median and mine are given."""
        self._turns = range(max(1, round(len(self._turns) * theirs / mine)))


def measure_hanging(bench: Bench, measured: Measured, registry: str) -> None:
    """Measure some rounds, each with a new producer whose queue is full after half of the calls."""
    count = 20_000 if bench.quick else 200_000
    for number in bench.rounds(full=5):
        with HungBroker() as broker:
            producer = Producer(
                broker.address,
                registry,
                application="bench-hung",
                events=(measured.module.PageView,),
                state_dir=bench.folder / f"state-hung-{number}",
                queue_messages=count // 2,
                close_timeout=0.1,
            )
            try:
                _measure(bench, measured, producer, _client(broker.address, count // 2), count)
            finally:
                producer.close()


def hanging_bars(bench: Bench) -> None:
    """Hold `send` to its bars."""
    bench.bar(P999, at_most=100, got=bench.median(P999, US), unit="us")
    bench.bar(MEMORY, at_most=4, got=bench.median(MEMORY, US), unit="MB more")
    alone = bench.median(P999, ALONE)
    if alone is not None:
        bench.note(
            f"{P999}: of it, the machine alone takes {alone:.4g} us, with calls that use no SDK"
            " and take as long."
        )


def _client(address: str, queue_messages: int) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "compression.type": "zstd",
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": queue_messages,
            "log_level": 2,
        }
    )


def _measure(
    bench: Bench,
    measured: Measured,
    producer: Producer,
    client: confluent_kafka.Producer,
    count: int,
) -> None:
    event, loop = measured.event, _Loop()
    value = measured.module.PageView.__headworks__.encode(event)

    def produce() -> None:
        with suppress(BufferError):
            client.produce(TOPIC, value, b"123456789")

    calls: dict[str, Callable[[], object]] = {
        US: lambda: producer.send(event),
        ALONE: loop,
        CLIENT: produce,
    }
    # The memory of all results is there at the beginning: it is not what a full queue takes.
    spent = {who: array("d", bytes(8 * count)) for who in calls}
    full = 0
    gc.collect()
    for first in range(0, count, _STRETCH):
        if first == count * 6 // 10:
            full = _resident()
        for who, call in calls.items():
            _time(call, spent[who], first)
        sends, alone = (median(spent[who][first : first + _STRETCH]) for who in (US, ALONE))
        loop.follow(sends, alone)
    more = max(0.0, (_resident() - full) / 1024)
    client.purge()
    for who, seconds in spent.items():
        bench.record(P50, who, 1e6 * median(seconds), "us")
        bench.record(P999, who, 1e6 * quantiles(seconds, n=1000)[998], "us")
    bench.record(MEMORY, US, more, "MB more")


def _time(call: Callable[[], object], spent: array[float], first: int) -> None:
    """Note the seconds of each call of a stretch, from place `first` on."""
    clock = time.perf_counter
    for n in range(first, first + _STRETCH):
        began = clock()
        call()
        spent[n] = clock() - began


def _resident() -> int:
    """Return the most memory that this process has had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
