"""The contract of a file system, whichever the loader uses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hadoop_loader._storage import filesystem
from hadoop_loader._storage.filesystem import AnyPath
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


def test_of_many_that_create_a_file_one_does_and_it_is_whole(place: AnyPath) -> None:
    def one(n: int) -> bool:
        try:
            filesystem.create_exclusive(place / "7.json", f"{n}" * 1000)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        winners = [n for n, won in enumerate(pool.map(one, range(8))) if won]
    assert len(winners) == 1
    assert (place / "7.json").read_text(encoding="utf-8") == f"{winners[0]}" * 1000
    assert [found.name for found in place.iterdir()] == ["7.json"], "nothing is left beside it"


def test_a_text_is_kept_and_replaced_and_nothing_is_left_beside_it(place: AnyPath) -> None:
    filesystem.write_atomically(place / "a", "first", durable=True)
    filesystem.write_atomically(place / "a", "first", durable=True)
    filesystem.write_atomically(place / "a", "second", durable=False)
    filesystem.write_durably(place / "b", "é")
    texts = {found.name: found.read_text(encoding="utf-8") for found in place.iterdir()}
    assert texts == {"a": "second", "b": "é"}


def test_bytes_are_replaced_and_read_as_a_whole(place: AnyPath) -> None:
    for content in (b"x" * 100_000, b"\0y" * 70_000, b""):
        with filesystem.open_for_write(place / "c") as file:
            file.write(content)
        assert filesystem.read_bytes(place / "c") == content


def test_a_move_takes_the_name_away_and_a_second_one_says_so(place: AnyPath) -> None:
    source, folder = place / "staged", place / "table" / "datepartition=2013-01-31"
    filesystem.write_durably(source, "x")
    folder.mkdir(parents=True, exist_ok=True)
    filesystem.rename(source, folder / "f")
    assert not source.exists()
    assert (folder / "f").exists()
    with pytest.raises(FileNotFoundError):
        filesystem.rename(source, folder / "f")


def test_files_are_found_by_their_names_and_their_sizes_are_known(place: AnyPath) -> None:
    for name in ("a.parquet", "_b.parquet", ".c.parquet", "d.json"):
        filesystem.write_durably(place / name, "four")
    (place / "datepartition=1970-01-01").mkdir()
    found = filesystem.sorted_glob(place, "[!._]*.parquet")
    assert [(p.name, filesystem.file_size(p)) for p in found] == [("a.parquet", 4)]
    assert [p.is_dir() for p in place.glob("datepartition=*")] == [True]
    assert list((place / "gone").glob("*")) == []
    assert not (place / "gone").is_dir()


def test_folders_go_with_all_that_is_in_them_or_only_when_empty(place: AnyPath) -> None:
    (place / "full" / "inner").mkdir(parents=True)
    filesystem.write_durably(place / "full" / "inner" / "f", "x")
    filesystem.remove_empty(place / "full")
    assert (place / "full").is_dir()
    filesystem.remove_tree(place / "full")
    filesystem.remove_tree(place / "full")
    (place / "empty").mkdir()
    filesystem.remove_empty(place / "empty")
    assert list(place.iterdir()) == []


def test_what_pyarrow_writes_it_reads_and_a_link_holds_the_same(place: AnyPath) -> None:
    rows = pa.table({"n": list(range(100_000)), "text": [str(n) for n in range(100_000)]})
    with filesystem.open_for_write(place / "f") as out:
        pq.write_table(rows, out)
        size = out.tell()
    filesystem.sync_file(place / "f")
    filesystem.link_or_copy(place / "f", place / "g")
    (place / "f").unlink()
    assert filesystem.file_size(place / "g") == size
    assert pq.ParquetFile(filesystem.parquet_source(place / "g")).read().equals(rows)
    assert pq.read_metadata(filesystem.parquet_source(place / "g")).num_rows == 100_000


def test_a_place_is_named_as_hadoop_takes_it(tmp_path: Path) -> None:
    assert filesystem.hadoop_uri(tmp_path / "a b%20") == f"file://{tmp_path}/a b%20"
    assert filesystem.parse_path(str(tmp_path / "x" / ".." / "y")) == tmp_path / "y"
    with pytest.raises(
        UsageError, match="gs://bucket/folder is neither a folder of this machine nor of HDFS or S3"
    ):
        filesystem.parse_path("gs://bucket/folder")
