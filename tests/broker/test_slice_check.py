"""The check of a slice: damaged batches, batches larger than a window, and files that end early."""

from __future__ import annotations

from pathlib import Path

import pytest

from headworks._broker.log.open_file import SegmentFile
from headworks._broker.log.slice_check import READ_BYTES, damaged_batches_in
from headworks._kafka.records import HEADER_SIZE, Record, encode_batch
from headworks._kafka.records.file_slice import FileSlice
from tests.damage import batches, flip_bit

pytestmark = pytest.mark.unit

SIZES = [100, 3 * READ_BYTES, 200, 2 * READ_BYTES]  # of the value in each batch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    written = [
        encode_batch([Record(0, 1, None, b"v" * size, ())], base_offset=offset)
        for offset, size in enumerate(SIZES)
    ]
    path.write_bytes(b"".join(written))
    return path


def found(path: Path, size: int) -> list[tuple[int, str]]:
    return list(damaged_batches_in(FileSlice(SegmentFile(path), 0, size)))


def test_intact_batches_and_one_that_the_slice_cuts_are_no_damage(path: Path) -> None:
    whole = path.stat().st_size
    for size in (whole, whole - 1, whole - 2 * READ_BYTES, batches(path)[2].position + 10):
        assert found(path, size) == []


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_each_damaged_batch_is_found(path: Path, number: int) -> None:
    size, batch = path.stat().st_size, batches(path)[number]
    flip_bit(path, batch)
    ((position, reason),) = found(path, size)
    assert position == batch.position
    assert "CRC32C" in reason


@pytest.mark.parametrize("number", range(len(SIZES)))
@pytest.mark.parametrize("left", [0, 10, HEADER_SIZE, HEADER_SIZE + 10])
def test_a_file_that_ends_in_a_batch_ends_the_check(path: Path, number: int, left: int) -> None:
    size, batch = path.stat().st_size, batches(path)[number]
    with path.open("r+b") as file:
        file.truncate(batch.position + left)
    assert found(path, size) == [(batch.position, "no whole batch starts here")]


def test_a_length_that_is_too_small_hides_nothing(path: Path) -> None:
    size, batch = path.stat().st_size, batches(path)[1]
    with path.open("r+b") as file:
        file.seek(batch.position + 8)
        file.write((20).to_bytes(4, "big"))
    assert found(path, size) == [(batch.position, "no whole batch starts here")]
