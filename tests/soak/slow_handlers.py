"""Members whose handlers take their time, while members join and leave their group.

Rules:

- Every choice comes from the seed. A member leaves by `close`; none is killed.
- No member is evicted: each message takes less than `max.poll.interval.ms`, though what is fetched
  takes longer.
- Afterwards every message was handled. A member reads each partition in order from where the last
  commit stands, so only a message that was in hand when its partition went away is handled twice.
- Half of the members handle several messages at once. They may also repeat what they finished
  behind a message in hand: no more than they had in memory, for each partition that went away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumer_sdk import Consumer, Consumers, Message, OnPoison
from consumer_sdk._retry import handler_of
from headworks._server import child_process
from tests.consumer_sdk.zookeeper_group.cluster import fill
from tests.waiting import until

_TOPIC = "slow"
_PARTITIONS = 6
_INTERVAL_MS = 6_000
_CONCURRENCY = 4
_IN_MEMORY = 8 * _CONCURRENCY  # messages of a member that handles several at once
_CONFIG = {
    "session.timeout.ms": 3_000,
    "heartbeat.interval.ms": 300,
    "max.poll.interval.ms": _INTERVAL_MS,
}


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    messages: int
    handled: int
    twice: int
    joins: int
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        lines = f"{self.messages} messages, {self.handled} handled, {self.twice} of them twice,"
        return "\n".join([f"{lines} {self.joins} joins in {self.seconds:.0f} s", *self.wrong[:20]])


@dataclass
class Member:
    """One member of the group, in a thread of its own, and the messages that it handled."""

    bootstrap: str
    registry: str
    pace: tuple[float, float]  # seconds a message takes, at least and at most
    random: Random
    concurrency: int
    # The offsets of each partition, in runs: one from each assignment on.
    runs: dict[int, list[list[int]]] = field(default_factory=dict)
    leaving: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.app = Consumers(group="slow")
        # Its events are dicts, which have no handlers in the public interface.
        handler = handler_of(self._handle, None, OnPoison.STOP, concurrency=self.concurrency)
        self.app._register(dict, handler)
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def leave(self) -> None:
        """Leave the group after the current messages."""
        self.leaving.set()
        self.app.stop()

    def _work(self) -> None:
        try:
            consumer = Consumer[dict[str, Any]](
                topics=[_TOPIC],
                group="slow",
                bootstrap=self.bootstrap,
                registry=self.registry,
                config=_CONFIG,
                commit_every=0.5,
            )
            if self.concurrency > 1:
                self.app.run(consumer)
                return
            with consumer:
                while not self.leaving.is_set():
                    message = consumer.poll(0.2)
                    if message is not None:
                        self._handle(message)
        except BaseException as error:
            self.error = error

    def _handle(self, message: Message[dict[str, Any]]) -> None:
        runs = self.runs.setdefault(message.partition, [])
        if self.concurrency > 1 or not runs or runs[-1][-1] + 1 != message.offset:
            runs.append([message.offset])
        else:
            runs[-1].append(message.offset)
        time.sleep(self.random.uniform(*self.pace))


class Warnings(logging.Handler):
    """Collects the warnings of consumers: an eviction is one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of `headworks.consumer`."""
    handler, log = Warnings(), logging.getLogger("headworks.consumer")
    log.addHandler(handler)
    try:
        yield handler.lines
    finally:
        log.removeHandler(handler)


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def campaign(folder: Path, seconds: float, seed: int) -> Report:
    """Run a group on servers of its own for about so long."""
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(folder / "broker")]
    store = f"sqlite:///{folder}/registry.db"
    with (
        child_process.start(["broker", "start", *arguments]) as broker,
        child_process.start(
            ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
        ) as registry,
    ):
        return work(broker.address, registry.url, seconds, seed, slowest=4.0)


def work(bootstrap: str, registry: str, seconds: float, seed: int, *, slowest: float) -> Report:
    """Handle messages in members that come and go, and judge what they did."""
    random, began = Random(seed), time.monotonic()
    pace = 0.01, slowest
    count = int(seconds / sum(pace) * 2 * 3)  # three members need about so long
    create(bootstrap, _TOPIC, _PARTITIONS)
    fill(bootstrap, registry, _TOPIC, range(count), _PARTITIONS)

    def member() -> Member:
        concurrency = random.choice([1, _CONCURRENCY])
        return Member(bootstrap, registry, pace, Random(random.random()), concurrency)

    with collected_warnings() as warnings:
        members, gone = [member()], []
        while time.monotonic() - began < seconds:
            time.sleep(random.uniform(0.5, min(5.0, seconds / 4)))
            if len(members) > 1 and random.random() < 0.4:
                leaving = members.pop(random.randrange(len(members)))
                leaving.leave()
                gone.append(leaving)
            elif len(members) < 5:
                members.append(member())
        until(lambda: _handled(members + gone) >= count or _failed(members + gone), 120 + seconds)
        for each in members + gone:
            until(lambda each=each: each.leave() or not each.thread.is_alive(), 60)  # type: ignore[misc]
    return _judge(members + gone, count, warnings, time.monotonic() - began)


def _handled(members: list[Member]) -> int:
    return len(_offsets(members))


def _failed(members: list[Member]) -> bool:
    return any(each.error is not None for each in members)


def _offsets(members: list[Member]) -> Counter[tuple[int, int]]:
    return Counter(
        (partition, offset)
        for each in members
        for partition, runs in list(each.runs.items())
        for run in list(runs)
        for offset in list(run)
    )


def _judge(members: list[Member], count: int, warnings: list[str], seconds: float) -> Report:
    wrong = [*warnings, *(repr(each.error) for each in members if each.error is not None)]
    seen = _offsets(members)
    per_partition = Counter(number % _PARTITIONS for number in range(count))
    expected = {(p, offset) for p, size in per_partition.items() for offset in range(size)}
    wrong += [f"partition {p} offset {at} was skipped" for p, at in sorted(expected - set(seen))]
    last = {(p, run[-1]) for each in members for p, runs in each.runs.items() for run in runs}
    wrong += [
        f"partition {partition} offset {offset} was handled {times} times, and was not in hand"
        for (partition, offset), times in sorted(seen.items())
        if times > 1 and (partition, offset) not in last
    ]
    twice = sum(times > 1 for times in seen.values())
    moved = 2 * len(members) * _PARTITIONS  # partitions, by the joins and the leaves at most
    if twice > moved * _IN_MEMORY:
        wrong.append(f"{twice} messages were handled twice, after {moved} moves at most")
    return Report(count, sum(seen.values()), twice, len(members), seconds, tuple(wrong))
