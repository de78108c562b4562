"""What a warehouse's files, commits and counts say of every message, without Spark.

Rule: after a kill the last commit is the truth: a file that it has still to move counts where it
is going to be. So the facts are exact at any moment, and not only when the next run is done.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._operations.verify import count_rows

Key = tuple[str, int, int]


class Facts:
    """The facts about the warehouse in `root`, as often as they are asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._keys: dict[tuple[str, int, int, int], list[Key]] = {}
        self._named: dict[int, set[str]] = {}

    @property
    def log(self) -> CommitLog:
        """The commit log, as it is now."""
        return CommitLog(self._root / "_headworks")

    def after_a_kill(self) -> list[str]:
        """What is wrong, whatever moment the loader died in."""
        log = self.log
        last = log.latest()
        if last is None:
            return []
        builder, wrong = CommitBuilder(log, self._root, last), []
        pending = {} if log.is_applied(last.number) else self._pending(last)
        found: Counter[Key] = Counter()
        tables = {state.files_table: topic for topic, state in last.tables.items()}
        for table in (*tables, QUARANTINE_TABLE):
            for path in self._files(builder, table, pending):
                if str(path.relative_to(self._root)) not in self._names(log):
                    wrong.append(f"{path} is visible, and no commit names it")
                place = path if path.exists() else pending[path]
                found.update(self._keys_in(place, tables.get(table)))
        wanted = set(offsets_of(last))
        wrong += [f"{key} is there {n} times" for key, n in found.items() if n != 1]
        wrong += [f"{key} is missing" for key in sorted(wanted - found.keys())[:5]]
        wrong += [f"{key} was never loaded" for key in sorted(found.keys() - wanted)[:5]]
        counted = sum(s.rows + s.quarantined for s in last.tables.values())
        if counted != len(wanted):
            wrong.append(f"{len(wanted)} messages are loaded, and the sums say {counted}")
        return wrong

    def at_rest(self) -> list[str]:
        """What is wrong when a run that nobody killed is over."""
        log = self.log
        last = log.latest()
        if last is None:
            return ["there is no commit"]
        wrong = self.after_a_kill()
        if not log.is_applied(last.number):
            wrong.append(f"commit {last.number} is not applied")
        if (staging := self._root / ".staging").exists():
            wrong.append(f"{staging} was left")
        for table in count_rows(self._root):
            if table.in_files != table.in_commits:
                wrong.append(f"{table} does not agree")
        return wrong + self._strays(log, last)

    def _strays(self, log: CommitLog, last: Commit) -> list[str]:
        """Files that are neither where readers are sent nor waiting to be removed."""
        builder, records = CommitBuilder(log, self._root, last), log.retired.batches()
        tables = [s.files_table for s in last.tables.values()] + [QUARANTINE_TABLE]
        places = {builder.folder(t, day) for t in tables for day in builder.days(t)}
        places |= {folder for record in records for folder in record.folders}
        gone = {table for record in records for table in record.tables}
        strays = []
        for path in self._root.glob("[!._]*/**/*.parquet"):
            place = str(path.parent.relative_to(self._root))
            if place not in places and place.split("/")[0] not in gone:
                strays.append(f"{path} is a stray file")
        return strays

    def _pending(self, last: Commit) -> dict[Path, Path]:
        return {self._root / f.target: self._root / f.staged for f in last.files}

    def _files(self, builder: CommitBuilder, table: str, pending: dict[Path, Path]) -> set[Path]:
        assert builder.last is not None
        days = {*builder.days(table), *(f.day for f in builder.last.files if f.table == table)}
        found: set[Path] = set()
        for day in days:
            folder = self._root / builder.folder(table, day)
            found.update(Path(str(path)) for path in builder.sources(table, day))
            found.update(target for target in pending if target.parent == folder)
        return found

    def _names(self, log: CommitLog) -> set[str]:
        """The files that any commit names."""
        known = max(self._named, default=0)
        for number in log.numbers():
            if number > known:
                before = self._named.get(known, set())
                self._named = {number: before | {f.target for f in log.read(number).files}}
                known = number
        return self._named[known]

    def _keys_in(self, path: Path, topic: str | None) -> list[Key]:
        """The messages of a file, which is read once whatever it is called by and by."""
        now = path.stat()
        known = (topic or "", now.st_ino, now.st_size, now.st_mtime_ns)
        if known not in self._keys:
            columns = ["_partition", "_offset", *([] if topic else ["topic"])]
            rows = pq.ParquetFile(path).read(columns=columns).to_pylist()
            self._keys[known] = [
                (topic or row["topic"], row["_partition"], row["_offset"]) for row in rows
            ]
        return self._keys[known]


def offsets_of(last: Commit) -> list[Key]:
    """Every message that was loaded, by a commit."""
    return [
        (topic, partition, offset)
        for topic in last.tables
        for partition, end in last.committed(topic).items()
        for offset in range(end)
    ]
