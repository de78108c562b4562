"""The audit under fire: everything is killed and paused at random, and its figures must be true.

Three topics, so that a loss and a duplicate never hide each other: `fire.killed`, whose producers
are killed with messages in their queues; `fire.cut`, whose log is cut off before the loader has
read it; `fire.doubled`, into which somebody copies messages. Broker, loader and reconciler are
killed and paused under all of them. Two more come through a mirror from a second cluster, which are
killed and paused as well (see `fire_mirror`). In the end the audit's figures must be the ledger's,
for every topic and window, to the message.

Rules: every choice comes from the seed. A producer is killed between two sends, never inside one
(it is stopped, looked at, and let go again if it is inside), so that the ledger knows what it sent.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headworks._audit import queries
from headworks._audit.balance import Balance
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._cli.stack.stack import running_registry
from headworks.registry_client import RegistryClient
from tests.soak.fire_mirror import GONE, MIRRORED, Mirrored
from tests.soak.fire_tables import SHOT, Truth, rows_of_table, truth_of
from tests.soak.process import LONGEST, PATIENCE, Broker, Child, wait_until

_KILLED, _CUT, _DOUBLED = "fire.killed", "fire.cut", "fire.doubled"
_TOPICS = (_KILLED, _CUT, _DOUBLED, MIRRORED)  # written to all the time


@dataclass(slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    events: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = ", ".join(f"{n} x {what}" for what, n in sorted(self.events.items()))
        return "\n".join([done, *self.lines, *self.wrong[:20]])


class _Fire:
    def __init__(self, folder: Path, seed: int, registry: str, *, spark: bool) -> None:
        self.chance = Random(seed)
        self.report = Report()
        self.folder = folder
        self.registry = registry
        self.root = folder / "warehouse"
        self.store = f"sqlite:///{folder / 'audit.db'}"
        self.broker = Broker(folder / "broker", "--default-partitions", "2")
        self.broker.start()
        self.mirrored = Mirrored(folder, self.broker, registry, self.chance)
        self.schemas = {topic: self._register(topic) for topic in (*_TOPICS, GONE)}
        self.producers = [self._producer(topic, i) for topic in _TOPICS for i in range(2)]
        self.loader = Child(self._load(spark), folder / "loader.log")
        self._committed = 0
        reconcile = ["headworks._cli", "audit", "run", "--store", self.store]
        at = ["--bootstrap", self.broker.address, "--registry", registry]
        self.reconciler = Child([*reconcile, *at], folder / "audit.log")

    def _register(self, topic: str) -> Path:
        governed = {"topic": topic, "event_time": "at", "key": ["sender"]}
        record = {**SHOT, "headworks": governed}
        text = json.dumps(record)
        RegistryClient(self.registry).register(f"{topic}-value", text)
        path = self.folder / f"{topic}.avsc"
        path.write_text(text, encoding="utf-8")
        return path

    def _producer(self, topic: str, number: int) -> Child:
        state, journal = self.folder / f"{topic}-{number}", self._journal(topic, number)
        broker = self.mirrored.source if topic in (MIRRORED, GONE) else self.broker
        where = [broker.address, self.registry, topic, str(self.schemas[topic])]
        seed = str(self.chance.randrange(1 << 30))
        command = ["tests.soak.fire_producer", *where, str(state), str(journal), seed]
        before = _size(journal)
        return Child(command, self.folder / "producers.log", ready=lambda: _size(journal) > before)

    def _journal(self, topic: str, number: int) -> Path:
        return self.folder / f"{topic}-{number}.journal"

    def _load(self, spark: bool) -> list[str]:
        if not spark:
            return ["tests.soak.fire_loader", self.broker.address, self.registry, str(self.root)]
        command = ["headworks._cli", "load", "run", "--skip-lost", "--every", "1s"]
        command += ["--bootstrap", self.broker.address, "--registry", self.registry]
        return [*command, "--data-dir", str(self.folder), "--warehouse", str(self.root)]

    def burn(self, seconds: float) -> None:
        """Do something bad, again and again."""
        end = time.monotonic() + seconds
        evils: list[tuple[int, str, Callable[[], bool | None]]] = [
            (4, "producer killed", self._kill_producer),
            (2, "producer paused", lambda: self._pause(self.chance.choice(self.producers))),
            (1, "broker killed", self._kill_broker),
            (1, "broker paused", self._pause_broker),
            (2, "loader killed", self._kill_loader),
            (1, "loader paused", lambda: self._pause(self.loader)),
            (1, "reconciler killed", lambda: self._kill(self.reconciler)),
            (1, "reconciler paused", lambda: self._pause(self.reconciler)),
            (3, "log cut off", self._cut),
            (3, "messages copied", self._copy),
            *self.mirrored.evils,
        ]
        turns = [evil for evil in evils for _ in range(evil[0])]
        while time.monotonic() < end or len(self.report.events) < len(evils):
            time.sleep(self.chance.random() * 0.6)
            unseen = [evil for evil in evils if evil[1] not in self.report.events]
            overdue = time.monotonic() >= end
            _, what, do = self.chance.choice(unseen if overdue else turns)
            if do() is not False:
                self.report.events[what] = self.report.events.get(what, 0) + 1

    def _kill(self, child: Child) -> None:
        child.kill()
        child.restart()

    def _kill_loader(self) -> bool:
        """Not before it has committed something: else a slow start is all that is ever killed."""
        commits = self._commits()
        if commits == self._committed and self.loader.process.poll() is None:
            return False
        self._kill(self.loader)
        self._committed = commits
        return True

    def _commits(self) -> int:
        """The number of the last one."""
        folder = self.root / "_headworks" / "commits"
        return max((int(path.stem) for path in folder.glob("*.json")), default=0)

    def _pause(self, child: Child) -> None:
        child.signal(signal.SIGSTOP)
        time.sleep(self.chance.random())
        child.signal(signal.SIGCONT)

    def _kill_producer(self) -> None:
        number = self.chance.randrange(2)
        child = self.producers[number]  # those of fire.killed come first
        journal = self._journal(_KILLED, number)
        hung = self.chance.random() < 0.7  # then its queue is full of what the broker never got
        if hung:
            os.kill(self.broker.pid, signal.SIGSTOP)
            time.sleep(0.3)
        while True:
            child.signal(signal.SIGSTOP)
            wait_until(lambda: _state(child.process.pid) in "TZ")
            if not _inside_a_send(journal):
                break
            child.signal(signal.SIGCONT)
            time.sleep(0.001)
        child.kill()
        if hung:
            os.kill(self.broker.pid, signal.SIGCONT)
        self.producers[number] = self._producer(_KILLED, number)

    def _kill_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.chance.random() * 0.5)
        self.broker.start()

    def _pause_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(self.chance.random())
        os.kill(self.broker.pid, signal.SIGCONT)

    def _cut(self) -> None:
        """Drop what the log of fire.cut has, with something that the loader has not read."""
        self.loader.signal(signal.SIGSTOP)
        wait_until(lambda: _state(self.loader.process.pid) in "TZ")
        with _consumer(self.broker.address) as consumer:
            before = _written(consumer, _CUT)
            wait_until(lambda: _written(consumer, _CUT) > before)
            ends = [TopicPartition(_CUT, p, high) for p, _, high in _marks(consumer, _CUT)]
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 2})
        if ends:
            for done in admin.delete_records(ends).values():
                done.exception(PATIENCE)
        self.loader.signal(signal.SIGCONT)

    def _copy(self) -> None:
        """Append messages of fire.doubled to it again, as they are."""
        with _consumer(self.broker.address) as consumer:
            wait_until(lambda: bool(_filled(consumer, _DOUBLED)))
            partition, low, high = self.chance.choice(_filled(consumer, _DOUBLED))
            start = self.chance.randrange(low, high)
            consumer.assign([TopicPartition(_DOUBLED, partition, start)])
            found = consumer.consume(self.chance.randint(1, 20), timeout=60)
            producer = Producer({"bootstrap.servers": self.broker.address, "log_level": 2})
            for message in found:
                if message.error() is None:
                    stamp = message.timestamp()[1]
                    producer.produce(_DOUBLED, message.value(), message.key(), timestamp=stamp)
            producer.flush(PATIENCE)

    def settle(self, *, spark: bool) -> None:
        """Let everything come to its end."""
        self._end_all(self.producers)
        self.mirrored.rest()
        self.producers.append(self._producer(GONE, 0))
        self._publish_leftovers()
        self.report.wrong += self.mirrored.settle(self.producers[-1], self._journal(GONE, 0))
        self.loader.kill()
        once = self._load(spark)
        if spark:
            once = once[: once.index("--every")] + once[once.index("--every") + 2 :]
        else:
            once.append("--once")
        self.loader = last = Child(once, self.loader.log)
        if last.process.wait(LONGEST) != 0:
            self.report.wrong.append(f"the last load failed: {self.loader.log}")
        self.reconciler.end()

    def _publish_leftovers(self) -> None:
        """What killed producers counted is told by the next: start one more in each folder."""
        self._end_all([self._producer(_KILLED, number) for number in range(2)])

    def _end_all(self, producers: list[Child]) -> None:
        with ThreadPoolExecutor() as pool:
            codes = list(pool.map(Child.end, producers))
        for number, code in enumerate(codes):
            if code != 0:
                self.report.wrong.append(f"producer {number} did not end: {producers[number].log}")

    def compare(self) -> None:
        """Hold the audit's figures against the ledger's."""
        store = AuditStore(self.store)
        with Reconciler(self.broker.address, self.registry, store) as reconciler:
            reconciler.settle()
        for topic in (*_TOPICS, GONE):
            rows = rows_of_table(self.root / topic.replace(".", "_"))
            truth = truth_of(self.folder, topic, rows)
            self._compare(topic, truth, queries.balances(store, "hadoop", topic))
        for topic in (MIRRORED, GONE):
            wrong, line = self.mirrored.compare(store, topic)
            self.report.wrong += wrong
            self.report.lines.append(line)
        gone = sum(row.removed for row in queries.balances(store, "hadoop", _CUT))
        self.report.lines.append(f"messages of {_CUT} that the loader knows it missed: {gone}")
        self.report.lines.append(f"commits of the loader: {self._commits()}")
        store.close()

    def _compare(self, topic: str, truth: Truth, balances: list[Any]) -> None:
        mine = {row.window_start: row for row in balances}
        for window in sorted({*truth.sent, *mine}):
            ledger = (truth.sent[window], truth.lost[window], truth.doubled[window])
            row = mine.get(window)
            # By name: a message that an acknowledged producer counted is lost, one of a killed
            # producer is unresolved, and a copy by a client that does not count is a surplus.
            audit = (_expected(row), row.lost + row.unresolved, row.surplus) if row else (0, 0, 0)
            if audit != ledger or (row and (row.waiting or row.duplicated)):
                said = f"{topic} {window}: sent, lost, doubled are {ledger}, by the audit {audit}"
                self.report.wrong.append(said)
        sums = sum(truth.sent.values()), sum(truth.lost.values()), sum(truth.doubled.values())
        self.report.lost += sums[1]
        self.report.doubled += sums[2]
        shown = sum(map(_expected, balances)), sum(r.lost + r.unresolved for r in balances)
        self.report.lines.append(
            f"{topic}: ledger sent {sums[0]}, lost {sums[1]}, doubled {sums[2]}; audit sent "
            f"{shown[0]}, lost {shown[1]}, doubled {sum(r.surplus for r in balances)}"
        )

    def put_out(self) -> None:
        """End everything."""
        for child in (*self.producers, self.loader, self.reconciler):
            if child.process.poll() is None:
                child.kill()
        self.mirrored.put_out()
        if self.broker.alive:
            self.broker.kill()


def campaign(folder: Path, seconds: float, seed: int, *, spark: bool = False) -> Report:
    """Set fire for `seconds`, let it end, and compare."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_registry(folder) as registry:
        fire = _Fire(folder, seed, registry.url, spark=spark)
        try:
            fire.burn(seconds)
            fire.settle(spark=spark)
            fire.compare()
        finally:
            fire.put_out()
    return fire.report


class _consumer:  # noqa: N801
    """A consumer without a group, closed at the end."""

    def __init__(self, address: str) -> None:
        self._it = Consumer(
            {"bootstrap.servers": address, "group.id": "fire", "enable.auto.commit": False}
        )

    def __enter__(self) -> Consumer:
        return self._it

    def __exit__(self, *_: object) -> None:
        self._it.close()


def _expected(row: Balance) -> int:
    return row.attempted - row.dropped - row.failed


def _marks(consumer: Consumer, topic: str) -> list[tuple[int, int, int]]:
    found = consumer.list_topics(topic, timeout=PATIENCE).topics[topic]
    if found.error is not None:
        return []
    return [
        (p, *consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=PATIENCE))
        for p in sorted(found.partitions)
    ]


def _written(consumer: Consumer, topic: str) -> int:
    return sum(high for _, _, high in _marks(consumer, topic))


def _filled(consumer: Consumer, topic: str) -> list[tuple[int, int, int]]:
    return [mark for mark in _marks(consumer, topic) if mark[2] > mark[1]]


def _size(journal: Path) -> int:
    return journal.stat().st_size if journal.exists() else 0


def _inside_a_send(journal: Path) -> bool:
    if not _size(journal):
        return False
    with journal.open("rb") as lines:
        lines.seek(max(0, _size(journal) - 200))
        return lines.read().splitlines()[-1].startswith(b">")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
