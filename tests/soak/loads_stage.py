"""A campaign against the loader: its broker, registry and warehouse, and the loaders at work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import IO

import psutil
from confluent_kafka import Producer

from headworks._server import child_process
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.memory import encoded
from tests.hadoop_loader.test_loading import HOUR, V1, V2
from tests.soak.loads_facts import Facts

TOPICS = ("clicks", "views")
LIMIT = 900.0
_BLINK = 0.05


@contextmanager
def staged(folder: Path, rng: Random) -> Iterator[Stage]:
    """A stage in `folder`, with its servers, for as long as the block."""
    store, data = f"sqlite:///{folder / 'registry.db'}", str(folder / "broker")
    with (
        child_process.start(
            ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", data]
        ) as broker,
        child_process.start(
            ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
        ) as registry,
    ):
        yield Stage(folder, broker.address, registry.url, rng)


class Stage:
    """`hows`: what message n was sent with; `settings`: of the loaders that are started."""

    def __init__(self, folder: Path, broker: str, registry: str, rng: Random) -> None:
        self.folder, self._rng = folder, rng
        self.settings = {
            "HEADWORKS_BOOTSTRAP": broker,
            "HEADWORKS_REGISTRY": registry,
            "HEADWORKS_DATA_DIR": str(folder / "data"),
        }
        self.root = folder / "data" / "warehouse"
        self.facts = Facts(self.root)
        self.hows: list[str] = []
        self._producer = Producer({"bootstrap.servers": broker})
        self._client = RegistryClient(registry)
        self._ids = {t: self._client.register(f"{t}-value", json.dumps(V1)).id for t in TOPICS}
        self._new: dict[str, int] = {}
        # When a run begins to touch the warehouse, and how long it takes, in seconds.
        self._begins, self._lasts = [6.0], [12.0]

    def produce(self) -> None:
        """Some messages of every topic, bad ones among them; once in a while in a new schema."""
        for topic in TOPICS:
            if topic not in self._new and self._rng.random() < 0.1:
                registered = self._client.register(f"{topic}-value", json.dumps(V2))
                self._new[topic] = registered.id
            for _ in range(self._rng.randint(5, 60)):
                self._send(topic)
        self._producer.flush()

    def start(
        self, *arguments: str, crash: str = "", log: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """A loader at work, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "headworks._cli", "load", *arguments],
            env={**os.environ, **self.settings, "HEADWORKS_CRASH_AT": crash},
            stdout=subprocess.DEVNULL,
            stderr=log or (self.folder / "loader.log").open("ab"),
            start_new_session=True,
        )

    def standing(self) -> tuple[int, bool]:
        """The last commit's number, and whether all work after it is done."""
        log = self.facts.log
        number = max(log.numbers(), default=0)
        return number, number == 0 or log.is_applied(number)

    def finish(self, run: subprocess.Popen[bytes]) -> int:
        """Wait until a run that nobody kills is over, and learn how long one takes."""
        began, staging = time.monotonic(), self.root / ".staging"
        begins = None
        while run.poll() is None:
            if begins is None and staging.exists():
                begins = time.monotonic() - began
            assert time.monotonic() < began + LIMIT
            time.sleep(_BLINK)
        if begins is not None and run.returncode == 0:
            self._begins = [*self._begins[-4:], begins]
            self._lasts = [*self._lasts[-4:], time.monotonic() - began]
        return run.returncode

    def kill_at_any_time(self, run: subprocess.Popen[bytes]) -> None:
        """SIGKILL of all of a run, between a little before it begins its work and its end."""
        first, last = 0.9 * median(self._begins), 1.05 * median(self._lasts)
        try:
            run.wait(self._rng.uniform(first, max(first, last)))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)

    def kill_a_worker(self, run: subprocess.Popen[bytes]) -> bool:
        """SIGKILL of one of Spark's Python workers, once there is one; whether there was one."""
        while run.poll() is None:
            if workers := _workers(run.pid):
                time.sleep(self._rng.uniform(0.0, 0.4))
                try:
                    self._rng.choice(workers).kill()
                except psutil.NoSuchProcess:
                    return False
                return True
            time.sleep(_BLINK)
        return False

    def age(self, before_ms: int) -> None:
        """Let the time pass after which what was retired before then is removed."""
        for batch in self.facts.log.retired.batches():
            if batch.since_ms < before_ms:
                record = json.loads(batch.file.read_text())
                batch.file.write_text(json.dumps({**record, "since_ms": 0}))

    def rows(self) -> dict[str, list[int]]:
        """Rows, and different ones, of each topic, as `headworks sql` tells them."""
        question = " UNION ALL ".join(
            f"SELECT '{t}' AS t, count(*) AS n, count(DISTINCT _partition, _offset) AS d FROM {t}"
            for t in TOPICS
        )
        done = subprocess.run(
            [sys.executable, "-P", "-m", "headworks._cli", "sql", question, "--format", "json"],
            env={**os.environ, **self.settings},
            capture_output=True,
            check=True,
            timeout=LIMIT,
        )
        return {row["t"]: [row["n"], row["d"]] for row in json.loads(done.stdout)}

    def audited(self) -> int:
        """The messages that the audit accounts for."""
        from headworks._audit.reader import read_ledger

        ledger = read_ledger(
            self.settings["HEADWORKS_BOOTSTRAP"], self.settings["HEADWORKS_REGISTRY"]
        )
        return sum(b.accounted for t in TOPICS for b in ledger.balances("hadoop", t))

    def _send(self, topic: str) -> None:
        n, chance = len(self.hows), self._rng.random()
        at = self._rng.randrange(6 * 24) * HOUR
        new, how = self._new.get(topic), "mouse"
        if chance < 0.05:
            value = b"junk"
        elif new is not None and chance < 0.6:
            how = "touch"
            value = encoded(V2, {"at": at, "n": n, "how": how}, new)
        else:
            value = encoded(V1, {"at": at, "n": n}, self._ids[topic])
        self._producer.produce(topic, value, key=str(n), timestamp=at)
        self._producer.poll(0)
        self.hows.append(how)


def _workers(driver: int) -> list[psutil.Process]:
    """The Python workers of a driver: what the daemon has forked that its JVM has started."""
    try:
        return [
            worker
            for jvm in psutil.Process(driver).children()
            for daemon in jvm.children()
            if "pyspark.daemon" in daemon.cmdline()
            for worker in daemon.children()
        ]
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
