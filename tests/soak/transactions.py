"""Kill a broker and the clients of its transactions, and compare what was committed with a ledger.

Two workers copy a topic into another, messages and offsets in one transaction (see
`transaction_worker`). Beside them, a producer in this process writes each message to two partitions
in one transaction, commits or aborts it, and notes in a ledger what it was told. Broker and workers
are killed at random.

At the end, a reader of committed messages must find:

- the copy equal to the source: each message once, in order, and none of an aborted transaction;
- of each pair both messages or none, and what the ledger was told.

A client may commit without messages whose delivery it reported as failed. The ledger notes such a
pair as dropped, and expects the messages whose delivery was reported.

Rules: every choice comes from the seed; the broker's log may hold no traceback, and `log dump` no
damage.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.soak.process import Broker, Child
from tests.soak.transaction_worker import ABORTED, IMPATIENT

_SOURCE, _COPY, _PAIRS, _GROUP = "source", "copy", "pairs", "copiers"
_PARTITIONS = 2
_WORKERS = ("copier-0", "copier-1")
_PROGRESS = 3  # commits of the workers before most kills
_PATIENCE = 600.0  # no promise is about how fast a starved machine is
_CALL_SECONDS = 15.0
_FEED_SECONDS = 0.002
# The workers copy more than this in a commit, so that they are never far behind the feed.
_FED_PER_COMMIT = 10  # messages
_FED_AT_FIRST = 1000  # messages


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    broker_kills: int
    worker_kills: int
    copied: int
    commits: int
    pairs: Counter[str]
    markers: Counter[str]
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        pairs, markers = dict(self.pairs), dict(self.markers)
        lines = [
            f"{self.broker_kills + self.worker_kills} kills, {self.broker_kills} of them of the"
            f" broker, in {self.seconds:.0f} s",
            f"{self.copied} messages copied in {self.commits} transactions; pairs {pairs};"
            f" markers {markers}",
            *self.wrong[:20],
        ]
        return "\n".join(lines)


def campaign(folder: Path, kills: int, seed: int) -> Report:
    """Kill `kills` times."""
    began, random = time.monotonic(), Random(seed)
    broker = Broker(folder, "--segment-bytes", "60000", "--flush-ms", "300")
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    for name in (_SOURCE, _COPY, _PAIRS):
        admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(60)
    feed = Feed(broker.address, lambda: _FED_AT_FIRST + _FED_PER_COMMIT * _commits(folder))
    pairs = Pairs(broker.address, Random(seed))
    workers = [_worker(folder, broker.address, name, random) for name in _WORKERS]
    deaths: Counter[str] = Counter()
    wrong: list[str] = []
    source: list[list[bytes]] = []
    try:
        feed.start()
        pairs.start()
        while sum(deaths.values()) < kills and not wrong:
            if random.random() < 0.8:  # else it dies young
                wrong += _wait_for_progress(folder, workers)
            time.sleep(random.random() * 0.2)
            if random.random() < 0.6:
                deaths["broker"] += 1
                broker.kill()
                broker.start()
            else:
                deaths["worker"] += 1
                _kill(random.choice(workers))
            _revive(workers)
        feed.finish()
        pairs.finish()
        wrong += _wait_for_copy(broker.address, workers)
        for worker in workers:
            _kill(worker)
        _abort_open(broker.address)
        source = [_read(broker.address, _SOURCE, index) for index in range(_PARTITIONS)]
        wrong += _judge_copy(broker.address, source) + pairs.judge(
            [_read(broker.address, _PAIRS, index) for index in range(_PARTITIONS)]
        )
    except Exception as error:
        wrong.append(f"it could not go on: {error!r}")
    finally:
        feed.finish()
        pairs.finish()
        for worker in workers:
            _kill(worker)
        broker.stop()
    markers, damage = _dump(broker)
    return Report(
        deaths["broker"],
        deaths["worker"],
        sum(map(len, source)),
        _commits(folder),
        pairs.outcomes,
        markers,
        time.monotonic() - began,
        (*wrong, *damage, *_tracebacks(broker)),
    )


class Feed:
    """Writes numbered messages to the source, without transactions; `most` of them until now."""

    def __init__(self, address: str, most: Callable[[], int]) -> None:
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, **IMPATIENT}
        )
        self._most = most
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop, and wait until all is acknowledged."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(_PATIENCE)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(_FEED_SECONDS):
            self._producer.poll(0)
            if number >= self._most():
                continue
            self._producer.produce(_SOURCE, b"%d" % number, partition=number % _PARTITIONS)
            number += 1


class Pairs:
    """Writes each number to both partitions in one transaction; the ledger of what it was told."""

    def __init__(self, address: str, random: Random) -> None:
        self.outcomes: Counter[str] = Counter()
        self._told: dict[bytes, str] = {}
        self._delivered: dict[bytes, list[int]] = {}  # of those dropped: by partition, 0 or 1
        self._address, self._random = address, random
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop after the present transaction."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer, number = None, 0
        while not self._stop.is_set():
            value, commit = b"%d" % number, self._random.random() < 0.7
            number += 1
            delivered = [0] * _PARTITIONS
            self._told[value] = "unknown"
            try:
                if producer is None:
                    properties = {"bootstrap.servers": self._address, "transactional.id": "pairs"}
                    producer = Producer({**properties, **IMPATIENT})
                    producer.init_transactions(_CALL_SECONDS)
                producer.begin_transaction()
                for partition in range(_PARTITIONS):
                    reported = partial(_note, delivered, partition)
                    producer.produce(_PAIRS, value, partition=partition, on_delivery=reported)
                if not commit:
                    producer.flush(_CALL_SECONDS)
                    producer.abort_transaction(_CALL_SECONDS)
                    self._told[value] = "aborted"
                    continue
                producer.commit_transaction(_CALL_SECONDS)
                self._told[value] = "committed" if all(delivered) else "dropped"
                if not all(delivered):
                    self._delivered[value] = delivered
            except KafkaException:
                producer = None  # the next one fences it
        self.outcomes.update(self._told.values())

    def judge(self, found: list[list[bytes]]) -> list[str]:
        """Return what is wrong with the messages of each partition."""
        wrong = []
        counts = [Counter(values) for values in found]
        for value, told in self._told.items():
            seen = [count[value] for count in counts]
            if told == "dropped":
                if seen != self._delivered[value]:
                    reported = self._delivered[value]
                    wrong.append(f"pair {value!r}, reported as {reported}, is there {seen} times")
            elif seen not in ([0] * _PARTITIONS, [1] * _PARTITIONS):
                wrong.append(f"pair {value!r}, {told}, is there {seen} times")
            elif told != "unknown" and seen[0] != (told == "committed"):
                wrong.append(f"pair {value!r} was {told} and is there {seen} times")
        return wrong


def _note(delivered: list[int], partition: int, error: KafkaError | None, _: Message) -> None:
    """Take a delivery report."""
    delivered[partition] = 0 if error else 1


def _worker(folder: Path, address: str, name: str, random: Random) -> Child:
    options = {
        "bootstrap": address,
        "name": name,
        "group": _GROUP,
        "source": _SOURCE,
        "target": _COPY,
        "commits": str(folder / f"{name}.commits"),
        "seed": str(random.randrange(1 << 30)),
    }
    given = [word for key, value in options.items() for word in (f"--{key}", value)]
    return Child(["tests.soak.transaction_worker", *given], folder / f"{name}.log")


def _kill(worker: Child) -> None:
    if worker.process.poll() is None:
        worker.kill()


def _revive(workers: list[Child]) -> None:
    for worker in workers:
        if worker.process.poll() is not None:
            worker.restart()


def _commits(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.commits"))


def _wait_for_progress(folder: Path, workers: list[Child]) -> list[str]:
    goal, end = _commits(folder) + _PROGRESS, time.monotonic() + _PATIENCE
    while _commits(folder) < goal:
        if time.monotonic() > end:
            return [f"the workers did not get on within {_PATIENCE:.0f} s"]
        _revive(workers)
        time.sleep(0.02)
    return []


def _wait_for_copy(address: str, workers: list[Child]) -> list[str]:
    """Wait until the workers have committed the end of the source."""
    places = [TopicPartition(_SOURCE, index) for index in range(_PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": address, "group.id": _GROUP, "log_level": 0})
    end = time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < end:
            _revive(workers)
            ends = [consumer.get_watermark_offsets(place, timeout=60)[1] for place in places]
            if [place.offset for place in consumer.committed(places, timeout=60)] == ends:
                return []
            time.sleep(0.1)
    finally:
        consumer.close()
    return [f"the workers did not copy everything within {_PATIENCE:.0f} s"]


def _abort_open(address: str) -> None:
    """Abort what killed workers left open, as their successors would."""
    for name in (*_WORKERS, "pairs"):
        properties = {"bootstrap.servers": address, "transactional.id": name, "log_level": 0}
        Producer(properties).init_transactions(_PATIENCE)


def _read(address: str, topic: str, partition: int) -> list[bytes]:
    """Return the committed messages of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        message = consumer.poll(1.0)
        problem = None if message is None else message.error()
        if problem is not None and problem.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        if message is not None and problem is None:
            found.append(message.value() or b"")
    raise TimeoutError(f"{topic}-{partition} does not end")


def _judge_copy(address: str, source: list[list[bytes]]) -> list[str]:
    wrong = []
    for partition, expected in enumerate(source):
        found = _read(address, _COPY, partition)
        if found == expected:
            continue
        aborted = sum(value.startswith(ABORTED) for value in found)
        missing = Counter(expected) - Counter(found)
        doubled = Counter(found) - Counter(expected)
        wrong.append(
            f"partition {partition}: {sum(missing.values())} of {len(expected)} are missing"
            f" and {sum(doubled.values())} are too many, {aborted} of them aborted:"
            f" {list(missing)[:3]} {list(doubled)[:3]}"
        )
    return wrong


def _dump(broker: Broker) -> tuple[Counter[str], list[str]]:
    """Return the markers that `headworks log dump` shows, and the damage that it reports."""
    markers: Counter[str] = Counter()
    wrong = []
    for path in sorted(broker.logs.glob(f"{_COPY}-*")) + sorted(broker.logs.glob(f"{_PAIRS}-*")):
        command = [sys.executable, "-m", "cli", "log", "dump", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for kind in ("commit", "abort"):
            markers[kind] += done.stdout.count(f"marker: {kind}")
        if done.returncode:
            wrong.append(f"log dump of {path.name}: {done.stderr[-500:]}")
    return markers, wrong


def _tracebacks(broker: Broker) -> list[str]:
    words = broker.words()
    bad = [w for w in ("Traceback", "internal error", "is not served") if w in words]
    return [f"the broker's log holds {word!r}: {broker.log}" for word in bad]
