"""The loader's commit log: one line per run, and the contents of each table.

Rules: a commit never changes, so it is read once. A commit that the loader has removed is no longer
shown. The last commit has the totals of all loads. A folder without a commit log is a warehouse
before its first load, not an error.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import TableState
from hadoop_loader._operations.completeness import read_marks
from hadoop_loader._storage.filesystem import AnyPath


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One load; `applied` is False until every step after its commit is done."""

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
class LoadedTable:
    """A topic's Hive table, and the totals of all loads into it."""

    topic: str
    table: str
    subject: str
    version: int
    rows: int
    quarantined: int
    lost: int
    last_load: int
    last_loaded_ms: int | None
    files: int
    damaged: int
    complete_until_ms: int | None  # by the loader's mark; None if no audit store is kept


@dataclass(frozen=True, slots=True)
class LoadsSnapshot:
    """Every run, newest first, and every table by topic (None before the first load).

    The last load refused the topics `refused`, and found no schema for `ungoverned` ones.
    `free_share` of the warehouse's disk is free (None: it is not a disk of this machine).
    """

    runs: tuple[LoadRun, ...] = ()
    tables: Mapping[str, LoadedTable] | None = None
    refused: tuple[str, ...] = ()
    ungoverned: tuple[str, ...] = ()
    free_share: float | None = None

    @property
    def by_topic(self) -> Mapping[str, LoadedTable]:
        """The tables by topic; empty before the first load."""
        return self.tables or {}


def open_log(warehouse: AnyPath) -> CommitLog | None:
    """Return the commit log of a warehouse, or None before its first load. Creates no folder."""
    folder = warehouse / "_headworks"
    return CommitLog(folder) if (folder / "commits").is_dir() else None


class LoadReader:
    """Reads the commit log of the warehouse at `folder`.

    It calls `when_quarantined` once, when it first finds that a table has messages in quarantine.
    """

    def __init__(
        self, folder: AnyPath, when_quarantined: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._when_quarantined: Callable[[], None] | None = when_quarantined
        self._runs: dict[int, LoadRun] = {}  # by number, as of the last read

    def __call__(self) -> LoadsSnapshot:
        """Read the commit log. Raises CorruptError for a damaged record."""
        log = open_log(self._folder)
        if log is None:
            return LoadsSnapshot()
        known, self._runs = self._runs, {}
        for number in log.numbers():
            run = known.get(number) or _read(log, number)
            if run is not None:
                applied = run.applied or log.is_applied(number)
                self._runs[number] = replace(run, applied=applied)
        last = log.latest()
        marks = read_marks(self._folder / "_headworks")
        tables = {
            topic: _table(topic, state, marks.get(topic))
            for topic, state in sorted(last.tables.items() if last else ())
        }
        if self._when_quarantined and any(one.quarantined for one in tables.values()):
            self._when_quarantined()
            self._when_quarantined = None
        report = log.last_run() or {}
        return LoadsSnapshot(
            tuple(self._runs[n] for n in sorted(self._runs, reverse=True)),
            tables,
            tuple(one["topic"] for one in report.get("refused", [])),
            tuple(report.get("ungoverned", [])),
            _free_share(self._folder),
        )


def _free_share(folder: AnyPath) -> float | None:
    """Return the free share of a folder's disk, or None for a remote folder."""
    if not isinstance(folder, Path):
        return None
    usage = shutil.disk_usage(folder)
    return usage.free / usage.total


def _read(log: CommitLog, number: int) -> LoadRun | None:
    """Return a run, or None if its commit has just been removed."""
    try:
        commit = log.read(number)
    except FileNotFoundError:
        return None
    found = commit.topics
    return LoadRun(
        number,
        commit.created_ms,
        tuple(sorted(found)),
        sum(one.rows for one in found.values()),
        sum(one.bytes for one in found.values()),
        sum(one.files for one in found.values()),
        sum(one.quarantined for one in found.values()),
        sum(one.lost + one.damaged for one in found.values()),
        applied=False,
    )


def _table(topic: str, state: TableState, complete_until: int | None) -> LoadedTable:
    return LoadedTable(
        topic,
        state.table,
        state.subject,
        state.version,
        state.rows,
        state.quarantined,
        state.lost,
        state.load,
        state.loaded_ms or None,
        state.files,
        state.damaged,
        complete_until,
    )
