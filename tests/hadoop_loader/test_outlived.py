"""A loader that was outlived: another one took the warehouse over while it slept, as in S3.

Here the store is this machine's; `HEADWORKS_TEST_WAREHOUSE=s3` puts it there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from hadoop_loader._commit import transaction
from hadoop_loader._commit.policy import QuarantineLimit
from hadoop_loader._commit.transaction import STAGING, Transaction
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._storage import filesystem
from hadoop_loader._storage.filesystem import AnyPath
from headworks.errors import UnreachableError, UsageError
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.test_loading import V1, click, numbers

pytestmark = pytest.mark.unit


@pytest.fixture
def clicks(world: World) -> World:
    """Ten messages to load."""
    world.register("clicks", V1)
    for n in range(10):
        click(world, n)
    return world


def test_staged_files_are_removed_only_when_no_loader_can_commit_them(clicks: World) -> None:
    """A loader falls asleep in front of its commit; another has come, and gone, meanwhile."""
    asleep = clicks.context(fenced=False)

    def another(step: str) -> None:
        if step == "committing":
            assert len(filesystem.sorted_glob(clicks.root / STAGING, "*")) == 1
            Transaction(clicks.context(fenced=False)).recover()
            assert filesystem.sorted_glob(clicks.root / STAGING, "*") == []

    with pytest.raises(UsageError, match="another loader has made load 1 of"):
        Load(replace(asleep, on_step=another)).run()
    took = asleep.log.latest()
    assert took is not None
    assert (took.number, took.kind, took.files) == (1, "takeover", [])
    assert Load(clicks.context(fenced=False)).run().number == 2
    assert numbers(clicks) == list(range(10))


def test_a_loader_that_comes_too_late_takes_nothing_from_the_one_that_committed(
    clicks: World,
) -> None:
    late = clicks.context(fenced=False)

    def first(step: str) -> None:
        if step == "committing":
            with contextlib.suppress(_KilledError):
                Load(clicks.context(fenced=False, on_step=_killed_at("committed"))).run()

    with pytest.raises(UsageError, match="another loader has made load 1 of"):
        Load(replace(late, on_step=first)).run()
    assert len(filesystem.sorted_glob(clicks.root / STAGING, "*")) == 1, "what is committed stays"
    assert Load(clicks.context(fenced=False)).run().number == 2
    assert numbers(clicks) == list(range(10))
    click(clicks, 10)
    assert Load(clicks.context(fenced=False)).run().number == 3
    assert numbers(clicks) == list(range(11))
    assert filesystem.sorted_glob(clicks.root / STAGING, "*") == []


def test_a_load_that_holds_everything_back_leaves_nothing_and_commits_nothing(
    clicks: World,
) -> None:
    for _ in range(10):
        clicks.log.append("clicks", b"bad")
    for _ in range(2):
        report = Load(clicks.context(fenced=False, limit=QuarantineLimit(0.1, 5))).run()
        assert (report.number, len(report.refused)) == (0, 1)
        assert filesystem.sorted_glob(clicks.root / STAGING, "*") == []


def test_what_a_loader_says_too_late_is_made_good(clicks: World) -> None:
    """It falls asleep in front of a statement to the metastore; another one says more meanwhile."""
    Load(clicks.context(fenced=False)).run()
    click(clicks, 10)
    Load(clicks.context(fenced=False)).run()
    said, overtaken = clicks.catalog.relocate, threading.Event()

    def late(name: str, folders: Mapping[str, AnyPath]) -> None:
        clicks.catalog.relocate = said  # type: ignore[method-assign]
        Transaction(clicks.context(fenced=False)).recover()
        click(clicks, 11)
        Load(clicks.context(fenced=False)).run()
        assert Compaction(clicks.context(fenced=False), min_small_files=2).run().files_after == 1
        assert numbers(clicks) == list(range(12))
        overtaken.set()
        said(name, folders)

    def broken(step: str) -> None:
        if overtaken.is_set():
            raise UnreachableError("the loader's hold broke")

    clicks.catalog.relocate = late  # type: ignore[method-assign]
    with pytest.raises(UnreachableError, match="hold broke"):
        Compaction(clicks.context(fenced=False, on_step=broken), min_small_files=2).run()
    assert "load-00000003" in str(clicks.catalog.days["clicks"]["1970-01-01"])
    Load(clicks.context(fenced=False, now=lambda: 9000.0)).run()
    assert "load-00000005" in str(clicks.catalog.days["clicks"]["1970-01-01"])
    assert numbers(clicks) == list(range(12))
    assert clicks.context().log.tables_to_restore() == set()


def test_what_another_one_stages_is_not_cleaned_up(
    clicks: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls asleep behind its look into staging; what comes there meanwhile is not its own."""
    loader, other = (
        Transaction(clicks.context(fenced=False)),
        Transaction(clicks.context(fenced=False)),
    )
    last, listed = loader.recover(), filesystem.sorted_glob

    def late(folder: AnyPath, pattern: str) -> list[AnyPath]:
        found = listed(folder, pattern)
        if folder.name == STAGING:
            filesystem.write_durably(other.staging(1) / "f", "")
        return found

    monkeypatch.setattr(transaction, "sorted_glob", late)
    loader.remove_staging(last)
    loader.remove_staging(last)
    assert len(listed(clicks.root / STAGING, "*/f")) == 1


class _KilledError(Exception):
    """Where a loader ends."""


def _killed_at(wanted: str) -> Callable[[str], None]:
    def on_step(step: str) -> None:
        if step == wanted:
            raise _KilledError

    return on_step
