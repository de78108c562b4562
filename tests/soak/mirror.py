"""Kill a mirror, and now and then a cluster beside it, under load; then compare the two logs.

Rules that are judged, per partition:

- every message of the source is on the target, byte for byte, in the partition it had;
- in the order of their first appearance the messages stand as on the source;
- after a kill of the mirror nothing comes again from before the offset that was committed then;
- messages come twice only if the mirror was killed, or its source's group had to start over.

Every choice comes from the seed; the mirror's log may hold no traceback.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._server import child_process
from tests.soak.process import Broker

_TOPIC, _PARTITIONS = "load", 3
_GROUP = "headworks-mirror-soak"
_SECONDS = 120.0
_LEADERLESS = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
_A_KILL = 20_000  # messages sent for each kill, about


@dataclass(slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    kills: int = 0
    deaths_of_source: int = 0
    deaths_of_target: int = 0
    messages: int = 0
    repeated: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.kills} kills of the mirror, {self.deaths_of_source} of the source,"
            f" {self.deaths_of_target} of the target, in {self.seconds:.0f} s",
            f"{self.messages} messages mirrored, {self.repeated} of them came again",
            *self.wrong[:20],
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Kill:
    """What was known just after a kill: committed on the source, written on the target."""

    committed: dict[int, int]
    written: dict[int, int]


def campaign(folder: Path, kills: int, seed: int) -> Report:
    """Kill the mirror `kills` times, and its neighbours on some of those occasions."""
    began, random, report = time.monotonic(), Random(seed), Report()
    source, target = Broker(folder / "source"), Broker(folder / "target")
    for broker in (source, target):
        broker.start()
    admin = AdminClient({"bootstrap.servers": source.address, "log_level": 0})
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result(_SECONDS)
    load = _Load(source.address, random.randrange(1 << 30))
    log = folder / "mirror.log"
    mirror = _start(source, target, folder, log)
    noted: list[Kill] = []
    try:
        while report.kills < kills:
            load.go_on()
            _wait_for_progress(target.address)
            _kill(mirror, target, random)
            report.kills += 1
            noted.append(
                Kill(
                    committed(source.address, _GROUP, _TOPIC, _PARTITIONS),
                    end_offsets(target.address, _TOPIC),
                )
            )
            mirror = _start(source, target, folder, log)
            if random.random() < 0.2:
                _die(*random.choice(((source, "source"), (target, "target"))), report, random)
        load.finish()
        drain(source.address, _GROUP, _TOPIC)
        report.wrong += judge_all(source.address, target.address, noted, report)
    except Exception as error:
        report.wrong.append(f"it could not go on: {error!r}")
    finally:
        load.finish()
        mirror.stop()
        source.stop()
        target.stop()
    words = log.read_text(encoding="utf-8", errors="replace")
    if "Traceback" in words:
        report.wrong.append(f"a traceback in {log}")
    report.seconds = time.monotonic() - began
    return report


def _start(source: Broker, target: Broker, folder: Path, log: Path) -> child_process.Service:
    """A mirror whose death the source's group soon notices."""
    quick = folder / "source.properties"
    quick.write_text("session.timeout.ms=1000\nheartbeat.interval.ms=200\n")
    arguments = ["mirror", "--from", source.address, "--to", target.address, "--topics", _TOPIC]
    more = ["--name", "soak", "--no-audit", "--commit-every", "0.5", "--from-config", str(quick)]
    return child_process.start([*arguments, *more, "--data-dir", str(folder)], log_file=log)


def _kill(mirror: child_process.Service, target: Broker, random: Random) -> None:
    """Kill the mirror; now and then while its target is frozen, and it holds what was not taken."""
    frozen = random.random() < 0.5
    if frozen:
        os.kill(target.pid, signal.SIGSTOP)
        time.sleep(1.0)
    time.sleep(random.random())
    mirror.kill()
    if frozen:
        os.kill(target.pid, signal.SIGCONT)


def _die(broker: Broker, name: str, report: Report, random: Random) -> None:
    broker.kill()
    time.sleep(random.random())
    broker.start()
    report.deaths_of_source += name == "source"
    report.deaths_of_target += name == "target"


class _Load:
    """A producer in a thread, idempotent, until `finish`.

    It sends so many messages for each `go_on`, or a machine on which it outruns the mirror would
    have it copy for longer after the last kill than a copy may take.
    """

    def __init__(self, address: str, seed: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0}
        )
        self._random = Random(seed)
        self._allowed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def go_on(self) -> None:
        self._allowed += _A_KILL

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(self._random.randrange(100) if number < self._allowed else 0):
                number += 1
                value = b"%d %s" % (number, self._random.randbytes(self._random.randrange(300)))
                headers: list[tuple[str, str | bytes | None]] = [("n", str(number))]
                at = number % _PARTITIONS
                self._producer.produce(_TOPIC, value, b"k%d" % at, at, headers=headers)
            self._producer.poll(0.01)
        self._producer.flush(_SECONDS)


def judge_all(source: str, target: str, kills: list[Kill], report: Report) -> list[str]:
    """Compare the partitions one by one."""
    wrong = []
    for index in range(_PARTITIONS):
        theirs, ours = read_all(source, _TOPIC, index), read_all(target, _TOPIC, index)
        report.messages += len(theirs)
        report.repeated += len(ours) - len({_content(message) for message in ours})
        marks = [(kill.written[index], kill.committed.get(index, 0)) for kill in kills]
        wrong += [f"partition {index}: {what}" for what in judge(theirs, ours, marks)]
    return wrong


def judge(theirs: list[Message], ours: list[Message], marks: list[tuple[int, int]]) -> list[str]:
    """What is wrong with the copy of a partition; no two messages of it may be alike.

    `marks`: from this offset of the target on, no message from before that offset of the source.
    """
    places = {_content(message): number for number, message in enumerate(theirs)}
    found = [places.get(_content(message)) for message in ours]
    if None in found:
        return [f"offset {found.index(None)} is no message of the source"]
    numbers = [number for number in found if number is not None]
    wrong = []
    missing = set(range(len(theirs))) - set(numbers)
    if missing:
        wrong.append(f"{len(missing)} messages are missing, the first is {min(missing)}")
    first = list(dict.fromkeys(numbers))
    if first != sorted(first):
        wrong.append("messages do not stand in the order of the source")
    for written, offset in marks:
        early = [number for number in numbers[written:] if number < offset]
        if early:
            wrong.append(f"{early[0]} came again behind {written}, when {offset} was committed")
    return wrong


def _content(message: Message) -> tuple[object, ...]:
    return (message.key(), message.value(), str(message.headers()), message.timestamp())


def read_all(address: str, topic: str, index: int) -> list[Message]:
    """All messages of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "soak-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, index, 0)])
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            for message in consumer.consume(5000, 0.2):
                problem = message.error()
                if problem is None:
                    found.append(message)
                elif problem.code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()
    raise TimeoutError(f"{topic} partition {index} did not end")


def end_offsets(address: str, topic: str) -> dict[int, int]:
    """The end of each partition; of an absent topic none.

    A topic that was just made, or a broker that was just killed, has no leader for a while.
    """
    consumer = Consumer({"bootstrap.servers": address, "group.id": "soak-ends", "log_level": 0})
    end = time.monotonic() + _SECONDS
    try:
        while True:
            try:
                found = consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
                return {
                    index: consumer.get_watermark_offsets(
                        TopicPartition(topic, index), timeout=_SECONDS
                    )[1]
                    for index in (found.partitions if found.error is None else ())
                }
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or time.monotonic() > end:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def committed(address: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """What a group has committed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        found = consumer.committed(places, timeout=_SECONDS)
        return {place.partition: max(0, place.offset) for place in found}
    finally:
        consumer.close()


def drain(source: str, group: str, *topics: str) -> None:
    """Wait until a mirror's group has committed all there is, for as long as it gets on."""
    ends = {topic: end_offsets(source, topic) for topic in topics}
    before: dict[str, dict[int, int]] = {}
    patience = time.monotonic() + _SECONDS
    while before != ends:
        now = {topic: committed(source, group, topic, len(ends[topic])) for topic in topics}
        if now != before:
            before, patience = now, time.monotonic() + _SECONDS
        elif time.monotonic() > patience:
            raise TimeoutError(f"the mirror does not get on: {now} of {ends}")
        time.sleep(0.1)


def _wait_for_progress(target: str) -> None:
    before = sum(end_offsets(target, _TOPIC).values())
    _wait(lambda: sum(end_offsets(target, _TOPIC).values()) > before + 200)


def _wait(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not fact():
        if time.monotonic() > end:
            raise TimeoutError("the mirror does not get on")
        time.sleep(0.1)
