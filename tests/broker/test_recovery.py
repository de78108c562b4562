"""A log that was cut or overwritten anywhere recovers to its valid prefix."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headworks._broker.log import LogConfig, open_log
from headworks._broker.log.segment import segment_path
from headworks._kafka.records import check_batch
from headworks.errors import CorruptError
from tests.broker.build import batch

pytestmark = pytest.mark.unit

CONFIG = LogConfig()


def chain(counts: list[int]) -> tuple[bytes, list[tuple[int, int]]]:
    """A segment's bytes, and (position, offset) where each batch ends; (0, 0) first."""
    data, ends, offset = bytearray(), [(0, 0)], 0
    for count in counts:
        data += batch(count, at=offset, timestamp=offset, size=20)
        offset += count
        ends.append((len(data), offset))
    return bytes(data), ends


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_a_log_cut_or_overwritten_at_any_byte_recovers_to_exactly_the_valid_prefix(
    counts: list[int], data: st.DataObject
) -> None:
    whole, ends = chain(counts)
    position = data.draw(st.integers(0, len(whole) - 1), label="position")
    if data.draw(st.booleans(), label="cut"):
        damaged = whole[:position]
    else:
        noise = data.draw(st.binary(min_size=1, max_size=40), label="noise")
        changed = next(
            (i for i, (a, b) in enumerate(zip(noise, whole[position:], strict=False)) if a != b),
            None,
        )
        damaged = (whole[:position] + noise + whole[position + len(noise) :])[: len(whole)]
        if changed is None:
            position = len(whole)
        else:
            position += changed
    size, offset = max(end for end in ends if end[0] <= position)
    with TemporaryDirectory() as name:
        folder = Path(name)
        segment_path(folder, 0).write_bytes(damaged)
        log, recovery = open_log(folder, CONFIG)
        try:
            assert (log.log_end_offset, log.size) == (offset, size)
            assert recovery.cut_bytes == len(damaged) - size
            assert bool(recovery.reason) == (recovery.cut_bytes > 0)
            assert segment_path(folder, 0).read_bytes() == whole[:size]
            new = batch(2)
            assert log.stage(memoryview(new), check_batch(new)) == offset
            log.commit()
        finally:
            log.close()
        again, recovery = open_log(folder, CONFIG)
        assert (again.log_end_offset, recovery.cut_bytes) == (offset + 2, 0)
        again.close()


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400))
def test_a_segment_of_noise_recovers_to_nothing(noise: bytes) -> None:
    with TemporaryDirectory() as name:
        segment_path(Path(name), 5).write_bytes(noise)
        log, recovery = open_log(Path(name), CONFIG)
        assert (log.log_start_offset, log.log_end_offset, recovery.cut_bytes) == (5, 5, len(noise))
        log.close()


@pytest.mark.parametrize("damage", ["overwritten", "cut", "emptied"])
def test_damage_in_what_was_closed_refuses_the_log_and_cuts_nothing(
    tmp_path: Path, damage: str
) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    for _ in range(100):
        data = batch(3, size=100)
        log.stage(memoryview(data), check_batch(data))
        log.commit()
    path = log.segments[0].path
    log.close()
    whole = path.read_bytes()
    middle = 0 if damage == "emptied" else len(whole) // 2 + 7
    after = b"?" + whole[middle + 1 :] if damage == "overwritten" else b""
    path.write_bytes(whole[:middle] + after)
    for _ in range(2):
        with pytest.raises(CorruptError, match="no torn tail") as caught:
            open_log(tmp_path, CONFIG)
        assert path.read_bytes() == whole[:middle] + after
    assert ".index" in str(caught.value)
    path.with_suffix(".index").unlink()
    again, recovery = open_log(tmp_path, CONFIG)
    assert recovery.cut_bytes > 0 or damage == "emptied"
    assert again.log_end_offset % 3 == 0
    again.close()


def two_segments(folder: Path) -> tuple[Path, Path]:
    log, _ = open_log(folder, LogConfig(segment_bytes=1024))
    for _ in range(12):
        data = batch(3, size=60)
        log.stage(memoryview(data), check_batch(data))
        log.commit()
    assert len(log.segments) >= 3
    paths = log.segments[0].path, log.segments[1].path
    log.close()
    return paths


def test_a_hole_between_segments_refuses_the_log(tmp_path: Path) -> None:
    _, second = two_segments(tmp_path)
    second.unlink()
    with pytest.raises(CorruptError, match="next segment starts at offset") as caught:
        open_log(tmp_path, CONFIG)
    assert "log dump" in str(caught.value)


@pytest.mark.parametrize("index", ["kept", "removed"])
def test_a_cut_older_segment_refuses_the_log(tmp_path: Path, index: str) -> None:
    first, _ = two_segments(tmp_path)
    first.write_bytes(first.read_bytes()[:-1])
    if index == "removed":
        first.with_suffix(".index").unlink()
    with pytest.raises(CorruptError):
        open_log(tmp_path, CONFIG)


def test_an_emptied_older_segment_refuses_the_log(tmp_path: Path) -> None:
    first, _ = two_segments(tmp_path)
    first.write_bytes(b"")
    with pytest.raises(CorruptError):
        open_log(tmp_path, CONFIG)


def test_a_foreign_file_name_refuses_the_log(tmp_path: Path) -> None:
    first, _ = two_segments(tmp_path)
    shutil.copy(first, tmp_path / "copy.log")
    with pytest.raises(CorruptError, match="named"):
        open_log(tmp_path, CONFIG)


def test_a_crash_right_after_rolling_leaves_an_empty_newest_segment(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    data = batch(3)
    log.stage(memoryview(data), check_batch(data))
    log.commit()
    log.roll()
    log.abandon()
    again, recovery = open_log(tmp_path, CONFIG)
    assert (again.log_end_offset, recovery.cut_bytes, len(again.segments)) == (3, 0, 2)
    again.close()
