"""One table fails in a step of apply, and loaders are killed: the long form.

A round is a warehouse of three topics, in this process. Its metastore and broker are in memory, and
its files are real. Every few operations, trouble with one table begins or ends. Loads, compactions,
and rewinds are killed at random steps.

Rules:

- Every choice comes from the seed.
- After a load that nobody kills, every topic whose table is in no trouble has every message once.
  The table in trouble has no message twice.
- After the trouble, one load brings everything once, for readers and for the audit. It leaves
  nothing in staging.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._storage.failpoints import RARE_STEPS, STEPS
from headworks.errors import HeadworksError
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.test_loading import V1, V2, Killed, killer
from tests.hadoop_loader.trouble import (
    FILE_STEPS,
    STATEMENTS,
    TOPICS,
    Trouble,
    counted,
    produce,
    seen,
    troubled,
)

_OPERATIONS_PER_ROUND = 12
_STEPS_IN_TROUBLE = (*STATEMENTS, *FILE_STEPS, "relocate")


@dataclass
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    rounds: int = 0
    kills: int = 0
    held: Counter[str] = field(default_factory=Counter)  # loads that held a table, by its step
    messages: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        held = ", ".join(f"{step} {n}" for step, n in sorted(self.held.items()))
        figures = f"{self.rounds} rounds, {self.kills} kills, {self.messages} messages"
        return "\n".join([f"{figures}; loads that held a table: {held}", *self.wrong[:20]])


def campaign(folder: Path, rounds: int, seed: int) -> Report:
    """Run this many rounds in `folder`."""
    rng, report = random.Random(seed), Report()
    with patch.object(os, "fsync", lambda handle: None):  # no power is cut here
        while report.rounds < rounds and not report.wrong:
            report.rounds += 1
            _Round(World(folder / f"{report.rounds}"), rng, report).run()
    return report


class _Round:
    """One warehouse; `_sent` is the number of events in each topic."""

    def __init__(self, world: World, rng: random.Random, report: Report) -> None:
        self._world, self._rng, self._report = world, rng, report
        self._sent, self._schema = 0, V1
        self._trouble: Trouble | None = None
        self._ends = ExitStack()

    def run(self) -> None:
        for topic in TOPICS:
            self._world.register(topic, V1)
        with self._ends:
            for _ in range(_OPERATIONS_PER_ROUND):
                self._produce()
                if self._rng.random() < 0.4:
                    self._change_trouble()
                self._operate()
                self._load()
            self._trouble_over()
            self._load()
        self._check_rest()
        self._report.messages += self._sent * len(TOPICS)

    def _produce(self) -> None:
        if self._schema is V1 and self._rng.random() < 0.2:
            self._schema = V2
            for topic in TOPICS:
                self._world.register(topic, V2)
        n = self._rng.randint(0, 6)
        produce(self._world, range(self._sent, self._sent + n), self._schema)
        self._sent += n

    def _change_trouble(self) -> None:
        self._trouble_over()
        step, table = self._rng.choice(_STEPS_IN_TROUBLE), self._rng.choice(TOPICS)
        found = Trouble(step, table, self._rng.randint(0, 2))
        self._trouble = self._ends.enter_context(troubled(self._world, found))

    def _trouble_over(self) -> None:
        self._ends.close()
        self._trouble = None

    def _operate(self) -> None:
        """Do something that is killed half of the time."""
        step = self._rng.choice((*STEPS, *RARE_STEPS)) if self._rng.random() < 0.5 else "never"
        context = self._world.context(on_step=killer(step, self._rng.randint(1, 3)))
        work = self._rng.choice(("load", "load", "compact", "rewind"))
        try:
            if work == "load":
                Load(context).run()
            elif work == "compact":
                Compaction(context, min_small_files=2).run()
            else:
                Rewind(context).run(self._rng.choice(TOPICS), RewindPosition.parse("earliest"))
        except Killed:
            self._report.kills += 1
        except HeadworksError:
            pass  # a topic without a table, or one in trouble

    def _load(self) -> None:
        """Load, let an hour pass, and look at the tables."""
        report = Load(self._world.context(now=lambda: 1.0 + 4000.0 * self._rng.random())).run()
        failed = {one.topic for one in report.refused}
        if failed and self._trouble is not None:
            self._report.held[self._trouble.step] += 1
        if failed - ({self._trouble.table} if self._trouble else set()):
            self._report.wrong.append(f"{failed} were not loaded: {report.refused}")
        for topic in TOPICS:
            found = seen(self._world, topic)
            wanted = list(range(self._sent))
            if topic in failed:
                ok = len(found) == len(set(found)) and set(found) <= set(wanted)
            else:
                ok = found == wanted
            if not ok:
                self._report.wrong.append(f"{topic} has {found} of {self._sent} ({failed} failed)")

    def _check_rest(self) -> None:
        log = self._world.context().log
        if (self._world.root / ".staging").exists() or log.held.entries():
            self._report.wrong.append("something is left in staging or held")
        for topic in TOPICS:
            if (n := counted(self._world, topic)) != self._sent:
                self._report.wrong.append(f"the audit has {n} of {self._sent} of {topic}")
