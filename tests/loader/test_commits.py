"""The commit log: created once or not at all, checksummed, read back as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadoop_loader.commits import Commit, CommitFile, CommitLog, TableState, TopicCommit
from headworks.errors import CorruptError, UsageError


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


def test_schemas_are_kept_by_fingerprint(tmp_path: Path) -> None:
    key = CommitLog(tmp_path).keep_schema('"int"')
    assert CommitLog(tmp_path).schema(key) == '"int"'
    (tmp_path / "schemas" / f"{key}.avsc").write_text('"long"')
    with pytest.raises(CorruptError):
        CommitLog(tmp_path).schema(key)
