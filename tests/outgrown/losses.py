"""Machines that are taken away under load, and the ledger that says what was kept.

Writers, a reader, and two loaders run all the time. Each loss happens once in a turn, in a random
order; after it the machine comes back, and the next loss waits until everything is whole again.
At the end the writers' journals are held against the table and the audit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from headworks.registry_client import RegistryClient
from headworks.schema import subject_of
from tests.outgrown import traffic
from tests.outgrown.servers import Server
from tests.outgrown.shape import Shape

_WRITERS = 2
_HOLD_SECONDS = (1.0, 6.0)
_KAFKA_HOLD_SECONDS = (3.0, 12.0)  # its session is 9 seconds
_PATIENCE_SECONDS = 900.0
_QUESTION = (
    "SELECT customer, count(*) AS n, count(DISTINCT number) AS d, max(number) AS last, "
    "count(DISTINCT _partition, _offset) AS places FROM shop_orders GROUP BY customer"
)


@dataclass
class Report:
    """The losses, how long each was felt, and the faults found; `wrong` is empty."""

    events: int = 0
    felt: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    restarted: Counter[str] = field(default_factory=Counter)  # ended by themselves
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"{'lost':<22}{'times':>6}{'longest write':>15}{'median':>8}{'longest read':>14}"]
        for name, waits in sorted(self.felt.items()):
            writes, reads = [one for one, _ in waits], [one for _, one in waits]
            rows.append(
                f"{name:<22}{len(waits):>6}{max(writes):>13.1f} s{median(writes):>6.1f} s"
                f"{max(reads):>12.1f} s"
            )
        losses = sum(map(len, self.felt.values()))
        rows.append(f"{losses} losses, {self.events:,} events, {len(self.wrong)} wrong")
        again = ", ".join(f"{name} {count}" for name, count in sorted(self.restarted.items()))
        return "\n".join([*rows, f"ended by themselves: {again or 'none'}", *self.wrong])


@dataclass(frozen=True, slots=True)
class Loss:
    """How something is taken away, and how it comes back."""

    name: str
    strike: Callable[[], None]
    mend: Callable[[], None]


class Campaign:
    """The traffic over a shape, and the losses of its machines."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self._shape, self._chance = shape, Random(seed)
        self._folder = shape.folder / "campaign"
        self._folder.mkdir()
        self._settings = _settings(shape.settings)
        client = RegistryClient(self._settings["registry"])
        client.register(subject_of(traffic.TOPIC), traffic.SCHEMA)
        self._writers = [self._part("write", f"writer-{n + 1}") for n in range(_WRITERS)]
        self._reader = self._part("read", "reader")
        self._loaders = [self._loader(n + 1) for n in range(2)]
        self.report = Report()

    def run(self, losses: int) -> Report:
        """Let that many losses happen, and judge."""
        with ExitStack() as stack:
            for server in (*self._writers, self._reader, *self._loaders):
                stack.callback(server.kill)
                server.launch()
            self._await("the first load", lambda: self._rows() != [])
            deck: list[Loss] = []
            for _ in range(losses):
                deck = deck or self._chance.sample(self._losses(), len(self._losses()))
                self._suffer(deck.pop())
            self._judge()
        return self.report

    def _suffer(self, loss: Loss) -> None:
        began = time.time()
        loss.strike()
        hold = _KAFKA_HOLD_SECONDS if loss.name.startswith("Kafka") else _HOLD_SECONDS
        time.sleep(self._chance.uniform(*hold))
        loss.mend()
        mended = time.time()
        self._await(f"health after {loss.name}", self._whole)
        # A wait that goes on belongs to this loss, and not to the next one.
        self._await(f"events after {loss.name}", lambda: self._goes_on(mended))
        writes = [
            float(wait) for *_, at, wait in self._lines(*self._writers) if _end(at, wait) > began
        ]
        reads = [float(wait) for *_, at, wait in self._lines(self._reader) if float(at) > began]
        felt = (max(writes, default=0.0), max(reads, default=0.0))
        self.report.felt[loss.name].append(felt)
        number, took = sum(map(len, self.report.felt.values())), time.time() - began
        felt_by = f"writers {felt[0]:.1f} s, reader {felt[1]:.1f} s"
        print(f"{number}. {loss.name}: {felt_by}; whole after {took:.0f} s", file=sys.stderr)

    def _goes_on(self, since: float) -> bool:
        """Return whether each writer and the reader have an event of after that time."""
        journals = map(self._journal, (*self._writers, self._reader))
        return all(lines and float(lines[-1].split()[-2]) > since for lines in journals)

    def _losses(self) -> list[Loss]:
        shape, chance = self._shape, self._chance
        node = chance.randrange(len(shape.kafka.nodes))
        kafka = shape.kafka.nodes[node]
        loader = chance.choice(self._loaders)
        killed = {
            "registry killed": chance.choice(shape.registries),
            "reconciler killed": chance.choice(shape.reconcilers),
            "metastore killed": shape.metastore,
            "data node killed": chance.choice(shape.hdfs.data_nodes),
            "Spark worker killed": chance.choice(shape.spark_workers),
            "Kafka node killed": kafka,
            "loader killed": loader,
        }
        found = [Loss(name, one.kill, one.launch) for name, one in killed.items()]
        found.append(Loss("Kafka node paused", kafka.pause, kafka.resume))
        found.append(Loss("Kafka disk emptied", lambda: self._empty(node), kafka.launch))
        store = shape.postgresql
        found.append(Loss("PostgreSQL restarted", store.stop, store.start))
        if shape.kafka.hosts:
            host = shape.kafka.hosts[node]
            found.append(Loss("Kafka node cut off", host.pull_cable, host.plug_in))
        return found

    def _empty(self, node: int) -> None:
        self._shape.kafka.nodes[node].kill()
        self._shape.kafka.empty(node)

    def _whole(self) -> bool:
        shape = self._shape
        servers = (*shape.kafka.nodes, *shape.registries, shape.metastore, *shape.hdfs.data_nodes)
        serves = all(one.alive and one.answers() for one in (*servers, *shape.spark_workers))
        for one in (*shape.registries, *shape.reconcilers, *self._loaders):
            if not one.alive:  # an init system starts it again
                self.report.restarted[one.name] += 1
                print(f"{one.name} ended by itself:\n{one.last_words()}", file=sys.stderr)
                one.launch()
        return serves and shape.kafka.in_sync()

    def _judge(self) -> None:
        """Hold the journals against the table and the audit."""
        for server in self._writers:
            self._end(server)
        sent = {server.name: self._journal(server) for server in self._writers}
        self.report.events = sum(map(len, sent.values()))
        for server in self._loaders:
            self._end(server)
        self._command("load", "run")
        found = {row["customer"]: row for row in self._rows()}
        for name, lines in sent.items():
            unknown = sum(line.startswith("?") for line in lines)
            row = found.get(name)
            least, most = len(lines) - unknown, len(lines)
            if row is None or row["n"] != row["d"] or row["n"] != row["places"]:
                self.report.wrong.append(f"{name}: rows twice: {row}")
            if row is None or not least <= row["d"] <= most:
                self.report.wrong.append(f"{name} sent {most} and knows of {least}: {row}")
            if unknown:
                self.report.wrong.append(f"{name}: {unknown} were not acknowledged")
        rows = sum(row["n"] for row in found.values())
        try:
            self._await("the reader", lambda: self._read() >= rows)
        except TimeoutError:
            self.report.wrong.append(f"the reader was given {self._read()} messages of {rows}")
        self._end(self._reader)
        self._judge_audit()

    def _judge_audit(self) -> None:
        told = json.loads(self._command("audit", "status", "--format", "json"))
        rows = [row for row in told["rows"] if row["topic"] == traffic.TOPIC]
        wanted = {"attempted": self.report.events, "loaded": self.report.events}
        wanted |= dict.fromkeys(("lost", "dropped", "failed", "duplicated", "surplus"), 0)
        seen = {name: rows[0][name] for name in wanted} if rows else {}
        if seen != wanted:
            self.report.wrong.append(f"the audit says {seen}, and the ledger {wanted}")

    def _read(self) -> int:
        """Return how many messages the reader was given, each counted once."""
        return len({tuple(line.split()[1:3]) for line in self._journal(self._reader)})

    def _rows(self) -> list[dict[str, Any]]:
        # The loader has all cores of the cluster, for as long as it runs.
        done = self._run("sql", _QUESTION, "--format", "json", "--master", "local[1]")
        if done.returncode != 0:
            return []
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def _command(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode != 0:
            self.report.wrong.append(f"{arguments}: exit {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "headworks._cli", *arguments],
            env=self._shape.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def _lines(self, *servers: Server) -> Iterator[list[str]]:
        """Yield the words of each line of the journals."""
        for server in servers:
            yield from map(str.split, self._journal(server))

    def _journal(self, server: Server) -> list[str]:
        file = self._folder / f"{server.name}.journal"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def _part(self, what: str, name: str) -> Server:
        place = [self._settings["bootstrap"], self._settings["registry"]]
        files = [str(self._folder / name), str(self._folder / f"{name}.journal")]
        command = [sys.executable, "-m", "tests.outgrown.traffic", what, *place, *files, name]
        return self._server(name, command)

    def _loader(self, number: int) -> Server:
        load = ["load", "run", "--every", "10s", "--standby", "--data-dir"]
        load.append(str(self._folder / f"loader-{number}"))
        return self._server(
            f"loader-{number}", [sys.executable, "-P", "-m", "headworks._cli", *load]
        )

    def _server(self, name: str, command: list[str]) -> Server:
        log = self._folder / f"{name}.log"
        return Server(name, command, log, lambda: True, self._shape.environment)

    def _end(self, server: Server) -> None:
        """End a server by SIGTERM, as an operator does."""
        assert server.process is not None
        if server.alive:
            os.kill(server.process.pid, signal.SIGTERM)
        code = server.process.wait(_PATIENCE_SECONDS)
        if code not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            self.report.wrong.append(f"{server.name} ended with {code}: {server.last_words()}")

    def _await(self, what: str, true: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while not true():
            if time.monotonic() > end:
                raise TimeoutError(f"{what} has not come")
            time.sleep(0.5)


def _end(at: str, wait: str) -> float:
    """Return when a write ended, in seconds since the epoch."""
    return float(at) + float(wait)


def _settings(file: Path) -> Mapping[str, str]:
    found: dict[str, str] = tomllib.loads(file.read_text(encoding="utf-8"))
    return found
