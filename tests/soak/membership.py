"""A group without a coordinator under attack: members come, go, are killed and paused.

Rules:

- Every choice comes from the seed. Between attacks the group must settle: every partition owned by
  a member that lives, within seconds.
- Afterwards the members' notes are held against each other and against ZooKeeper: every message
  that was acknowledged was processed; positions never went back; whoever took a partition began at
  or after the position committed by then, so that only what lay behind it came twice; and a member
  that was given up processed no more than the one message it had at hand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._server import child_process
from headworks._zookeeper import ZooKeeperSession, open_session, paths
from headworks.groups._decentralized import DecentralizedGroups
from tests.consumer_sdk.zookeeper_group.cluster import encoder
from tests.ensemble import ensemble
from tests.soak.worker import SESSION_MS

_GROUP = "chaos"
_TOPIC = "load"
_BROKERS = 3
_PARTITIONS = 12
_FEWEST, _MOST = 5, 8
_SESSION = SESSION_MS / 1000
_SETTLE = 120.0  # a limit that only a stuck group reaches; what it took is reported


@dataclass(slots=True)
class Worker:
    """A member's process and its notes."""

    number: int
    log: Path
    process: subprocess.Popen[bytes]
    pauses: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """What one member did with a partition, from when it got it."""

    worker: int
    began: float
    offsets: tuple[int, ...]
    times: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    attacks: Counter[str]
    acknowledged: int
    processed: int
    twice: int
    settling: tuple[float, ...]
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        ordered = sorted(self.settling) or [0.0]
        attacks = ", ".join(f"{name} {count}" for name, count in sorted(self.attacks.items()))
        return "\n".join(
            [
                f"attacks in {self.seconds:.0f} s: {attacks}",
                f"{self.acknowledged} messages acknowledged, {self.processed} processed,"
                f" {self.twice} of them twice or more",
                f"settled within {ordered[len(ordered) // 2]:.2f} s (median), {ordered[-1]:.2f} s"
                f" (longest), {len(ordered)} times",
                *self.wrong[:20],
            ]
        )


@dataclass(slots=True)
class Positions:
    """Every position that ZooKeeper was seen to hold: (server's time, offset) by partition."""

    seen: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    def look(self, session: ZooKeeperSession) -> None:
        above = paths.group_topic_offsets(_GROUP, _TOPIC)
        with contextlib.suppress(Exception):  # not there yet
            for name in session.client.get_children(above):
                value, stat = session.client.get(f"{above}/{name}")
                entry = (stat.mtime / 1000, int(value))
                history = self.seen.setdefault(paths.broker_partition_of(name)[1], [])
                if not history or history[-1] != entry:
                    history.append(entry)


def campaign(
    folder: Path, seconds: float, seed: int, *, attacks: Sequence[str] | None = None
) -> Report:
    """Attack a group for so long, at random or by these `attacks`, and judge what it did."""
    random, began = Random(seed), time.monotonic()
    with _Pipeline(folder) as pipeline:
        counted: Counter[str] = Counter()
        settling = [pipeline.settled(pipeline.start_workers(_FEWEST))]
        left = None if attacks is None else list(reversed(attacks))
        while time.monotonic() - began < seconds and left != []:
            name = pipeline.attack(random, left.pop() if left else None)
            counted[name] += 1
            settling.append(pipeline.settled(0))
        pipeline.finish()
        runs = [run for worker in pipeline.workers for run in _runs(worker)]
        wrong = tuple(_judge(pipeline, runs))
        times = Counter(number for worker in pipeline.workers for number in _numbers(worker))
    return Report(
        counted,
        len(pipeline.acknowledged),
        sum(times.values()),
        sum(count > 1 for count in times.values()),
        tuple(settling),
        time.monotonic() - began,
        wrong,
    )


class _Pipeline:
    """ZooKeeper, brokers, registry, a producer, and the members that are attacked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[Worker] = []
        self.acknowledged: set[int] = set()
        self.positions = Positions()
        self._stack = contextlib.ExitStack()
        self._stopping = threading.Event()

    def __enter__(self) -> _Pipeline:
        with contextlib.ExitStack() as stack:
            self.zookeeper = stack.enter_context(ensemble(self.folder)).address
            store = f"sqlite:///{self.folder / 'registry.db'}"
            registry = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
            self.registry = stack.enter_context(child_process.start(registry)).url
            self.brokers = [
                stack.enter_context(
                    child_process.start(_broker(self.folder, self.zookeeper, number))
                )
                for number in range(1, _BROKERS + 1)
            ]
            self.session = stack.enter_context(open_session(self.zookeeper, timeout=60))
            self._create_topic()
            stack.callback(self._kill_workers)
            for work in (self._produce, self._look):
                thread = threading.Thread(target=work, daemon=True)
                thread.start()
                stack.callback(thread.join)
            stack.callback(self._stopping.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def start_workers(self, count: int) -> int:
        for _ in range(count):
            number = len(self.workers)
            log = self.folder / f"worker-{number}.log"
            command = [sys.executable, "-m", "tests.soak.worker", "--zookeeper", self.zookeeper]
            command += ["--registry", self.registry, "--group", _GROUP, "--topic", _TOPIC]
            with (self.folder / f"worker-{number}.err").open("wb") as errors:
                process = subprocess.Popen(
                    [*command, "--log", str(log)],
                    stdout=errors,
                    stderr=errors,
                    env=dict(os.environ),
                )
            self.workers.append(Worker(number, log, process))
        return count

    def attack(self, random: Random, chosen: str | None) -> str:
        """Do something to the group (None: anything); what it was."""
        alive = self.alive
        kinds = ["pause", "pause briefly"]
        kinds += ["join"] * 2 if len(alive) < _MOST else []
        kinds += ["leave", "kill"] if len(alive) > _FEWEST - 2 else []
        kind = chosen or random.choice(kinds)
        if kind == "join":
            self.start_workers(1)
            return kind
        worker = random.choice(alive)
        if kind == "leave":
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.wait(_SETTLE) == 0, worker.log.with_suffix(".err").read_text()
        elif kind == "kill":
            worker.process.kill()
            worker.process.wait()
        else:
            self._pause(worker, _SESSION * (0.3 if kind == "pause briefly" else 2.0))
        return kind

    def _pause(self, worker: Worker, seconds: float) -> None:
        worker.process.send_signal(signal.SIGSTOP)
        worker.pauses += 1
        worker.paused = seconds > _SESSION
        if worker.paused:
            self.settled(0)  # the others take over
        time.sleep(seconds)  # the attack itself: what is waited for is waited for by facts
        worker.process.send_signal(signal.SIGCONT)
        worker.paused = False

    def settled(self, joining: int) -> float:
        """Wait until every partition is owned by members that live; how long that took."""
        began = time.monotonic()
        groups = DecentralizedGroups(self.session)
        expected = sum(not worker.paused for worker in self.alive)
        assert expected >= joining
        while True:
            state = groups.described([_GROUP])[0]
            members = {member.name for member in state.members}
            owners = [one.owner for one in state.positions if one.owner is not None]
            busy = members.intersection(owners)
            if (
                len(members) == expected
                and len(owners) == _PARTITIONS
                and len(busy) == min(expected, _PARTITIONS)
                and busy == set(owners)
            ):
                return time.monotonic() - began
            assert time.monotonic() - began < _SETTLE, f"not settled: {expected=} {state}"
            time.sleep(0.02)

    def finish(self) -> None:
        """Stop producing, let everything be read, and let everyone leave."""
        self._stopping.set()
        deadline = time.monotonic() + _SETTLE
        while missing := self.acknowledged - set(self._processed()):
            assert time.monotonic() < deadline, f"{len(missing)} lost, {min(missing)} the first"
            time.sleep(0.1)
        for worker in self.alive:
            worker.process.send_signal(signal.SIGTERM)
        for worker in self.workers:
            worker.process.wait(_SETTLE)
        self.positions.look(self.session)

    def _processed(self) -> Iterator[int]:
        for worker in self.workers:
            yield from _numbers(worker)

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers[0].address})
        for future in admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)]).values():
            future.result(_SETTLE)

    def _produce(self) -> None:
        addresses = ",".join(broker.address for broker in self.brokers)
        producer = confluent_kafka.Producer({"bootstrap.servers": addresses, "linger.ms": 5})
        encode = encoder(self.registry, _TOPIC)

        def acknowledged(number: int, error: object, _message: object) -> None:
            if error is None:
                self.acknowledged.add(number)

        number = 0
        while not self._stopping.wait(0.02):
            for _ in range(10):
                producer.produce(
                    _TOPIC,
                    encode(number),
                    partition=number % _PARTITIONS,
                    on_delivery=partial(acknowledged, number),
                )
                number += 1
            producer.poll(0)
        producer.flush(_SETTLE)

    def _look(self) -> None:
        with open_session(self.zookeeper) as session:
            while not self._stopping.wait(0.05):
                self.positions.look(session)

    def _kill_workers(self) -> None:
        for worker in self.alive:
            worker.process.kill()
            worker.process.wait()


def _broker(folder: Path, zookeeper: str, number: int) -> list[str]:
    return [
        *("broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder / f"b{number}")),
        *("--zookeeper", zookeeper, "--broker-id", str(number)),
    ]


def _lines(worker: Worker) -> list[list[str]]:
    if not worker.log.exists():
        return []
    text = worker.log.read_text(encoding="ascii")
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


def _numbers(worker: Worker) -> Iterator[int]:
    for kind, _, *rest in _lines(worker):
        if kind == "m":
            yield int(rest[2])


def _runs(worker: Worker) -> Iterator[tuple[int, Run]]:
    """The runs of a worker, with their partitions."""
    began: dict[int, float] = {}
    messages: dict[int, list[tuple[int, float]]] = {}

    def ended(partition: int) -> tuple[int, Run]:
        told = messages.pop(partition, [])
        offsets = tuple(offset for offset, _ in told)
        times = tuple(at for _, at in told)
        return partition, Run(worker.number, began.pop(partition), offsets, times)

    for kind, at, *rest in _lines(worker):
        partition = int(rest[0])
        if kind == "a":
            if partition in began:
                yield ended(partition)
            began[partition] = float(at)
        else:
            messages.setdefault(partition, []).append((int(rest[1]), float(at)))
    for partition in list(began):
        yield ended(partition)


def _judge(pipeline: _Pipeline, runs: Sequence[tuple[int, Run]]) -> Iterator[str]:
    """What is wrong with what the members noted."""
    for partition, history in pipeline.positions.seen.items():
        for (_, before), (_, after) in pairwise(history):
            if after < before:
                yield f"partition {partition}: its position went back from {before} to {after}"
    by_partition: dict[int, list[Run]] = {}
    for partition, run in runs:
        by_partition.setdefault(partition, []).append(run)
    for partition, found in by_partition.items():
        found.sort(key=lambda run: run.began)
        history = pipeline.positions.seen.get(partition, [])
        for run in found:
            known = [offset for at, offset in history if at < run.began]
            if run.offsets and known and run.offsets[0] < max(known):
                yield f"partition {partition}: began at {run.offsets[0]}, committed {max(known)}"
            if run.offsets and list(run.offsets) != sorted(set(run.offsets)):
                yield f"partition {partition}: worker {run.worker} read out of order"
        # Who was stopped may hear of a partition when it goes on that is another's by then: it is
        # given no message of it.
        owners = [run for run in found if run.offsets or not pipeline.workers[run.worker].pauses]
        for run, heir in pairwise(owners):
            late = sum(at > heir.began for at in run.times)
            allowed = 1 if pipeline.workers[run.worker].pauses else 0
            if run.worker != heir.worker and late > allowed:
                yield (
                    f"partition {partition}: worker {run.worker} processed {late} messages after"
                    f" worker {heir.worker} had taken it"
                )
