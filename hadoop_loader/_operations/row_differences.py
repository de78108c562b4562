"""Why a table's files, or the audit, do not have the rows that commits say: by day, with causes.

Rules: it only reads, and only for tables that `verify` found to differ. Every commit that is kept
names its files, so a missing or foreign file has a name. Files of commits that have expired are
known by their sum only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.parquet as pq

from hadoop_loader._commit.commit_builder import default_partition_folder
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, CommitFile
from hadoop_loader._operations.verify import TableRows
from hadoop_loader._storage.filesystem import AnyPath, parquet_source, sorted_glob

UNKNOWN_DAY = "?"
_NAMED_FILES = 3  # in a cause; more are counted
_FILE_STEM = "load-"  # then the number of the commit, and a part that no other file has


@dataclass(frozen=True, slots=True)
class RowDifference:
    """Rows of one day that one of two has and the other has not."""

    topic: str
    day: str  # the value of the partition column, or UNKNOWN_DAY
    rows: int  # more (or, negative, fewer) than the commits say
    cause: str
    place: str = "files"  # the side that differs from the commits: files, or audit

    def __str__(self) -> str:
        side = "more" if self.rows > 0 else "fewer"
        return (
            f"{self.topic}, day {self.day}: {abs(self.rows):,} {side} in the {self.place} than in "
            f"the commits ({self.cause})"
        )


def file_differences(root: AnyPath, found: TableRows) -> list[RowDifference]:
    """Return where the files of a table differ from the commits, by day; none if they agree."""
    log = CommitLog(root / "_headworks")
    last = log.latest()
    if last is None or found.in_files == found.in_commits:
        return []
    table = last.tables[found.topic].files_table
    layout, through = log.layout(last, table), log.expired().through
    named = _named_files(log, table, layout, through)
    present = _present_files(root, table, layout)
    each: list[RowDifference] = []
    for day in sorted({*named, *present}):
        said, there = named.get(day, {}), present.get(day, {})
        lacking = [
            (number, file)
            for name, (number, file) in sorted(said.items())
            if name not in there and not (root / file.staged).exists()
        ]
        foreign = [n for n in sorted({*there} - {*said}) if _number_of(n) > through]
        each += _missing(found.topic, day, lacking)
        each += _foreign(found.topic, day, {name: there[name] for name in foreign})
        each += [
            RowDifference(
                found.topic,
                day,
                there[name] - file.rows,
                f"{file.target} has {there[name]:,} rows, and commit {number} wrote {file.rows:,}",
            )
            for name, (number, file) in sorted(said.items())
            if name in there and there[name] != file.rows
        ]
    left = found.in_files - found.in_commits - sum(one.rows for one in each)
    if left:
        cause = f"of files of commits up to {through}, whose records have expired"
        each.append(RowDifference(found.topic, UNKNOWN_DAY, left, cause))
    return each


def window_differences(
    root: AnyPath, found: TableRows, audited: Mapping[int, int]
) -> list[RowDifference]:
    """Return where the audit's counts of a topic differ from the commits, by day.

    `audited`: the audit's messages by the start of their window, in ms.
    """
    log, topic = CommitLog(root / "_headworks"), found.topic
    through, total = log.expired().through, sum(audited.values())
    if total == found.counted:
        return []
    if through:
        cause = f"commits up to {through} have expired, so their windows are unknown"
        return [RowDifference(topic, UNKNOWN_DAY, total - found.counted, cause, "audit")]
    said: Counter[int] = Counter()
    for number in log.numbers():
        counts = log.read(number).topics.get(topic)
        for window, one in (counts.windows if counts else {}).items():
            said[int(window)] += one["loaded"] + one["quarantined"]
    days: dict[str, list[tuple[int, int]]] = {}
    for start in sorted({*said, *audited}):
        difference = audited.get(start, 0) - said[start]
        if difference:
            day = datetime.fromtimestamp(start / 1000, UTC).date().isoformat()
            days.setdefault(day, []).append((start, difference))
    if not days:
        cause = (
            "every window agrees, so an erasure or --keep of a release before this one removed"
            " the rows: nothing is to be restored"
        )
        return [RowDifference(topic, UNKNOWN_DAY, total - found.counted, cause, "audit")]
    return [
        RowDifference(topic, day, sum(n for _, n in some), _why(some), "audit")
        for day, some in days.items()
    ]


def _why(windows: list[tuple[int, int]]) -> str:
    at = datetime.fromtimestamp(windows[0][0] / 1000, UTC)
    place = f"windows: {len(windows)}, the first at {at:%H:%M} UTC"
    if all(n < 0 for _, n in windows):
        return f"{place}; its counts were not read, or the audit topic has lost them"
    return f"{place}; they were counted again, after `load drop --reload` or by another warehouse"


def _named_files(
    log: CommitLog, table: str, layout: Mapping[str, str], through: int
) -> dict[str, dict[str, tuple[int, CommitFile]]]:
    """Return the files that commits name in the folders that readers see, by day and name."""
    found: dict[str, dict[str, tuple[int, CommitFile]]] = {}
    for number in log.numbers():
        if number <= through:
            continue
        commit = log.read(number)
        _forget_removed(found, commit, table)
        for file in commit.files:
            folder, _, name = file.target.rpartition("/")
            seen = layout.get(file.day) or default_partition_folder(table, file.day)
            if file.table == table and folder == seen:
                found.setdefault(file.day, {})[name] = (number, file)
    return found


def _forget_removed(
    found: dict[str, dict[str, tuple[int, CommitFile]]], commit: Commit, table: str
) -> None:
    """Forget what a commit removes: a table, days, or the part of an earlier commit."""
    if any(table == dropped for dropped, _ in commit.dropped_tables):
        found.clear()
    for day in commit.dropped_days.get(table, ()):
        found.pop(day, None)
    states = {state.files_table: topic for topic, state in commit.tables.items()}
    given_up = commit.kind == "acknowledge" and states.get(table) in commit.topics
    newest = max((n for files in found.values() for n, _ in files.values()), default=0)
    for day, files in found.items() if given_up else ():
        found[day] = {name: one for name, one in files.items() if one[0] != newest}


def _present_files(
    root: AnyPath, table: str, layout: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """Return the rows of each file that readers see, by day and name."""
    folders = {path.name.partition("=")[2]: path for path in (root / table).glob("datepartition=*")}
    folders |= {day: root / folder for day, folder in layout.items()}
    return {
        day: {
            path.name: int(pq.read_metadata(parquet_source(path)).num_rows)
            for path in sorted_glob(folder, "[!._]*.parquet")
        }
        for day, folder in folders.items()
    }


def _missing(
    topic: str, day: str, lacking: list[tuple[int, CommitFile]]
) -> Iterator[RowDifference]:
    if lacking:
        numbers = ", ".join(str(n) for n in sorted({number for number, _ in lacking}))
        named = _listed(file.target for _, file in lacking)
        cause = f"missing files of commit {numbers}: {named}"
        yield RowDifference(topic, day, -sum(file.rows for _, file in lacking), cause)


def _foreign(topic: str, day: str, foreign: Mapping[str, int]) -> Iterator[RowDifference]:
    if foreign:
        cause = f"files that no commit names: {_listed(foreign)}"
        yield RowDifference(topic, day, sum(foreign.values()), cause)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f", and {len(every) - _NAMED_FILES:,} more" if len(every) > _NAMED_FILES else ""
    return f"{', '.join(every[:_NAMED_FILES])}{more}"


def _number_of(name: str) -> float:
    """Return the commit of a file by its name; infinite for a file that no loader has named."""
    number = name.removeprefix(_FILE_STEM).partition("-")[0]
    return int(number) if name.startswith(_FILE_STEM) and number.isdecimal() else float("inf")
