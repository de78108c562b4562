"""Loaders that publish to Iceberg are killed at random steps: the long form.

A round is a warehouse of one topic in this process, with a catalog in memory and real files. Loads,
compactions, rewinds, erasures, and retention follow each other. Most are killed, the catalog is
sometimes away, and retired files become due.

Rules:

- Every choice comes from the seed.
- After each operation, killed or not, every snapshot can be read: all of its files exist.
- After a load that nobody kills, with the catalog there, the snapshot has the table's rows.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.retention import TableRetention
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._storage.failpoints import STEPS
from headworks.errors import HeadworksError
from tests.hadoop_loader.iceberg import MemoryTables, publishing
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer

_OPERATIONS = 12  # of a round
_STEPS = (*STEPS, "publishing", "published", "removing")
_TEN_MINUTES = 600.0  # seconds


@dataclass(slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    rounds: int = 0
    kills: int = 0
    snapshots: int = 0
    compared: int = 0  # snapshots whose rows were compared with the table's
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        figures = f"{self.rounds} rounds, {self.kills} kills, {self.snapshots} snapshots"
        return "\n".join([f"{figures}, {self.compared} of them compared", *self.wrong[:20]])


def campaign(folder: Path, kills: int, seed: int) -> Report:
    """Kill this many loaders in `folder`."""
    rng, report = random.Random(seed), Report()
    with patch.object(os, "fsync", lambda handle: None):  # no power is cut here
        while report.kills < kills and not report.wrong:
            report.rounds += 1
            _Round(World(folder / f"{report.rounds}"), rng, report).run()
    return report


class _Round:
    """One warehouse."""

    def __init__(self, world: World, rng: random.Random, report: Report) -> None:
        self._world, self._rng, self._report = world, rng, report
        self._tables = MemoryTables(world)
        self._sent, self._now = 0, 86_400.0
        self._schema, self._schema_id = V1, world.register("clicks", V1)

    def run(self) -> None:
        try:
            for _ in range(_OPERATIONS):
                self._produce()
                self._tables.down = self._rng.random() < 0.2
                self._operate()
                self._tables.check()
                self._settle()
        except (AssertionError, HeadworksError) as error:
            self._report.wrong.append(f"round {self._report.rounds}: {error!r}")

    def _produce(self) -> None:
        if self._schema is V1 and self._rng.random() < 0.1:
            self._schema, self._schema_id = V2, self._world.register("clicks", V2)
        for _ in range(self._rng.randrange(4)):
            at = self._rng.randrange(3) * DAY
            click(self._world, self._sent, at, schema=self._schema, schema_id=self._schema_id)
            self._sent += 1

    def _operate(self) -> None:
        jobs: dict[str, Callable[[Any], Any]] = {
            "load": lambda c: Load(c).run(),
            "compact": lambda c: Compaction(c, min_small_files=2, every=True).run(),
        }
        if self._tables.tables:
            some = self._rng.randrange(self._sent)
            jobs |= {
                "rewind": lambda c: Rewind(c).run("clicks", RewindPosition.parse("earliest")),
                "erase": lambda c: Erase(c).run(EraseCondition.parse(f"n = {some}")),
                "retention": lambda c: TableRetention(c).run_after(),
            }
        job = self._rng.choice([*jobs, "load"])
        if job == "retention":  # removes files at once, if the catalog is there or not
            self._tables.down = False
        self._now += self._rng.choice([1.0, _TEN_MINUTES, 7200.0])
        keep = {"keep_days": 1 + self._rng.randrange(3)} if job == "retention" else {}
        step = killer(self._rng.choice(_STEPS))
        try:
            jobs[job](publishing(self._world, self._tables, on_step=step, now=self._time, **keep))
        except Killed:
            self._report.kills += 1

    def _settle(self) -> None:
        """Load without a kill, and compare the last snapshot with the table."""
        self._tables.down = False
        context = publishing(self._world, self._tables, now=self._time)
        Load(context).run()
        self._tables.check()
        last = context.log.latest()
        if last is None or "clicks" not in last.tables:
            return
        snapshots = self._tables.tables["clicks"]
        self._report.snapshots += len(snapshots)
        self._report.compared += 1
        found = sorted(row["n"] for row in snapshots[-1].rows())
        expected = sorted(row["n"] for row in self._world.rows(last.tables["clicks"].files_table))
        assert found == expected, (found, expected)
        assert len(found) == last.tables["clicks"].rows

    def _time(self) -> float:
        return self._now
