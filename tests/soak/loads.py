"""Kill the loader at every step of every kind of work, and look where each message is.

A kill is SIGKILL of the driver at a named step (and with it its JVM), SIGKILL of everything after
a random time, or the death of a Python worker in a task. Now and then the next run, which
recovers, is killed too.

Rules: every choice comes from the seed; after each recovery each (topic, partition, offset) is in
the topic's table or in quarantine, once; no file is visible that no commit names; the sums of the
audit are what was produced. Runs are real processes on a real broker and registry.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from confluent_kafka import Producer

from hadoop_loader.commits import CommitLog
from hadoop_loader.crash import STEPS, TASK_STEPS
from hadoop_loader.draft import Draft
from hadoop_loader.quarantine import QUARANTINE_TABLE
from headworks import service
from headworks.registry_client import RegistryClient
from tests.loader.memory import encoded
from tests.loader.test_loading import HOUR, V1, V2

__all__ = ["Report", "campaign"]

_TOPICS = ("clicks", "views")
_LIMIT = 900.0
_WORK = (
    ("run",),
    ("run",),
    ("run",),
    ("compact",),
    ("rewind", "clicks", "--to", "earliest"),
    ("rewind", "views", "--to", "5"),
)


@dataclass
class Report:
    """What a campaign saw; `wrong` must be empty."""

    kills: int = 0
    twice: int = 0
    messages: int = 0
    commits: int = 0
    seconds: float = 0.0
    by_step: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.kills} kills ({self.twice} of them during recovery), {self.commits} commits, "
            f"{self.messages} messages, in {self.seconds:.0f} s",
            ", ".join(f"{step} {n}" for step, n in sorted(self.by_step.items())),
            *self.wrong[:20],
        ]
        return "\n".join(lines)


def campaign(folder: Path, kills: int, seed: int) -> Report:
    """Kill the loader `kills` times in `folder`; every choice comes from `seed`."""
    rng, report, began = Random(seed), Report(), time.monotonic()
    store = f"sqlite:///{folder / 'registry.db'}"
    broker_data = str(folder / "broker")
    with (
        service.start(
            ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", broker_data]
        ) as broker,
        service.start(
            ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
        ) as registry,
    ):
        stage = _Stage(folder, broker, registry, rng)
        while report.kills < kills and not report.wrong:
            stage.produce()
            _kill(stage, report, rng)
            if rng.random() < 0.3:
                report.twice += _kill(stage, report, rng)
            stage.recover(report)
        report.messages, report.commits = stage.sent, len(stage.log.numbers())
    report.seconds = time.monotonic() - began
    return report


class _Stage:
    """Broker, registry and warehouse of a campaign."""

    def __init__(
        self, folder: Path, broker: service.Service, registry: service.Service, rng: Random
    ) -> None:
        self.folder, self._rng = folder, rng
        self._settings = {
            "HEADWORKS_BOOTSTRAP": broker.address,
            "HEADWORKS_REGISTRY": registry.url,
            "HEADWORKS_DATA_DIR": str(folder / "data"),
        }
        self._producer = Producer({"bootstrap.servers": broker.address})
        self._client = RegistryClient(registry.url)
        self._ids = {t: self._client.register(f"{t}-value", json.dumps(V1)).id for t in _TOPICS}
        self._new: dict[str, int] = {}
        self.sent = 0

    @property
    def log(self) -> CommitLog:
        """The warehouse's commit log, as it is now."""
        return CommitLog(self.folder / "data" / "warehouse" / "_headworks")

    def produce(self) -> None:
        """Some messages of every topic, bad ones among them; once in a while in a new schema."""
        for topic in _TOPICS:
            if topic not in self._new and self._rng.random() < 0.1:
                registered = self._client.register(f"{topic}-value", json.dumps(V2))
                self._new[topic] = registered.id
            for _ in range(self._rng.randint(5, 60)):
                self._send(topic)
        self._producer.flush()

    def start(self, *arguments: str, crash: str = "") -> subprocess.Popen[bytes]:
        """A loader at work, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", "load", *arguments],
            env={**os.environ, **self._settings, "HEADWORKS_CRASH_AT": crash},
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "loader.log").open("ab"),
            start_new_session=True,
        )

    def recover(self, report: Report) -> None:
        """Load until all is done, and look at everything."""
        code = self.start("run").wait(_LIMIT)
        if code != 0:
            report.wrong.append(f"a run that nobody killed ended with {code}: see loader.log")
            return
        report.wrong += self._look()

    def _send(self, topic: str) -> None:
        n, chance = self.sent, self._rng.random()
        at = self._rng.randrange(6 * 24) * HOUR
        new = self._new.get(topic)
        if chance < 0.05:
            value = b"junk"
        elif new is not None and chance < 0.6:
            value = encoded(V2, {"at": at, "n": n, "how": "touch"}, new)
        else:
            value = encoded(V1, {"at": at, "n": n}, self._ids[topic])
        self._producer.produce(topic, value, key=str(n), timestamp=at)
        self._producer.poll(0)
        self.sent += 1

    def _look(self) -> list[str]:
        log = self.log
        last = log.latest()
        if last is None:
            return ["there is no commit"]
        root = self.folder / "data" / "warehouse"
        draft = Draft(log, root, last)
        wrong = [f"{p} was left" for p in [root / ".staging"] if p.exists()]
        found: Counter[tuple[str, int, int]] = Counter()
        tables = {state.files_table: topic for topic, state in last.tables.items()}
        for table in (*tables, QUARANTINE_TABLE):
            for day in draft.days(table):
                for path in draft.sources(table, day):
                    found.update(_keys(path, tables.get(table)))
        wanted = {
            (topic, partition, offset)
            for topic in last.tables
            for partition, end in last.committed(topic).items()
            for offset in range(end)
        }
        wrong += [f"{key} is there {n} times" for key, n in found.items() if n != 1]
        wrong += [f"{key} is missing" for key in sorted(wanted - found.keys())[:5]]
        wrong += [f"{key} was never loaded" for key in sorted(found.keys() - wanted)[:5]]
        loaded = sum(s.rows + s.quarantined for t, s in last.tables.items() if t in _TOPICS)
        if loaded != self.sent:
            wrong.append(f"{self.sent} messages were sent, and the sums say {loaded}")
        return wrong + self._audited()

    def _audited(self) -> list[str]:
        from audit.reader import read_ledger

        ledger = read_ledger(
            self._settings["HEADWORKS_BOOTSTRAP"], self._settings["HEADWORKS_REGISTRY"]
        )
        counted = sum(b.accounted for t in _TOPICS for b in ledger.balances("hadoop", t))
        if counted == self.sent:
            return []
        return [f"{self.sent} messages were sent, and the audit accounts for {counted}"]


def _keys(path: Path, topic: str | None) -> list[tuple[str, int, int]]:
    columns = ["_partition", "_offset", *([] if topic else ["topic"])]
    rows = pq.ParquetFile(path).read(columns=columns).to_pylist()
    return [(topic or row["topic"], row["_partition"], row["_offset"]) for row in rows]


def _kill(stage: _Stage, report: Report, rng: Random) -> bool:
    """Kill one run; whether it did not end before."""
    steps = (*STEPS, *STEPS, *TASK_STEPS, "any time")
    step, work = rng.choice(steps), rng.choice(_WORK)
    if not stage.log.numbers():
        work = ("run",)
    if step == "any time":
        run = stage.start(*work)
        try:
            run.wait(rng.uniform(3, 30))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
    else:
        often = rng.randint(1, 3) if step in ("renaming", *TASK_STEPS) else 1
        run = stage.start(*work, crash=f"{step}:{often}")
    code = run.wait(_LIMIT)
    # A JVM outlives its driver by a moment; a rewind of what nobody loaded ends by itself.
    killed = code == -signal.SIGKILL or (step in TASK_STEPS and code != 0)
    report.kills += killed
    report.by_step[step] += killed
    return killed
