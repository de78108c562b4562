"""The loader's commit log: every run in a line, and what is in each table.

Rules: a commit never changes, so it is read once; only its sums are kept. A folder without a
commit log is a warehouse that nothing was loaded into yet, not an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hadoop_loader.commits import Commit, CommitLog

__all__ = ["LoadReader", "Loads", "Run", "Table", "open_log"]


@dataclass(frozen=True, slots=True)
class Run:
    """One load; `applied`: whether all that follows its commit is done."""

    number: int
    created_ms: int
    topics: tuple[str, ...]
    rows: int
    bytes: int
    files: int
    quarantined: int
    lost: int
    applied: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A topic's Hive table and what all loads together brought into it."""

    topic: str
    table: str
    subject: str
    version: int
    rows: int
    quarantined: int
    lost: int
    last_load: int
    last_loaded_ms: int | None


@dataclass(frozen=True, slots=True)
class Loads:
    """Every run, newest first, and every table by topic (None before the first load)."""

    runs: tuple[Run, ...] = ()
    tables: Mapping[str, Table] | None = None

    @property
    def by_topic(self) -> Mapping[str, Table]:
        """The tables by topic; empty before the first load."""
        return self.tables or {}


def open_log(warehouse: Path) -> CommitLog | None:
    """The commit log of a warehouse; None before its first load. Makes no folder."""
    folder = warehouse / "_headworks"
    return CommitLog(folder) if (folder / "commits").is_dir() else None


class LoadReader:
    """Reads the commit log of the warehouse at `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[int, Run] = {}
        self._rows: Counter[str] = Counter()
        self._quarantined: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def __call__(self) -> Loads:
        """Read now; CorruptError for a record that is not what was written."""
        log = open_log(self._folder)
        if log is None:
            return Loads()
        numbers = log.numbers()
        for number in numbers:
            known = self._runs.get(number)
            if known is None:
                self._take(log.read(number), applied=log.is_applied(number))
            elif not known.applied and log.is_applied(number):
                self._runs[number] = replace(known, applied=True)
        last = log.latest()
        tables = {
            topic: self._table(topic, state.table, state.subject, state.version)
            for topic, state in sorted(last.tables.items() if last else ())
        }
        return Loads(tuple(self._runs[n] for n in sorted(self._runs, reverse=True)), tables)

    def _take(self, commit: Commit, *, applied: bool) -> None:
        found = commit.topics
        for topic, one in found.items():
            self._rows[topic] += one.rows
            self._quarantined[topic] += one.quarantined
            self._lost[topic] += one.lost
            self._last[topic] = commit.number
        self._runs[commit.number] = Run(
            commit.number,
            commit.created_ms,
            tuple(sorted(found)),
            sum(one.rows for one in found.values()),
            sum(one.bytes for one in found.values()),
            sum(one.files for one in found.values()),
            sum(one.quarantined for one in found.values()),
            sum(one.lost for one in found.values()),
            applied,
        )

    def _table(self, topic: str, table: str, subject: str, version: int) -> Table:
        last = self._runs.get(self._last.get(topic, 0))
        return Table(
            topic,
            table,
            subject,
            version,
            self._rows[topic],
            self._quarantined[topic],
            self._lost[topic],
            0 if last is None else last.number,
            None if last is None else last.created_ms,
        )
