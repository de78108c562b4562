"""The files of a table: counted by partition, small ones apart, and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from headworks._console.sources import table_files
from headworks._console.sources.table_files import count_files

pytestmark = pytest.mark.unit


def write(folder: Path, count: int, size: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        with (folder / f"{number:03}.parquet").open("wb") as file:
            file.truncate(size)


def test_small_files_and_partitions_worth_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_files(tmp_path, "clicks") is None
    (tmp_path / "_headworks" / "commits").mkdir(parents=True)
    write(tmp_path / "clicks" / "datepartition=2026-01-01", 20, 1_000)
    write(tmp_path / "clicks" / "datepartition=2026-01-02", 2, 70 * 2**20)  # sparse
    write(tmp_path / "clicks" / "datepartition=2026-01-03", 3, 500)
    (tmp_path / "clicks" / "datepartition=2026-01-03" / "_hidden.parquet").touch()
    found = count_files(tmp_path, "clicks")
    assert found is not None
    assert (found.partitions, found.files, found.small, found.worth_it) == (3, 25, 23, 1)
    assert found.bytes == 20 * 1_000 + 2 * 70 * 2**20 + 3 * 500
    assert found.whole
    monkeypatch.setattr(table_files, "_MAX_FILES", 5)
    newest = count_files(tmp_path, "clicks")
    assert newest is not None
    assert (newest.partitions, newest.files, newest.whole) == (2, 5, False)
