"""Clients under fire that nobody comes back for, and clients that do not count.

`fire.forever`: one producer lives, and others of the same application are killed for good: their
state folders are never used again. `fire.foreign`: a plain client writes events and poison beside
a producer. `fire.dropped`: a producer whose queue is too small.
"""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random

import fastavro
from confluent_kafka import Producer
from sqlalchemy import select

from headworks._audit.quiet import vanished_processes
from headworks._audit.store import AuditStore, tables
from headworks._audit_counting import WINDOW_MS
from headworks._wire import prefix
from headworks.registry_client import RegistryClient
from tests.soak.fire_fates import poison
from tests.soak.fire_tables import SHOT
from tests.soak.process import PATIENCE, Child

FOREVER, FOREIGN, DROPPED = "fire.forever", "fire.foreign", "fire.dropped"
QUEUE = 25  # messages of the producer of fire.dropped
APPLICATION = "fire-forever"
_HOUR_MS = 3_600_000


class PlainClient:
    """Writes to fire.foreign what no audit counts, and notes the names in a journal."""

    def __init__(self, folder: Path, address: str, registry: str, chance: Random) -> None:
        self._journal = folder / f"{FOREIGN}-plain.journal"
        self._address, self._registry, self._chance = address, registry, chance
        self._sender, self._n = uuid.uuid4().hex, 0

    def write(self, mark: str) -> None:
        """Append some events (`p`) or poison (`x`), each of them once."""
        found = RegistryClient(self._registry).latest(f"{FOREIGN}-value")
        assert found is not None
        producer = Producer(
            {"bootstrap.servers": self._address, "enable.idempotence": True, "log_level": 2}
        )
        lines = []
        for _ in range(self._chance.randint(1, 20)):
            at = int(time.time() * 1000) - self._chance.choice((0, WINDOW_MS))
            self._n += 1
            out = io.BytesIO()
            datum = {"sender": self._sender, "n": self._n, "at": at}
            fastavro.schemaless_writer(out, _PLAIN, datum)
            value = prefix(found.id) + out.getvalue()
            if mark == "x":
                value = poison(self._sender, self._n)
            producer.produce(FOREIGN, value, self._sender, timestamp=at)
            lines.append(f"{mark} {self._sender} {self._n} {at}\n")
        assert producer.flush(PATIENCE) == 0
        with self._journal.open("a") as journal:
            journal.writelines(lines)


_PLAIN = {
    **SHOT,
    "fields": [
        {"name": name, "type": kind}
        for name, kind in (("sender", "string"), ("n", "long"), ("at", "long"))
    ],
}


class Victims:
    """The producers of fire.forever that are killed for good, one after the other."""

    def __init__(self, start: Callable[[int], Child]) -> None:
        self._start = start
        self.number = 1  # number 0 lives
        self.living = start(self.number)

    def kill(self, stop_between_sends: Callable[[Child, int], None]) -> None:
        """Kill the one that lives, and let another begin in a folder of its own."""
        stop_between_sends(self.living, self.number)
        self.living.kill()
        self.number += 1
        self.living = self._start(self.number)


def orphans(folder: Path) -> list[Path]:
    """Return the counter files of producers that were killed for good."""
    return sorted(folder.glob(f"{FOREVER}-*/*.counts"))


def vanished_wrongly(store: AuditStore, files: list[Path]) -> list[str]:
    """Return what is wrong with the processes that the audit misses: they must be the killed ones.

    A process that was killed before its first report is unknown to everybody.
    """
    p = tables.processes.c
    with store.read() as connection:
        rows = connection.execute(select(p.process, p.application, p.ended)).all()
    killed, known = {path.stem for path in files}, {row.process for row in rows}
    missed = {row.process for row in rows if not row.ended}
    now = time.time_ns() // 1_000_000 + _HOUR_MS
    told = {one.application: one.processes for one in vanished_processes(store, now, 1)}
    wrong = []
    if missed != killed & known:
        wrong.append(f"vanished are {sorted(missed)}, and killed for good {sorted(killed & known)}")
    if told != ({APPLICATION: len(missed)} if missed else {}):
        wrong.append(f"the findings name {told}, and {len(missed)} processes are missed")
    return wrong
