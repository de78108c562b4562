"""A commit is durable before it is announced, and the metastore hears only of new things."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._operations.load import Load
from hadoop_loader._storage.fsync import FsyncPool, sync_folders
from tests.hadoop_loader.memory import MemoryCatalog, World, encoded
from tests.hadoop_loader.test_loading import DAY, V1, Killed, click, killer, numbers

pytestmark = pytest.mark.unit


class CountingCatalog(MemoryCatalog):
    """Remembers which partitions it was asked to add."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def add_days(self, name: str, days: Iterable[str]) -> None:
        wanted = list(days)
        self.asked += wanted
        super().add_days(name, wanted)


@pytest.fixture
def synced(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made durable so far: `file` and the folders' names."""
    found: list[str] = []

    def fsync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        found.append(Path(path).name if is_folder else f"file {Path(path).name}")

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_the_metastore_is_asked_about_new_partitions_only(world: World) -> None:
    world.catalog = catalog = CountingCatalog()
    world.register("clicks", V1)
    for n, at in enumerate([0, 0, DAY]):
        click(world, n, at=at)
        Load(world.context()).run()
    assert catalog.asked == ["1970-01-01", "1970-01-02"]


def test_a_view_follows_its_table_before_another_table_is_touched(world: World) -> None:
    for topic in ("clicks", "taps"):
        world.register(topic, V1)
        world.log.append(topic, encoded(V1, {"at": 0, "n": 1}, len(world.subjects)))
    seen: list[tuple[int, int]] = []

    def on_step(step: str) -> None:
        if step in ("tables", "views"):
            seen.append((len(world.catalog.columns), len(world.catalog.views)))

    Load(world.context(on_step=on_step)).run()
    assert seen == [(1, 0), (2, 1), (2, 2)]


def test_after_a_crash_every_partition_is_asked_about(world: World) -> None:
    world.catalog = catalog = CountingCatalog()
    world.register("clicks", V1)
    click(world, 0)
    with pytest.raises(Killed):
        Load(world.context(on_step=killer("renamed"))).run()
    assert catalog.asked == []
    Load(world.context()).run()
    assert (catalog.asked, numbers(world)) == (["1970-01-01"], [0])


def test_files_are_durable_before_the_commit_and_names_before_it_is_applied(
    world: World, synced: list[str]
) -> None:
    world.register("clicks", V1)
    for n in range(6):
        click(world, n, at=n * DAY)
    seen: dict[str, list[str]] = {}
    Load(world.context(on_step=lambda step: seen.setdefault(step, list(synced)))).run()
    before = [name for name in seen["committing"] if name.endswith(".parquet")]
    assert len(before) == 6
    assert "commits" not in seen["committing"]
    *_, record, folder = seen["committed"][len(seen["committing"]) :]
    assert (record.startswith("file .00000001.json"), folder) == (True, "commits")
    moved = seen["renamed"][len(seen["renaming"]) :]
    days = {f"datepartition=1970-01-0{n}" for n in range(1, 7)}
    assert {*days, "clicks", world.root.name} <= set(moved)
    assert "file 00000001.applied" not in seen["renamed"]

    click(world, 6)
    seen.clear()
    Load(world.context(on_step=lambda step: seen.setdefault(step, list(synced)))).run()
    moved = seen["renamed"][len(seen["renaming"]) :]
    assert moved == ["datepartition=1970-01-01"]  # what is above it was durable before


def test_many_files_are_all_synced(tmp_path: Path, synced: list[str]) -> None:
    syncing = FsyncPool()
    files = [tmp_path / f"{number}.parquet" for number in range(500)]
    for file in files:
        file.touch()
        syncing.add(file)
    syncing.wait()
    assert sorted(synced) == sorted(f"file {file.name}" for file in files)


def test_an_error_of_the_disk_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folders([tmp_path, tmp_path / "gone"])
    with pytest.raises(FileNotFoundError):
        sync_folders([*[tmp_path] * 40, tmp_path / "gone", *[tmp_path] * 3])

    def full(handle: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    syncing = FsyncPool()
    syncing.add(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        syncing.wait()
