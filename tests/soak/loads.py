"""Kill the loader at every step of every kind of work, and look where each message is.

A kill is SIGKILL of the driver at a named step (and with it its JVM), SIGKILL of everything at any
time while it works, the death of Python workers at a step until Spark gives up, or of one of them,
after which Spark goes on. What one kill leaves the next run takes up, and is killed itself: now and
then in the middle of that. Now and then a second loader is started beside the first.

Rules:

- Every choice comes from the seed; runs are real processes on a real broker and registry.
- After each kill the files hold each (topic, partition, offset) of the last commit once, in its
  table or in quarantine; no file is visible that no commit names.
- Now and then a run is left alone: then nothing is stray, the sums of the audit are what was
  produced, and a reader finds everything once.
- First the metastore is embedded, and dies with the loader. Then another takes its place, which is
  a process of its own, is defined again from the commits, and is read from all the while.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hadoop_loader._config import WarehouseConfig
from hadoop_loader._spark.session import start_session, stop_session
from hadoop_loader._storage.failpoints import RARE_STEPS, STEPS, TASK_STEPS
from tests.soak.hive import metastore
from tests.soak.loads_facts import offsets_of
from tests.soak.loads_reader import Reader
from tests.soak.loads_stage import LIMIT, TOPICS, Stage, staged

_ANY_TIME, _A_WORKER, _RESTORING = "any time", "one worker", "restoring"
_KINDS = (*STEPS, *STEPS, *RARE_STEPS, *TASK_STEPS, *[_ANY_TIME] * 6, *[_A_WORKER] * 3)
_RUN = ("run",)
_REWRITES = (
    ("compact",),
    ("rewind", "clicks", "--to", "earliest"),
    ("rewind", "views", "--to", "5"),
)
_WORK = (*[_RUN] * 5, *_REWRITES, ("rebuild", "clicks"))
_LOOKS = 0.15
_RIVALS = 0.1


@dataclass
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    kills: int = 0
    twice: int = 0
    runs: int = 0
    refused: int = 0
    readings: int = 0
    again: int = 0
    messages: int = 0
    commits: int = 0
    seconds: float = 0.0
    by_step: Counter[str] = field(default_factory=Counter)
    by_work: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.kills} kills ({self.twice} of them during recovery), {self.runs} runs that "
            f"nobody killed, {self.refused} second loaders sent away, {self.commits} commits, "
            f"{self.messages} messages, {self.readings} readings "
            f"({self.again} asked again, of a view that changed), in {self.seconds:.0f} s",
            ", ".join(f"{step} {n}" for step, n in sorted(self.by_step.items())),
            ", ".join(f"{work} {n}" for work, n in sorted(self.by_work.items())),
            *self.wrong[:20],
        ]
        return "\n".join(lines)


def campaign(folder: Path, kills: int, seed: int) -> Report:
    """Kill the loader `kills` times in `folder`; every choice comes from `seed`."""
    rng, report, began = Random(seed), Report(), time.monotonic()
    with staged(folder, rng) as stage:
        _kill_often(stage, report, rng, kills // 4, None)
        if not report.wrong:
            report.wrong += _as_sql_tells(stage)
        with _reading(folder, stage) as reader:
            if not report.wrong:
                _kill(stage, report, rng, _RESTORING)
            _kill_often(stage, report, rng, kills, reader)
            report.readings, report.again = reader.readings, reader.again
        report.messages, report.commits = len(stage.hows), len(stage.facts.log.numbers())
    report.seconds = time.monotonic() - began
    return report


def _kill_often(
    stage: Stage, report: Report, rng: Random, kills: int, reader: Reader | None
) -> None:
    """Kill until there were so many, and look at everything in the end."""
    while report.kills < kills and not report.wrong:
        stage.produce()
        stage.age(reader.began_ms if reader else int(time.time() * 1000))
        _kill(stage, report, rng)
        report.wrong += stage.facts.after_a_kill() + (reader.wrong if reader else [])
        if not report.wrong and (rng.random() < _LOOKS or report.kills >= kills):
            _look(stage, report, reader)
        print(f"{report.kills} kills, commit {stage.standing()[0]}", flush=True)


@contextmanager
def _reading(folder: Path, stage: Stage) -> Iterator[Reader]:
    """Somebody who reads all the while, from a metastore that serves the loaders from now on."""
    with metastore(folder) as address:
        stage.settings["HEADWORKS_METASTORE"] = address
        spark = start_session(
            WarehouseConfig(
                data_dir=folder / "reader", bootstrap="", registry="", metastore_uri=address
            )
        )
        try:
            reader = Reader(spark, TOPICS, stage.hows)
            try:
                yield reader
            finally:
                reader.stop()
        finally:
            stop_session(spark)


def _kill(stage: Stage, report: Report, rng: Random, kind: str | None = None) -> None:
    """Start one piece of work and kill it, if it does not end before."""
    kind = kind or rng.choice(_KINDS)
    work, (number, applied) = rng.choice(_WORK), stage.standing()
    if kind == "rewriting":
        work = rng.choice(_REWRITES)
    if not number:
        work = _RUN
    named = kind not in (_ANY_TIME, _A_WORKER)
    often = rng.randint(1, 3) if kind in ("renaming", *TASK_STEPS, *RARE_STEPS) else 1
    run = stage.start(*work, crash=f"{kind}:{often}" if named else "")
    rival = named and rng.random() < _RIVALS
    if rival:
        _start_another(stage, report, rng)
    if kind == _ANY_TIME:
        stage.kill_at_any_time(run)
    one = kind == _A_WORKER and stage.kill_a_worker(run)
    code = stage.finish(run)
    killed = one or code == -signal.SIGKILL or (kind in TASK_STEPS and code != 0)
    report.kills += killed
    report.by_step[kind] += killed
    report.by_work[work[0]] += killed
    report.runs += not killed
    report.twice += killed and not applied and stage.standing()[0] == number
    if code not in (0, -signal.SIGKILL) and not (kind in TASK_STEPS or rival):
        report.wrong.append(f"{work} that was to die at {kind} ended with {code}: see loader.log")


def _start_another(stage: Stage, report: Report, rng: Random) -> None:
    """A second loader: it leaves with a message, or has the warehouse when the first is dead."""
    time.sleep(rng.uniform(0, 3))
    words = stage.folder / "rival.log"
    with words.open("wb") as log:
        rival = stage.start("run", log=log)
    code = rival.wait(LIMIT)
    if code == 2 and b"in use by" in words.read_bytes():
        report.refused += 1
    elif code != 0:
        report.wrong.append(f"a second loader ended with {code}: see {words}")


def _look(stage: Stage, report: Report, reader: Reader | None) -> None:
    """Load until all is done, and look at everything."""
    code = stage.finish(stage.start("run"))
    report.runs += 1
    if code != 0:
        report.wrong.append(f"a run that nobody killed ended with {code}: see loader.log")
        return
    report.wrong += stage.facts.at_rest()
    sent, last = len(stage.hows), stage.facts.log.latest()
    wanted = {key for key in offsets_of(last) if key[0] in TOPICS} if last else set()
    if len(wanted) != sent:
        report.wrong.append(f"{sent} messages were sent, and {len(wanted)} are loaded")
    if (counted := stage.audited()) != sent:
        report.wrong.append(f"{sent} messages were sent, and the audit accounts for {counted}")
    if reader is not None:
        found = {key for key in reader.next() if key[0] in TOPICS}
        report.wrong += reader.wrong
        if found != wanted:
            report.wrong.append(f"a reader finds other messages: {sorted(found ^ wanted)[:5]}")


def _as_sql_tells(stage: Stage) -> list[str]:
    """What is wrong with the tables as the embedded metastore shows them."""
    last = stage.facts.log.latest()
    wanted = {t: [s.rows, s.rows] for t, s in last.tables.items() if t in TOPICS} if last else {}
    found = stage.rows()
    return [] if found == wanted else [f"SQL tells {found}, and the commits {wanted}"]
