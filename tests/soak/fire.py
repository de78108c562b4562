"""The audit under fire: everything is killed and paused at random, and its figures must be true.

Three topics, so that a loss and a duplicate never hide each other: `fire.killed`, whose producers
are killed with messages in their queues; `fire.cut`, whose log is cut off before the loader has
read it; `fire.doubled`, into which somebody copies messages. Broker, loader and reconciler are
killed and paused under all of them. Three more have clients that nobody comes back for, that do
not count, or that drop messages (see `fire_clients`). Two more come through a mirror from a second
cluster, which are killed and paused as well (see `fire_mirror`). In the end every message, by name,
must have the fate that the audit says, for every topic and window (see `fire_fates`).

Rules: every choice comes from the seed. A producer is killed between two sends, never inside one
(it is stopped, looked at, and let go again if it is inside), so that the ledger knows what it sent.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headworks._audit import queries
from headworks._audit.reconciler import Reconciler
from headworks._audit.states import DEFINITIONS
from headworks._audit.store import AuditStore
from headworks._cli.stack.stack import running_registry
from headworks.registry_client import RegistryClient
from tests.soak.fire_clients import (
    APPLICATION,
    DROPPED,
    FOREIGN,
    FOREVER,
    QUEUE,
    PlainClient,
    Victims,
    orphans,
    vanished_wrongly,
)
from tests.soak.fire_fates import (
    differences,
    differences_forever,
    fates_of,
    poison_of_tables,
    unpublished,
)
from tests.soak.fire_mirror import GONE, MIRRORED, Mirrored
from tests.soak.fire_tables import SHOT, rows_of_table
from tests.soak.process import LONGEST, PATIENCE, Broker, Child, wait_until

_KILLED, _CUT, _DOUBLED = "fire.killed", "fire.cut", "fire.doubled"
_TOPICS = (_KILLED, _CUT, _DOUBLED, MIRRORED)  # written to all the time, by two producers
_SOME_BYTES = 40_000  # of a journal
_SINGLE = (FOREIGN, DROPPED, FOREVER)  # by one
_ALL = (*_TOPICS, *_SINGLE, GONE)
# The state of a message that is missing, by the way in which its topic is hurt.
_MISSING = {_CUT: "lost", GONE: "lost"}


@dataclass(slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    events: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    states: Counter[str] = field(default_factory=Counter)  # by the audit, over all topics
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = ", ".join(f"{n} x {what}" for what, n in sorted(self.events.items()))
        return "\n".join([done, *self.lines, *self.wrong[:20]])


class _Fire:
    def __init__(self, folder: Path, seed: int, registry: str, *, spark: bool, rest: float) -> None:
        self.chance = Random(seed)
        self._rest = rest
        self.report = Report()
        self.folder = folder
        self.registry = registry
        self.root = folder / "warehouse"
        self.store = f"sqlite:///{folder / 'audit.db'}"
        self.broker = Broker(folder / "broker", "--default-partitions", "2")
        self.broker.start()
        self.mirrored = Mirrored(folder, self.broker, registry, self.chance)
        self.schemas = {topic: self._register(topic) for topic in _ALL}
        self.producers = [self._producer(topic, i) for topic in _TOPICS for i in range(2)]
        self.producers += [self._producer(topic, 0) for topic in _SINGLE]
        self.victims = Victims(lambda number: self._producer(FOREVER, number))
        self.plain = PlainClient(folder, self.broker.address, registry, self.chance)
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
        queue = str(QUEUE if topic == DROPPED else 100_000)
        name = APPLICATION if topic == FOREVER else "fire"
        more = [str(state), str(journal), seed, queue, name, str(self._rest)]
        command = ["tests.soak.fire_producer", *where, *more]
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
            (2, "producer killed for good", self._kill_for_good),
            (2, "plain client", lambda: self.plain.write("p")),
            (2, "poison", lambda: self.plain.write("x")),
            *self.mirrored.evils,
        ]
        turns = [evil for evil in evils for _ in range(evil[0])]
        while time.monotonic() < end or len(self.report.events) < len(evils):
            time.sleep(self.chance.random() * 0.6)
            unseen = [evil for evil in evils if evil[1] not in self.report.events]
            overdue = bool(unseen) and time.monotonic() >= end
            if time.monotonic() >= end + LONGEST:
                self.report.wrong += [f"{evil[1]}: it could not be done" for evil in unseen]
                return
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
        _stop_between_sends(child, journal)
        child.kill()
        if hung:
            os.kill(self.broker.pid, signal.SIGCONT)
        self.producers[number] = self._producer(_KILLED, number)

    def _kill_for_good(self) -> bool:
        """Not before it has counted something."""
        if _size(self._journal(FOREVER, self.victims.number)) < _SOME_BYTES:
            return False
        self.victims.kill(
            lambda child, number: _stop_between_sends(child, self._journal(FOREVER, number))
        )
        return True

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
        self._end_all([*self.producers, self.victims.living])
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
        for topic in _ALL:
            self._compare(store, topic)
        self.report.wrong += vanished_wrongly(store, orphans(self.folder))
        for topic in (MIRRORED, GONE):
            wrong, line = self.mirrored.compare(store, topic)
            self.report.wrong += wrong
            self.report.lines.append(line)
        gone = sum(row.removed for row in queries.balances(store, "hadoop", _CUT))
        self.report.lines.append(f"messages of {_CUT} that the loader knows it missed: {gone}")
        self.report.lines.append(f"commits of the loader: {self._commits()}")
        store.close()

    def _compare(self, store: AuditStore, topic: str) -> None:
        rows = rows_of_table(self.root / topic.replace(".", "_"))
        poisoned = poison_of_tables(self.root, topic)
        missing = _MISSING.get(topic, "unresolved")
        fates = fates_of(self.folder, topic, rows, poisoned, missing)
        balances = queries.balances(store, "hadoop", topic)
        if topic == FOREVER:
            unknown = unpublished(store, orphans(self.folder))
            self.report.lines.append(f"{topic}: {unknown.total()} attempts were never reported")
            self.report.wrong += differences_forever(topic, fates, balances, unknown)
        else:
            self.report.wrong += differences(topic, fates, balances)
        self.report.lost += fates.total(missing)
        self.report.doubled += fates.total("surplus")
        for state in DEFINITIONS:
            self.report.states[state] += sum(getattr(row, state) for row in balances)
        told = ", ".join(f"{n} {s}" for s in DEFINITIONS if (n := fates.total(s)))
        self.report.lines.append(f"{topic}, by name: {told}")

    def put_out(self) -> None:
        """End everything."""
        for child in (*self.producers, self.victims.living, self.loader, self.reconciler):
            if child.process.poll() is None:
                child.kill()
        self.mirrored.put_out()
        if self.broker.alive:
            self.broker.kill()


def campaign(
    folder: Path, seconds: float, seed: int, *, spark: bool = False, rest: float = 0.2
) -> Report:
    """Set fire for `seconds`, let it end, and compare. A producer rests between two bursts."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_registry(folder) as registry:
        fire = _Fire(folder, seed, registry.url, spark=spark, rest=rest)
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


def _stop_between_sends(child: Child, journal: Path) -> None:
    """Stop a producer, and let it go on until it is not inside a send."""
    while True:
        child.signal(signal.SIGSTOP)
        wait_until(lambda: _state(child.process.pid) in "TZ")
        if not _inside_a_send(journal):
            return
        child.signal(signal.SIGCONT)
        time.sleep(0.001)


def _inside_a_send(journal: Path) -> bool:
    if not _size(journal):
        return False
    with journal.open("rb") as lines:
        lines.seek(max(0, _size(journal) - 200))
        return lines.read().splitlines()[-1].startswith(b">")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
