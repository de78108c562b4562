"""The volumes of a thousand topics, judged for one window: everything that a check does for it."""

from __future__ import annotations

import time
from random import Random

from sqlalchemy import insert

from bench.frame import Bench
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.tables import COUNTED
from headworks._audit.volume_bands import AHEAD_MS, AHEAD_WINDOWS, WEEK_MS, WEEKS, TopicVolume
from headworks._audit.volumes import judge_volumes
from headworks._audit_counting import WINDOW_MS

TOPICS = 1_000
NAME = f"volumes of {TOPICS:,} topics, one window"
_NOW = 6 * WEEK_MS


def judge(bench: Bench, us: str) -> None:
    """Measure one window after another, on a store that has the weeks before."""
    rounds = 3 if bench.quick else 10
    store = _store(bench, rounds)
    for number in range(rounds):
        began, cpu = time.perf_counter(), time.thread_time()
        assert judge_volumes(store, _NOW + (number + 2) * WINDOW_MS) == 1
        took, busy = time.perf_counter() - began, time.thread_time() - cpu
        bench.record(NAME, us, took * 1000, "ms", cpu=busy * 1000, cpu_unit="ms")
    store.close()


def _store(bench: Bench, rounds: int) -> AuditStore:
    """Return a store with the counts that `rounds` windows after _NOW need, and all memories."""
    store, chance = AuditStore(f"sqlite:///{bench.folder / 'volumes.db'}"), Random(1)
    names = [f"activity.topic{number:04}" for number in range(TOPICS)]
    zeros = dict.fromkeys(COUNTED, 0)
    common = {"tier": "producer", "first_sent": 0, "last_sent": 0}
    starts = [
        _NOW - weeks * WEEK_MS + AHEAD_MS * (weeks > 0) + number * WINDOW_MS
        for weeks in range(WEEKS + 1)
        for number in range(rounds + 1)
    ]
    with store.write() as connection:
        connection.execute(insert(tables.topics), [{**common, "topic": name} for name in names])
        for start in starts:
            of = {**common, **zeros, "window_start": start}
            rows = [{**of, "topic": name, "attempted": chance.randrange(2_000)} for name in names]
            connection.execute(insert(tables.windows), rows)
        last = _NOW - WINDOW_MS
        some = [chance.random() for _ in range(840)]
        around = [1_000.0] * (2 * AHEAD_WINDOWS + 1)
        memory = TopicVolume(last, around, raw=some[:434], mads=some)
        row = {"window_start": last, "counted": 0, "usual": 0, "unusual": 0}
        packed = {**row, "packed": memory.pack()}
        connection.execute(insert(tables.volumes), [{**packed, "topic": name} for name in names])
    return store
