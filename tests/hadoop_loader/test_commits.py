"""The commit log: created once or not at all, checksummed, read back as written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hadoop_loader._commit import transaction
from hadoop_loader._commit.commit_log import CommitLog, ExpiredCommits
from hadoop_loader._commit.commit_record import Commit, CommitFile, TableState, TopicCommit
from hadoop_loader._commit.log_files import read_text
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.verify import count_rows
from hadoop_loader._storage.filesystem import write_durably
from headworks.errors import CorruptError, UsageError
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.test_loading import DAY, V1, click, numbers

pytestmark = pytest.mark.unit


def a_commit(number: int = 1) -> Commit:
    return Commit(
        number=number,
        created_ms=5,
        previous="",
        offsets={"t": {"0": 3, "1": 0}},
        tables={"t": TableState("t", "t-value", [[1, 1, 7, "abc"]], 12.5)},
        topics={
            "t": TopicCommit(
                {"0": [0, 3]}, 2, 30, 1, 0, 1, {"1": 2}, {"0": {"loaded": 2, "bytes": 30}}, 1, 2
            )
        },
        files=[CommitFile("s/x", "t/datepartition=1970-01-01/x", "t", "1970-01-01", 2, 99)],
    )


def test_reads_back_what_was_committed(tmp_path: Path) -> None:
    log = CommitLog(tmp_path)
    assert log.latest() is None
    log.create(a_commit())
    assert CommitLog(tmp_path).latest() == a_commit()
    assert a_commit().committed("t") == {0: 3, 1: 0}
    assert a_commit().committed("other") == {}


def test_a_number_is_given_once(tmp_path: Path) -> None:
    first, second = CommitLog(tmp_path), CommitLog(tmp_path)
    first.create(a_commit())
    with pytest.raises(UsageError, match="another loader has made load 1"):
        second.create(a_commit())
    assert sorted(p.name for p in (tmp_path / "commits").iterdir()) == ["00000001.json"]


def test_applied_is_a_mark_of_its_own(tmp_path: Path) -> None:
    log = CommitLog(tmp_path)
    log.create(a_commit())
    assert not log.is_applied(1)
    log.mark_applied(1)
    log.mark_applied(1)
    assert log.is_applied(1)
    assert log.numbers() == [1]


@pytest.mark.parametrize("change", [lambda b: b[:-5], lambda b: b.replace(b'"0":3', b'"0":4')])
def test_a_damaged_record_is_not_guessed_at(tmp_path: Path, change: object) -> None:
    log = CommitLog(tmp_path)
    log.create(a_commit())
    path = tmp_path / "commits" / "00000001.json"
    assert callable(change)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CorruptError, match="is not what the loader wrote"):
        log.latest()


@pytest.mark.parametrize("beside", [".applied", ".report"])
def test_a_newest_record_that_is_lost_is_missed(world: World, beside: str) -> None:
    """Its load would be made again beside its files, and its rows would come twice."""
    world.register("clicks", V1)
    for number in (1, 2):
        click(world, number)
        assert Load(world.context()).run().number == number
    commits = world.root / "_headworks" / "commits"
    record = read_text(commits / "00000002.json")
    for name in {".json", ".applied", ".report"} - {beside}:
        (commits / f"00000002{name}").unlink()
    click(world, 3)
    with pytest.raises(CorruptError, match=r"00000002\.json is missing, and .*00000002\."):
        Load(world.context()).run()
    with pytest.raises(CorruptError, match="is missing"):
        count_rows(world.root)
    write_durably(commits / "00000002.json", record)
    assert Load(world.context()).run().number == 3
    assert numbers(world) == [1, 2, 3]


def test_schemas_are_kept_by_fingerprint(tmp_path: Path) -> None:
    key = CommitLog(tmp_path).schemas.put('"int"')
    assert CommitLog(tmp_path).schemas.get(key) == '"int"'
    (tmp_path / "schemas" / f"{key}.avsc").write_text('"long"')
    with pytest.raises(CorruptError):
        CommitLog(tmp_path).schemas.get(key)


def worked_on(world: World) -> CommitLog:
    """The log of a warehouse with loads and compactions: eight commits, four layouts."""
    world.register("clicks", V1)
    for n in range(8):
        click(world, n, at=(n % 2) * DAY)
        Load(world.context()).run()
        if n % 2:
            Compaction(world.context(), min_small_files=2 if n > 1 else 1).run()
    return world.context().log


@pytest.mark.parametrize("dies_at", [None, 1, 2, 9, 20])
def test_old_commits_are_forgotten_whatever_happens_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch, dies_at: int | None
) -> None:
    log = worked_on(world)
    for path in (world.root / "_headworks" / "layouts").iterdir():
        os.utime(str(path), (-200_000, -200_000))
    log.expire(12)
    assert (log.numbers(), log.expired()) == (list(range(1, 13)), ExpiredCommits())
    if dies_at is not None:
        unlink, left = Path.unlink, [dies_at]

        def dying(self: Path, missing_ok: bool = False) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            unlink(self, missing_ok)

        monkeypatch.setattr(Path, "unlink", dying)
        with pytest.raises(KeyboardInterrupt):
            log.expire(3)
        monkeypatch.setattr(Path, "unlink", unlink)
        assert [t.in_files for t in count_rows(world.root)] == [8]
    log.expire(3)
    log.expire(3)
    assert (log.numbers(), log.expired().through) == ([10, 11, 12], 9)
    assert {path.name.partition(".")[0] for path in (log._commits).iterdir()} == {
        "00000010",
        "00000011",
        "00000012",
    }
    assert [(t.in_files, t.in_commits) for t in count_rows(world.root)] == [(8, 8)]
    assert 1 <= len(list((world.root / "_headworks" / "layouts").iterdir())) <= 2
    click(world, 8, at=DAY)
    assert Load(world.context()).run().number == 13
    assert numbers(world) == list(range(9))
    (world.root / "_headworks" / "commits" / "00000010.json").unlink()
    with pytest.raises(CorruptError, match="commit 11 does not follow 9"):
        count_rows(world.root)


def test_a_loader_keeps_the_last_commits_only(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction, "KEPT_COMMITS", 2)
    monkeypatch.setattr(transaction, "_EXPIRY_INTERVAL_COMMITS", 4)
    log = worked_on(world)
    assert log.numbers() == [11, 12]
    for n in range(8, 11):
        click(world, n)
        Load(world.context()).run()
    (world.root / "_headworks" / "commits" / "00000014.json").write_text("{}")
    click(world, 11)
    Load(world.context()).run()
    assert log.numbers() == [11, 12, 13, 14, 15, 16]
    assert "no old commits are removed" in caplog.text
