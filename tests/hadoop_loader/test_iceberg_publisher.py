"""Every commit becomes a snapshot of the same rows, whenever the loader dies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit import commit_record
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.messages import FetchedMessage
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._iceberg import publisher
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.drop import Drop
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._operations.retention import TableRetention
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._storage.failpoints import STEPS
from tests.hadoop_loader.iceberg import MemoryTables, publishing
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer
from tests.soak.snapshots import campaign

pytestmark = pytest.mark.unit
Job = Callable[[Any], Any]
JOBS: dict[str, Job] = {
    "load": lambda c: Load(c).run(),
    "rewind": lambda c: Rewind(c).run("clicks", RewindPosition.parse("1")),
    "compact": lambda c: Compaction(c, min_small_files=2, every=True).run(),
    "rebuild": lambda c: Rebuild(c).run("clicks"),
    "erase": lambda c: Erase(c).run(EraseCondition.parse("n = 3")),
    "retention": lambda c: TableRetention(c).run_after(),
    "drop": lambda c: Drop(c).run("clicks", reload=True),
}


@pytest.fixture
def tables(world: World) -> MemoryTables:
    world.register("clicks", V1)
    return MemoryTables(world)


def load(world: World, tables: MemoryTables, **changes: Any) -> Any:
    context = publishing(world, tables, **changes)
    report = Load(context).run()
    assert context.snapshots is not None
    return report, context.snapshots


def numbers(tables: MemoryTables) -> list[int]:
    return sorted(row["n"] for row in tables.tables["clicks"][-1].rows())


def test_a_commit_is_put_into_json_once_however_many_tables_it_has(
    world: World, tables: MemoryTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    identified: list[int] = []

    def checksum(commit: Commit) -> str:
        identified.append(commit.number)
        return commit_record.checksum(commit)

    monkeypatch.setattr(publisher, "checksum", checksum)
    names = [f"t{n}" for n in range(5)]
    for name in names:
        world.register(name, {**V1, "headworks": {"topic": name}})
        world.log.append(name, encoded(V1, {"at": 0, "n": 1}))
    load(world, tables)
    assert tables.tables.keys() >= {*names}
    assert identified == [1]


def test_each_commit_is_a_snapshot_with_its_offsets(world: World, tables: MemoryTables) -> None:
    for n in range(4):
        click(world, n, at=n * DAY)
        load(world, tables)
    found = tables.tables["clicks"]
    assert [one.operation for one in found] == ["append"] * 4
    assert [one.summary["headworks.load"] for one in found] == ["1", "2", "3", "4"]
    assert found[-1].summary["headworks.offsets"] == '{"0": 2, "1": 1, "2": 1}'
    assert numbers(tables) == [0, 1, 2, 3]
    load(world, tables)  # nothing is new
    assert len(found) == 4


def test_what_failed_is_published_by_the_next_run(world: World, tables: MemoryTables) -> None:
    click(world, 0)
    load(world, tables)
    tables.down = True
    for n in (1, 2):
        click(world, n)
        report, snapshots = load(world, tables)
        assert report.refused == ()
        assert "the catalog does not answer" in snapshots.problems["clicks"]
    assert numbers(tables) == [0]
    tables.down = False
    _, snapshots = load(world, tables)
    assert not snapshots.problems
    assert numbers(tables) == [0, 1, 2]
    # The record of what is published only saves work.
    (world.root / "_headworks" / "iceberg.json").unlink()
    click(world, 3)
    load(world, tables)
    assert numbers(tables) == [0, 1, 2, 3]


def test_replaced_files_stay_until_the_older_snapshots_have_expired(
    world: World, tables: MemoryTables
) -> None:
    for n in range(3):
        click(world, n)
        load(world, tables)
    Compaction(publishing(world, tables), min_small_files=2).run()
    assert tables.tables["clicks"][-1].operation == "replace"
    old = {Path(uri.removeprefix("file://")) for uri in tables.tables["clicks"][0].files}
    tables.down = True
    load(world, tables, now=lambda: 9000.0)
    assert all(path.exists() for path in old)
    tables.down = False
    load(world, tables, now=lambda: 9000.0)
    assert not any(path.exists() for path in old)
    assert len(tables.tables["clicks"]) == 1
    tables.check()
    assert numbers(tables) == [0, 1, 2]


def test_old_files_that_iceberg_cannot_show_are_rewritten_first(
    world: World, tables: MemoryTables
) -> None:
    tables.creates_defaults = False
    click(world, 0)
    load(world, tables)
    click(world, 1, schema=V2, schema_id=world.register("clicks", V2))
    _, snapshots = load(world, tables)
    assert set(snapshots.outdated) == {"clicks"}
    assert "column how of older files" in snapshots.problems["clicks"]
    assert numbers(tables) == [0]
    Compaction(publishing(world, tables), every=True).run("clicks")
    assert [row["how"] for row in tables.tables["clicks"][-1].rows()] == ["mouse", "touch"]


def test_a_table_that_another_tool_wrote_is_published_again(
    world: World, tables: MemoryTables
) -> None:
    click(world, 0)
    load(world, tables)
    tables.tables["clicks"][-1].summary.clear()
    click(world, 1)
    load(world, tables)
    assert len(tables.tables["clicks"]) == 1
    assert numbers(tables) == [0, 1]


@pytest.mark.seconds
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("step", [*STEPS[-6:], "publishing", "published"])
def test_a_crash_at_any_step_leaves_snapshots_of_the_tables_rows(
    world: World, tables: MemoryTables, job: str, step: str
) -> None:
    for n in range(6):
        click(world, n, at=n * DAY)
        spoil(world, n)
        if n % 2:
            load(world, tables)
    click(world, 6, at=2 * DAY, schema=V2, schema_id=world.register("clicks", V2))
    if job != "load":
        load(world, tables)
    keep = {"keep_days": 3} if job == "retention" else {}
    now = {"now": lambda: 6 * 86_400.0} if job == "retention" else {}
    with suppress(Killed):  # some jobs do not reach some steps
        JOBS[job](publishing(world, tables, on_step=killer(step), **keep, **now))
    tables.check()
    load(world, tables, **now)
    tables.check()
    assert numbers(tables) == sorted(row["n"] for row in world.rows(_files_table(world)))
    assert quarantined(tables) == sorted(row["key"] for row in world.rows(QUARANTINE_TABLE))


def _files_table(world: World) -> str:
    last = world.context().log.latest()
    assert last is not None
    return last.tables["clicks"].files_table


def spoil(world: World, n: int) -> None:
    """Append a message that is no row, with the key `n`, of the day `n`."""
    messages = world.log.topics["clicks"][0]
    messages.append(FetchedMessage(0, len(messages), n * DAY, str(n).encode(), b"?"))


def quarantined(tables: MemoryTables) -> list[bytes]:
    found = tables.tables.get(QUARANTINE_TABLE)
    return sorted(row["key"] for row in found[-1].rows()) if found else []


def test_the_quarantine_is_a_table_too_and_loses_what_is_erased(
    world: World, tables: MemoryTables
) -> None:
    click(world, 0)
    load(world, tables)
    assert QUARANTINE_TABLE not in tables.tables
    for n in (3, 4):
        spoil(world, n)
        load(world, tables)
    assert quarantined(tables) == [b"3", b"4"]
    Erase(publishing(world, tables)).run(EraseCondition.parse("n = 3"))
    assert quarantined(tables) == [b"4"]
    load(world, tables, now=lambda: 9000.0)  # the old files go, after their snapshots
    assert len(tables.tables[QUARANTINE_TABLE]) == 1
    click(world, 5)
    load(world, tables)
    assert len(tables.tables[QUARANTINE_TABLE]) == 1, "nothing of it has changed"
    tables.check()


def test_the_quarantine_stays_a_table_when_retention_empties_it(
    world: World, tables: MemoryTables
) -> None:
    click(world, 0, at=8 * DAY)
    spoil(world, 3)
    load(world, tables)
    assert quarantined(tables) == [b"3"]
    TableRetention(publishing(world, tables, keep_days=1, now=lambda: 9 * DAY / 1000)).run_after()
    load(world, tables)
    assert QUARANTINE_TABLE in tables.tables
    assert quarantined(tables) == []
    spoil(world, 9)
    load(world, tables)
    assert quarantined(tables) == [b"9"]
    tables.check()


def test_loaders_are_killed_at_random_steps(tmp_path: Path) -> None:
    report = campaign(tmp_path, kills=8, seed=5)
    assert not report.wrong, report
    assert report.compared > 8
