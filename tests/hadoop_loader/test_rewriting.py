"""Replacing rows without Spark: rewind, requeue, and compaction."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.report import LoadReport
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.audit_counts import audit_events
from hadoop_loader._operations.compact import MIN_SMALL_FILES, Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rewind import Requeue, Rewind
from hadoop_loader._storage.failpoints import STEPS
from hadoop_loader._storage.filesystem import AnyPath, parquet_source, sorted_glob
from hadoop_loader._tasks import rewrite_task
from hadoop_loader._tasks.load_task import WriterSchema
from headworks.errors import FindingsError, UsageError
from tests.hadoop_loader.memory import MemoryCatalog, World, encoded
from tests.hadoop_loader.test_loading import DAY, HOUR, V1, V2, Killed, click, killer, numbers

pytestmark = pytest.mark.unit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def registered(world: World) -> None:
    world.register("clicks", V1)


def load(world: World, **changes: Any) -> Any:
    return Load(world.context(**changes)).run()


def audited(world: World) -> Counter[str]:
    seen: dict[str, dict[str, int]] = {}
    for commit in world.published:
        for event in audit_events(commit, warehouse="w", host="h"):
            seen[event["id"]] = event["counts"]
    total: Counter[str] = Counter()
    for counts in seen.values():
        total.update(counts)
    return +total


def keys(world: World, *tables: str) -> list[tuple[int, int]]:
    found = [
        (r["_partition"], r["_offset"])
        for table in tables
        for r in world.rows(table)
        if r.get("topic", "clicks") == "clicks"
    ]
    return sorted(found)


def test_a_rewind_replaces_what_it_reads_again(world: World) -> None:
    for n in range(30):
        click(world, n, at=n * 7 * HOUR)
    load(world)
    before = keys(world, "clicks")
    world.register("clicks", V2)
    report = Rewind(world.context()).run("clicks", RewindPosition.parse("4"))
    assert (report.kind, report.number, report.rows) == ("rewind", 2, 0)
    assert keys(world, "clicks") == before
    rows = world.rows("clicks")
    assert {r["_load"] for r in rows if r["_offset"] >= 4} == {2}
    assert {r["_load"] for r in rows if r["_offset"] < 4} == {1}
    assert {r.get("how") for r in rows if r["_offset"] >= 4} == {"mouse"}
    assert audited(world) == {"loaded": 30}
    assert list(audit_events(world.published[-1], warehouse="w", host="h")) == []
    click(world, 30, at=1)
    assert load(world).rows == 1
    assert numbers(world) == list(range(31))


def test_a_rewind_by_time_and_by_partition(world: World) -> None:
    for n in range(30):
        click(world, n, at=n * HOUR)
    load(world)
    Rewind(world.context()).run("clicks", RewindPosition.parse("1970-01-02T00:00:00Z"))
    assert sorted(r["n"] for r in world.rows("clicks") if r["_load"] == 2) == list(range(24, 30))
    Rewind(world.context()).run("clicks", RewindPosition.parse("2:8"))
    assert sorted(r["n"] for r in world.rows("clicks") if r["_load"] == 3) == [26, 29]
    assert numbers(world) == list(range(30))
    with pytest.raises(UsageError, match="there is no partition 7"):
        Rewind(world.context()).run("clicks", RewindPosition.parse("7:0"))


@pytest.mark.parametrize("before", ["1969-12-31T23:59:59.999Z", "1960-01-01", "0001-01-01"])
def test_a_time_before_all_records_is_the_beginning(before: str) -> None:
    # A broker takes -1 for the end of a partition, -2 for its beginning, and less for a mistake.
    assert RewindPosition.parse(before) == RewindPosition.parse("earliest")


def test_what_retention_removed_is_not_replaced(world: World) -> None:
    for n in range(9):
        click(world, n)
    load(world)
    world.log.low["clicks", 1] = 2
    with pytest.raises(UsageError, match=r"clicks\[1\] begins at offset 2: retention has removed"):
        Rewind(world.context()).run("clicks", RewindPosition.parse("0"))
    Rewind(world.context()).run("clicks", RewindPosition.parse("earliest"))
    assert numbers(world) == list(range(9))


def test_a_log_that_forgot_messages_is_not_rewound(world: World) -> None:
    for n in range(9):
        click(world, n)
    load(world)
    del world.log.topics["clicks"][0][1]
    with pytest.raises(FindingsError, match="1 would be lost; nothing has changed"):
        Rewind(world.context()).run("clicks", RewindPosition.parse("0"))
    assert numbers(world) == list(range(9))
    assert world.context().log.numbers() == [1]


def test_a_rewind_of_bad_messages_leaves_each_once(world: World) -> None:
    click(world, 0)
    world.log.append("clicks", b"junk", timestamp=5 * DAY)
    world.log.append("other", b"more")
    world.register("other", V1)
    load(world)
    Rewind(world.context()).run("clicks", RewindPosition.parse("earliest"))
    assert keys(world, "clicks", QUARANTINE_TABLE) == [(0, 0), (0, 1)]
    assert len(world.rows(QUARANTINE_TABLE)) == 2
    assert audited(world) == {"loaded": 1, "quarantined": 2}


def test_quarantined_messages_become_rows_once_their_schema_is_there(world: World) -> None:
    click(world, 0)
    # As a number of seconds this time is a little less than itself.
    stamp = 1_094_818_431_705
    world.log.append("clicks", encoded(V2, {"at": DAY, "n": 1, "how": "x"}, 7), stamp, 1)
    world.log.append("clicks", b"junk", 2 * DAY, 1)
    load(world)
    assert Requeue(world.context()).run("clicks").number == 1
    world.subjects["clicks"].append(WriterSchema(7, 2, json.dumps(V2)))
    report = Requeue(world.context()).run("clicks")
    assert (report.kind, report.rows, report.topics[0].quarantined) == ("requeue", 1, -1)
    assert numbers(world) == [0, 1]
    (row,) = (row for row in world.rows("clicks") if row["n"] == 1)
    assert row["_timestamp"] == EPOCH + timedelta(milliseconds=stamp)
    (left,) = world.rows(QUARANTINE_TABLE)
    assert (left["value"], left["_partition"], left["_offset"]) == (b"junk", 1, 1)
    assert audited(world) == {"loaded": 2, "quarantined": 1}
    state = world.context().log.latest()
    assert state is not None
    assert (state.tables["clicks"].rows, state.tables["clicks"].quarantined) == (2, 1)


def test_compaction_changes_files_and_nothing_else(world: World) -> None:
    for n in range(6):
        if n == 3:
            world.register("clicks", V2)
        schema = V1 if n < 3 else V2
        click(world, n, at=n, schema=schema, schema_id=1 if n < 3 else 2)
        load(world)
    before = world.rows("clicks")
    done = Compaction(world.context(), min_small_files=4).run()
    assert (done.partitions, done.files_before, done.files_after) == (1, 6, 1)
    key = lambda row: row["n"]  # noqa: E731
    kept = json.loads((world.root / f"_headworks/commits/{done.number:08d}.report").read_text())
    assert (kept["kind"], kept["files_before"], kept["files_after"]) == ("compact", 6, 1)
    written = {row["n"]: 7 if row["_load"] < 4 else row["_load"] for row in before}
    filled = [{"how": "mouse", **row, "_written": written[row["n"]]} for row in before]
    assert sorted(world.rows("clicks"), key=key) == sorted(filled, key=key)
    click(world, 6, at=6, schema=V2, schema_id=2)
    load(world)
    assert numbers(world) == list(range(7))
    assert Compaction(world.context(), min_small_files=4).run().partitions == 0
    last = world.context().log.latest()
    assert last is not None
    assert last.tables["clicks"].files == 2
    assert audited(world) == {"loaded": 7}


def test_a_compacted_file_has_large_row_groups_and_dictionaries_that_pay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite_task, "_GROUP_ROWS", 8)
    for n in range(16):
        click(world, n)
        load(world)
    Compaction(world.context(), min_small_files=2).run()
    [folder] = world.catalog.days["clicks"].values()
    [file] = sorted_glob(folder, "[!._]*")
    meta = pq.read_metadata(parquet_source(file))
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    assert [group.num_rows for group in groups] == [8, 8]
    for group in groups:
        columns = [group.column(i) for i in range(meta.num_columns)]
        kept = {c.path_in_schema: c.has_dictionary_page for c in columns}
        assert (kept["n"], kept["_partition"]) == (False, True)


def test_a_run_compacts_touched_partitions_with_enough_small_files(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Warehouse, "_open_context", lambda self: world.context())

    reports: list[LoadReport] = []

    def run(*, compact: bool, days: tuple[int, ...] = (0,)) -> int:
        """Load a message of each day; the files that the table has then."""
        for day in days:
            click(world, day, at=day * DAY)
        policy = Policy(compact=compact)
        config = WarehouseConfig(tmp_path, "", "", str(world.root), policy=policy)
        with Warehouse(config, None, owns_session=False) as warehouse:
            reports.append(warehouse.load())
        last = world.context().log.latest()
        assert last is not None
        assert last.tables["clicks"].files == len(list(files_of_readers(world)))
        return last.tables["clicks"].files

    assert [run(compact=True, days=(0, 1)) for _ in range(MIN_SMALL_FILES - 1)][-1] == 2 * (
        MIN_SMALL_FILES - 1
    )
    assert run(compact=False) == 2 * MIN_SMALL_FILES - 1
    assert run(compact=True, days=(1,)) == MIN_SMALL_FILES + 1, "a day that was not touched waits"
    assert [bool(one.compacted) for one in reports] == [False] * MIN_SMALL_FILES + [True]
    assert run(compact=True) == 2
    told = reports[-1].compacted
    assert told is not None
    assert str(told) == f"1 partitions: {MIN_SMALL_FILES + 1} files became 1"
    assert told.number == reports[-1].number + 1
    kept = world.context().log.last_run()
    assert kept is not None
    assert kept["compacted"] == {**asdict(told), "refused": []}
    assert numbers(world) == [0] * (MIN_SMALL_FILES + 1) + [1] * MIN_SMALL_FILES
    assert audited(world) == {"loaded": 2 * MIN_SMALL_FILES + 1}


def files_of_readers(world: World) -> Iterator[AnyPath]:
    """The files that readers of the table are sent to."""
    for folder in world.catalog.days["clicks"].values():
        yield from sorted_glob(folder, "[!._]*")


def test_replaced_files_are_removed_after_the_grace_period(world: World) -> None:
    for n in range(3):
        click(world, n)
        load(world)
    old = world.root / "clicks" / "datepartition=1970-01-01"
    Compaction(world.context(), min_small_files=2).run()
    load(world, now=lambda: 3000.0)
    assert len(list(old.iterdir())) == 3
    load(world, now=lambda: 3602.0)
    assert not old.exists()
    Rewind(world.context(now=lambda: 5000.0)).run("clicks", RewindPosition.parse("earliest"))
    load(world, now=lambda: 9000.0)
    assert not (world.root / "clicks" / "load-00000004").exists()
    assert numbers(world) == [0, 1, 2]


def test_a_crash_while_the_old_is_removed_is_taken_up(world: World) -> None:
    click(world, 0)
    load(world)
    Rewind(world.context()).run("clicks", RewindPosition.parse("earliest"))
    Rewind(world.context()).run("clicks", RewindPosition.parse("earliest"))
    for times in (2, 1):
        with pytest.raises(Killed):
            load(world, now=lambda: 9000.0, on_step=killer("removing", times))
    load(world, now=lambda: 9000.0)
    assert sorted(p.name for p in (world.root / "clicks").iterdir()) == ["load-00000003"]
    assert world.context().log.retired.batches() == []
    assert numbers(world) == [0]


def test_files_that_a_late_recovery_replaces_stay_for_their_readers(world: World) -> None:
    click(world, 0)
    load(world)
    with pytest.raises(Killed):
        Rewind(world.context(on_step=killer("renamed"))).run(
            "clicks", RewindPosition.parse("earliest")
        )
    load(world, now=lambda: 9000.0)
    assert (world.root / "clicks" / "datepartition=1970-01-01").exists()
    load(world, now=lambda: 9000.0 + 3600)
    assert not (world.root / "clicks" / "datepartition=1970-01-01").exists()


@pytest.mark.parametrize("step", ["restoring", "tables", "renaming", "partitions"])
def test_a_crash_while_a_lost_metastore_is_defined_again_is_taken_up(
    world: World, step: str
) -> None:
    for n in range(6):
        click(world, n, at=n * DAY)
    world.log.append("clicks", b"junk", 9 * DAY)
    load(world)
    Compaction(world.context(), min_small_files=1).run()
    click(world, 6, at=2 * DAY)
    with pytest.raises(Killed):
        load(world, on_step=killer("committed"))
    world.catalog = MemoryCatalog()
    with pytest.raises(Killed):
        load(world, on_step=killer(step))
    load(world)
    assert numbers(world) == list(range(7))
    assert len(world.rows(QUARANTINE_TABLE)) == 1


Job = Callable[[World, Any], Any]
JOBS: dict[str, Job] = {
    "rewind": lambda w, reach: Rewind(w.context(on_step=reach)).run(
        "clicks", RewindPosition.parse("2")
    ),
    "requeue": lambda w, reach: Requeue(w.context(on_step=reach)).run("clicks"),
    "compact": lambda w, reach: Compaction(w.context(on_step=reach), min_small_files=2).run(),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_leaves_every_message_once(world: World, job: str, step: str) -> None:
    rng = random.Random(f"{job}{step}")
    for n in range(12):
        click(world, n, at=n * 9 * HOUR)
        if n % 4 == 0:
            world.log.append("clicks", encoded(V2, {"at": n, "n": 100 + n, "how": "x"}, 7), n, 1)
            load(world)
    world.log.append("clicks", b"junk", 2 * DAY, 1)
    load(world)
    before = keys(world, "clicks", QUARANTINE_TABLE)
    world.subjects["clicks"].append(WriterSchema(7, 2, json.dumps(V2)))
    with contextlib.suppress(Killed):
        JOBS[job](world, killer(step))
    # A reader in between: no row twice in the table, none gone from both.
    assert len(keys(world, "clicks")) == len(set(keys(world, "clicks")))
    assert set(keys(world, "clicks", QUARANTINE_TABLE)) == set(before)
    with contextlib.suppress(Killed):
        JOBS[job](world, killer(rng.choice(STEPS)))
    click(world, 12, at=DAY)
    load(world)
    assert keys(world, "clicks", QUARANTINE_TABLE) == sorted([*before, (0, 4)])
    assert sum(audited(world).values()) == len(before) + 1
    assert not (world.root / ".staging").exists()


def test_positions_are_read_as_people_write_them() -> None:
    assert RewindPosition.parse("earliest") == RewindPosition()
    assert RewindPosition.parse("2:17") == RewindPosition(17, 2)
    assert RewindPosition.parse("1970-01-01 00:00:01") == RewindPosition(time_ms=1000)
    assert RewindPosition.parse("1970-01-01T01:00:01+01:00") == RewindPosition(time_ms=1000)
    with pytest.raises(UsageError, match="'soon' is no position"):
        RewindPosition.parse("soon")
