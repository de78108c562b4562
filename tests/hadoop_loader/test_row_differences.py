"""Where files and audit differ from the commits: the day, how many, and why."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.retention import TableRetention
from hadoop_loader._operations.row_differences import file_differences, window_differences
from hadoop_loader._operations.verify import TableRows, count_rows
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.test_loading import DAY, HOUR, V1, click

pytestmark = pytest.mark.unit


def filled(world: World) -> TableRows:
    """Two loads, of two days each."""
    world.register("clicks", V1)
    for _ in range(2):
        for n in range(6):
            click(world, n, n % 2 * DAY)
        Load(world.context()).run()
    return found(world)


def found(world: World) -> TableRows:
    return count_rows(world.root)[0]


def said(world: World) -> list[str]:
    return [str(one) for one in file_differences(world.root, found(world))]


def files(world: World, day: str) -> list[Any]:
    return sorted(Path(str(world.root)).glob(f"clicks/**/datepartition={day}/*.parquet"))


def test_a_missing_file_is_named_with_its_day_rows_and_commit(world: World) -> None:
    filled(world)
    assert said(world) == []
    lost = files(world, "1970-01-02")[0]
    rows = pq.read_metadata(lost).num_rows
    lost.unlink()
    (text,) = said(world)
    assert text.startswith(f"clicks, day 1970-01-02: {rows} fewer in the files than in the commits")
    assert re.search(
        rf"missing files of commit 1: clicks/datepartition=1970-01-02/{lost.name}", text
    )


def test_a_removed_day_names_three_files_and_counts_the_others(world: World) -> None:
    filled(world)
    for file in files(world, "1970-01-01"):
        file.unlink()
    (text,) = said(world)
    assert "day 1970-01-01: 6 fewer" in text
    assert "missing files of commit 1, 2" in text


def test_foreign_and_changed_files_are_told_apart(world: World) -> None:
    filled(world)
    first, second = files(world, "1970-01-01")[0], files(world, "1970-01-02")[0]
    shutil.copy(first, first.with_name("copy.parquet"))
    shutil.copy(first, first.with_name("load-00000009-abc.parquet"))
    pq.write_table(pq.read_table(second).slice(1), second)
    foreign, changed = said(world)
    assert "more in the files" in foreign
    assert "files that no commit names: copy.parquet, load-00000009-abc.parquet" in foreign
    assert "1 fewer in the files" in changed
    assert f"{second.name} has " in changed


def test_what_compaction_retention_and_erasure_did_is_no_difference(world: World) -> None:
    filled(world)
    Compaction(world.context(), min_small_files=2).run()
    Erase(world.context()).run(EraseCondition.parse("n = 3"))
    TableRetention(world.context(keep_days=1, now=lambda: 2 * DAY / 1000)).run_after()
    click(world, 0)  # a late message, in the folder of a day that was removed
    Load(world.context()).run()
    assert said(world) == []
    late = files(world, "1970-01-01")[-1]
    late.unlink()
    (text,) = said(world)
    assert "day 1970-01-01: 1 fewer" in text
    assert late.name in text


def test_the_audit_expects_what_erasure_and_retention_removed(world: World) -> None:
    before = filled(world)
    assert before.counted == 12
    Erase(world.context()).run(EraseCondition.parse("n = 3"))
    assert (found(world).in_commits, found(world).counted) == (10, 12)
    TableRetention(world.context(keep_days=1, now=lambda: 2 * DAY / 1000)).run_after()
    assert (found(world).in_commits, found(world).counted) == (4, 12)


def test_expired_commits_leave_the_day_unknown(world: World) -> None:
    filled(world)
    world.context().log.expire(1)
    files(world, "1970-01-02")[0].unlink()
    (one,) = file_differences(world.root, found(world))
    assert (one.day, one.rows < 0) == ("?", True)
    assert "commits up to 1, whose records have expired" in one.cause
    (of_audit,) = window_differences(world.root, found(world), {0: 13})
    assert (of_audit.day, of_audit.rows) == ("?", 1)


def test_windows_of_the_audit_are_compared_by_day(world: World) -> None:
    table = filled(world)
    counts: dict[int, int] = {}
    log = CommitLog(world.root / "_headworks")
    for number in log.numbers():
        for window, one in log.read(number).topics["clicks"].windows.items():
            counts[int(window)] = counts.get(int(window), 0) + one["loaded"]
    assert window_differences(world.root, table, counts) == []
    less, more = window_differences(
        world.root, table, {w: n - 2 if w < DAY else n + 5 for w, n in counts.items()}
    )
    assert str(less) == (
        "clicks, day 1970-01-01: 2 fewer in the audit than in the commits (windows: 1, the first "
        "at 00:00 UTC; its counts were not read, or the audit topic has lost them)"
    )
    assert (more.day, more.rows) == ("1970-01-02", 5)
    assert "counted again" in more.cause
    (late,) = window_differences(world.root, table, {**counts, 7 * HOUR: 1})
    assert "07:00 UTC" in late.cause
