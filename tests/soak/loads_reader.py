"""Somebody who reads the tables all the while, through the metastore, in a session of their own.

What is judged in each reading: no message is there twice, or both as a row and in quarantine;
nothing that was there before is gone; every row has the value that it was sent with, or the default
of a field that it was sent without; nothing fails, but a table that was never there yet, and, once,
a view whose columns change at that moment: a metastore hands it out in two pieces.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from tests.soak.loads_facts import Key

_PAUSE = 3.0
_LIMIT = 600.0
_CHANGING = "INCOMPATIBLE_VIEW_SCHEMA_CHANGE"
Reading = dict[str, set[Key]]


class Reader:
    """Reads the tables of `topics` until `stop`; `hows`: what message n was sent with."""

    def __init__(self, spark: Any, topics: Sequence[str], hows: Sequence[str]) -> None:
        self._spark = spark
        self._topics = topics
        self._hows = hows
        self._over = False
        self._hurry = threading.Event()
        self._news = threading.Condition()
        self._last: Reading = {}
        self.began_ms = int(time.time() * 1000)
        self.readings = 0
        self.again = 0
        self.wrong: list[str] = []
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def next(self) -> set[Key]:
        """What a reading finds that begins from now on."""
        with self._news:
            wanted = self.readings + 2
            self._hurry.set()
            there = self._news.wait_for(lambda: self.readings >= wanted or self.wrong, _LIMIT)
            self._hurry.clear()
            if not there:
                self.wrong.append(f"the reader has read nothing for {_LIMIT:.0f} s")
            return set().union(*self._last.values())

    def stop(self) -> None:
        """End it."""
        self._over = True
        self._hurry.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over and not self.wrong:
            self.began_ms = int(time.time() * 1000)
            now: Reading = {}
            for table in (*self._topics, QUARANTINE_TABLE):
                try:
                    now[table] = self._read(table)
                except Exception as error:
                    if table in self._last or "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
                        self.wrong.append(f"a reader of {table} failed: {str(error)[:1000]}")
            self._compare(now)
            with self._news:
                self._last = now
                self.readings += 1
                self._news.notify_all()
            # No more than a third of its time, so that the loaders get on; unless somebody waits.
            self._hurry.wait(max(_PAUSE, 2 * (time.time() - self.began_ms / 1000)))

    def _read(self, table: str) -> set[Key]:
        try:
            rows = self._spark.sql(f"SELECT * FROM `{table}`").toArrow()
        except Exception as error:
            if _CHANGING not in str(error):
                raise
            self.again += 1
            rows = self._spark.sql(f"SELECT * FROM `{table}`").toArrow()
        topics = rows["topic"].to_pylist() if table == QUARANTINE_TABLE else [table] * len(rows)
        partitions, offsets = rows["_partition"].to_pylist(), rows["_offset"].to_pylist()
        keys = list(zip(topics, partitions, offsets, strict=True))
        found = set(keys)
        if len(found) != len(keys):
            self.wrong.append(f"a reader of {table} saw {len(keys) - len(found)} messages twice")
        if "how" in rows.column_names:
            pairs = zip(rows["n"].to_pylist(), rows["how"].to_pylist(), strict=True)
            other = [(n, how) for n, how in pairs if how != self._hows[n]]
            self.wrong += [f"a reader of {table} saw {how!r} in row {n}" for n, how in other[:3]]
        return found

    def _compare(self, now: Reading) -> None:
        for table, found in now.items():
            gone = self._last.get(table, set()) - found
            self.wrong += [f"a reader of {table} saw {key} no more" for key in sorted(gone)[:3]]
        bad = now.get(QUARANTINE_TABLE, set())
        for topic in self._topics:
            both = now.get(topic, set()) & bad
            self.wrong += [f"a reader saw {key} here and in quarantine" for key in sorted(both)[:3]]
