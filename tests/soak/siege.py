"""A siege: attackers around a broker, a canary inside, and what must hold all the time.

The canary is a well-behaved client on a connection of its own: it produces and reads back, over and
over. Attackers are threads that call a function again and again until the end.

What must hold: the canary goes on, memory stays bounded, no socket is left when everybody has gone,
the broker stops when it is told, and its log holds neither a traceback nor an "internal error".
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from headworks._kafka.protocol.apis import ApiKey
from tests.broker.build import batch
from tests.broker.wire import Wire, fetch, fetched, produce, produced
from tests.soak.process import Broker

CANARY = "canary"
# A bound for every answer and every end: one that a loaded machine keeps, and shorter than the
# time after which the broker sends the silent away by itself.
SECONDS = 45.0
_PATIENCE = 120.0  # that a slow machine may take on top to see enough
_MB = 1 << 20
_ATTACKERS = 3
_GROWTH = 96 * _MB


@dataclass(slots=True)
class Report:
    """What a fuzzing run did; `wrong` must be empty."""

    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    memory: tuple[int, int] = (0, 0)  # after warming up, and at most afterwards
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.most_common())
        warm, most = (size // _MB for size in self.memory)
        lines = [f"{self.seconds:.0f} s: {counts}", f"slowest {self.slowest * 1000:.0f} ms"]
        if most:
            lines.append(f"memory {warm} MB, at most {most} MB")
        return "\n".join([*lines, *self.wrong])


def besiege(
    broker: Broker,
    wire: Wire,
    attack: Callable[[Random, Report], None],
    seconds: float,
    seed: int,
    least: Mapping[str, int],
) -> Report:
    """Attack for so long, and until the report counts so much; the broker is stopped at the end.

    `wire` is the canary's connection.
    """
    report, stop = Report(), threading.Event()

    def attacker(random: Random) -> None:
        while not stop.is_set() and not report.wrong:
            try:
                attack(random, report)
            except Exception as error:
                report.wrong.append(f"an attacker failed: {error!r}")

    threads = [threading.Thread(target=sing, args=(wire, report, stop))]
    threads += [
        threading.Thread(target=attacker, args=(Random(seed + n),)) for n in range(_ATTACKERS)
    ]
    try:
        sockets = _sockets(broker.pid)
        for thread in threads:
            thread.start()
        _watch(broker, report, seconds, least)
        stop.set()
        for thread in threads:
            thread.join()
        if broker.alive:
            _check_sockets(broker.pid, sockets, report)
        else:
            report.wrong.append("the broker died")
    finally:
        stop.set()
        if broker.stop():
            report.wrong.append("the broker did not stop by itself")
    words = broker.words()
    report.wrong += [f"the log holds {w!r}" for w in ("Traceback", "internal error") if w in words]
    return report


def _watch(broker: Broker, report: Report, seconds: float, least: Mapping[str, int]) -> None:
    process, began = psutil.Process(broker.pid), time.monotonic()
    while not report.wrong and broker.alive:
        passed = time.monotonic() - began
        missing = {name for name, count in least.items() if report.counts[name] < count}
        if passed > seconds and not missing:
            break
        if passed > seconds + _PATIENCE:
            report.wrong.append(f"too little was seen of: {', '.join(sorted(missing))}")
        used = process.memory_info().rss
        warming = passed < min(60.0, seconds / 2)
        report.memory = (used, used) if warming else (report.memory[0], max(report.memory[1], used))
        time.sleep(0.2)
    report.seconds = time.monotonic() - began
    if report.memory[1] - report.memory[0] > _GROWTH:
        report.wrong.append(f"memory grew from {report.memory[0]} to {report.memory[1]}")


def _sockets(pid: int) -> int:
    return sum(path.startswith("socket:") for path in _open_files(pid))


def _open_files(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield str(entry.readlink())


def _check_sockets(pid: int, before: int, report: Report) -> None:
    end = time.monotonic() + SECONDS
    while (now := _sockets(pid)) > before and time.monotonic() < end:
        time.sleep(0.1)
    if now > before:
        report.wrong.append(f"{now} sockets are open after everybody left, {before} were before")


def sing(wire: Wire, report: Report, stop: threading.Event, topic: str = CANARY) -> None:
    """The canary; the topic is new."""
    number = 0
    try:
        while not stop.is_set():
            began = time.monotonic()
            wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, bytes(batch(1)), acks=-1))
            if (answer := produced(wire.receive()[1], topic)) != (0, number):
                report.wrong.append(f"the canary's message {number} was answered {answer}")
                return
            wire.send(ApiKey.FETCH, 11, fetch(topic, 0, number))
            error, end, records = fetched(wire.receive()[1])
            if (error, end) != (0, number + 1) or not records:
                report.wrong.append(f"the canary read {error}, {end} at {number}")
                return
            report.slowest = max(report.slowest, time.monotonic() - began)
            report.counts["songs of the canary"] += 1
            number += 1
            stop.wait(0.01)
    except (OSError, EOFError) as error:
        report.wrong.append(f"the canary's connection failed: {error!r}")
