"""Brokers and ZooKeeper of a cluster in trouble, at random and under load; the ledger judges.

Fates: a broker is killed, paused for longer than its session, or cut off from ZooKeeper while its
clients reach it; a server of the ensemble is killed, paused, or all are; the ensemble's leader is
killed while topics are created, and their partitions assigned to brokers.

Rules: every choice comes from the seed; after each fate all brokers must be back and all clients
must have got on. A witness asks every broker, all the time, which partitions it answers for: two
brokers for one partition, or one that ZooKeeper does not know, is what must never be seen.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._zookeeper import live_brokers
from tests.broker.clients import eventually
from tests.broker.cluster import Cluster, ClusterBroker, cluster
from tests.soak.ledger import Ledger
from tests.soak.load import Load, read_all
from tests.soak.process import PATIENCE

_TOPIC = "load"
_PARTITIONS = 6
_KEPT = ("librdkafka", "kafka-python")
_PROGRESS = 100
_ASSIGNED_TOPICS = 8
_SESSION = 2.0


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    fates: Counter[str]
    acknowledged: int
    shown: int
    found: int
    questions: int
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        fates = ", ".join(f"{count} x {fate}" for fate, count in sorted(self.fates.items()))
        lines = [
            f"{self.fates.total()} fates in {self.seconds:.0f} s: {fates}",
            f"{self.acknowledged} messages acknowledged, {self.shown} shown, {self.found} found",
            f"{self.questions} times it was asked who owns a partition",
            *self.wrong[:20],
        ]
        return "\n".join(lines)


def campaign(folder: Path, count: int, seed: int) -> Report:
    """So many fates for three brokers and three servers of ZooKeeper."""
    began = time.monotonic()
    random = Random(seed)
    ledger = Ledger(_KEPT)
    found, wrong = [], []
    fates: Counter[str] = Counter()
    order = _order(random)
    with cluster(folder, 3, 3, session=_SESSION) as running:
        _create(running)
        load = Load(running.bootstrap, _TOPIC, _PARTITIONS, ledger)
        witness = _Witness(running)
        try:
            load.start()
            witness.start()
            while fates.total() < count and not ledger.failures:
                _wait_for_progress(ledger)
                time.sleep(random.random() * 0.5)
                fate = next(order)
                fates[fate] += 1
                _FATES[fate](running, random)
                eventually(lambda: running.living() == list(running.brokers), PATIENCE)
                eventually(lambda: _all_lead(running), PATIENCE)
            _wait_for_progress(ledger)
            load.finish()
            found = read_all(running.bootstrap, _TOPIC, _PARTITIONS, random)
            wrong = ledger.judge(found)
        except Exception as error:
            wrong = [*ledger.failures, f"it could not go on: {error!r}"]
        finally:
            load.finish()
            witness.stop()
        wrong += [*witness.wrong, *_tracebacks(running)]
    return Report(
        fates,
        sum(ledger.acknowledged.values()),
        ledger.shown,
        len(found),
        witness.questions,
        time.monotonic() - began,
        tuple(wrong),
    )


def _create(running: Cluster, topic: str = _TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})

    def created() -> bool:
        with suppress(Exception):
            admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(PATIENCE)
        return all(len(b.leaders(topic)) == _PARTITIONS for b in running.brokers.values())

    eventually(created, PATIENCE)


def _all_lead(running: Cluster) -> bool:
    return all(-1 not in b.leaders(_TOPIC).values() for b in running.brokers.values())


def _order(random: Random) -> Iterator[str]:
    """One fate after the other: each once, in any order, then again."""
    while True:
        names = list(_FATES)
        random.shuffle(names)
        yield from names


# -- fates ---------------------------------------------------------------------------------------


def _kill(running: Cluster, random: Random) -> None:
    broker = _one(running, random)
    broker.kill()
    time.sleep(random.random() * 1.5 * _SESSION)
    broker.start()


def _pause(running: Cluster, random: Random) -> None:
    broker = _one(running, random)
    broker.pause()
    time.sleep((0.3 + random.random() * 1.5) * _SESSION)
    broker.resume()


def _cut(running: Cluster, random: Random) -> None:
    broker = _one(running, random)
    broker.cut()
    time.sleep((0.3 + random.random() * 2) * _SESSION)
    broker.mend()


def _lose_a_server(running: Cluster, random: Random) -> None:
    server = random.choice(running.zookeeper.servers)
    server.kill()
    time.sleep(random.random() * 2 * _SESSION)
    server.start(PATIENCE)


def _pause_a_server(running: Cluster, random: Random) -> None:
    server = random.choice(running.zookeeper.servers)
    server.pause()
    time.sleep(random.random() * 2 * _SESSION)
    server.resume()


def _lose_the_leader(running: Cluster, random: Random) -> None:
    topics = [f"assigned-{random.getrandbits(32):08x}" for _ in range(_ASSIGNED_TOPICS)]
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    leader = running.zookeeper.leader(PATIENCE)
    asked = admin.create_topics([NewTopic(topic, _PARTITIONS, 1) for topic in topics])
    time.sleep(random.random() * 0.1)
    leader.kill()
    for answer in asked.values():
        with suppress(Exception):
            answer.result(PATIENCE)
    leader.start(PATIENCE)
    for topic in topics:  # those that were refused are created now, and the others exist
        _create(running, topic)
        eventually(partial(_agree, running, topic), PATIENCE)
    _delete(running, topics)


def _delete(running: Cluster, topics: list[str]) -> None:
    """Delete topics, whichever broker is the controller by now."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})

    def gone() -> bool:
        with suppress(KafkaException):
            left = sorted(admin.list_topics(timeout=PATIENCE).topics.keys() & set(topics))
            if not left:
                return True
            for answer in admin.delete_topics(left).values():
                answer.result(PATIENCE)
        return False

    eventually(gone, PATIENCE)


def _agree(running: Cluster, topic: str) -> bool:
    """Return whether all brokers name the same leader for each partition, and there is one."""
    views = [broker.leaders(topic) for broker in running.brokers.values()]
    return all(view == views[0] for view in views) and -1 not in views[0].values()


def _lose_all_servers(running: Cluster, random: Random) -> None:
    for server in running.zookeeper.servers:
        server.kill()
    time.sleep(random.random() * 1.5 * _SESSION)
    running.zookeeper.start(PATIENCE)


def _one(running: Cluster, random: Random) -> ClusterBroker:
    return running.brokers[random.choice(list(running.brokers))]


_FATES: dict[str, Callable[[Cluster, Random], None]] = {
    "a broker killed": _kill,
    "a broker paused": _pause,
    "a broker cut off": _cut,
    "a server of ZooKeeper killed": _lose_a_server,
    "a server of ZooKeeper paused": _pause_a_server,
    "the leader of ZooKeeper killed": _lose_the_leader,
    "ZooKeeper restarted": _lose_all_servers,
}


# -- judges --------------------------------------------------------------------------------------


class _Witness:
    """Asks who owns the partitions."""

    def __init__(self, running: Cluster) -> None:
        self.questions = 0
        self.wrong: list[str] = []
        self._running = running
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End; nothing if it has not begun."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(Exception), self._running.session() as session:
                while not self._stop.is_set():
                    before = live_brokers(session)
                    owners = self._owners()
                    strangers = set(owners) - before.keys() - live_brokers(session).keys()
                    for number in strangers:
                        self.wrong.append(f"ZooKeeper does not know {number}, and it answers")
                    for partition in range(_PARTITIONS):
                        several = [n for n, mine in owners.items() if partition in mine]
                        if len(several) > 1:
                            self.wrong.append(f"partition {partition} is owned by {several}")
                    self._stop.wait(0.05)

    def _owners(self) -> dict[int, set[int]]:
        """The partitions that each broker answers for; a paused one is not waited for."""
        owners: dict[int, set[int]] = {}
        for number, broker in self._running.brokers.items():
            with suppress(OSError, EOFError):
                for partition in range(_PARTITIONS):
                    self.questions += 1
                    if not broker.owns(_TOPIC, partition, timeout=1.0):
                        owners.setdefault(number, set()).add(partition)
        return owners


def _wait_for_progress(ledger: Ledger) -> None:
    goals = {name: ledger.acknowledged[name] + _PROGRESS for name in ledger.kept}

    def got_on() -> bool:
        return bool(ledger.failures) or all(ledger.acknowledged[n] >= g for n, g in goals.items())

    eventually(got_on, PATIENCE)


def _tracebacks(running: Cluster) -> list[str]:
    return [
        f"the log holds {word!r}: {broker.log}"
        for broker in running.brokers.values()
        for word in ("Traceback", "internal error", "is not served")
        if word in broker.words()
    ]
