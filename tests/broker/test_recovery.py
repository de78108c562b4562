"""A log that was cut or overwritten anywhere recovers to its valid prefix."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headworks._broker.log import LogConfig, PartitionLog, open_log
from headworks._broker.log.kept_tails import KEPT_FILES, kept_tails
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
def test_damage_in_a_closed_segment_refuses_the_log_and_cuts_nothing(
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
    assert str(path) in str(caught.value)
    assert "salvage" in str(caught.value.fix)


def filled(folder: Path, batches: int = 119, config: LogConfig = CONFIG) -> PartitionLog:
    log, _ = open_log(folder, config)
    for _ in range(batches):
        data = batch(1, size=80)
        log.stage(memoryview(data), check_batch(data))
        log.commit()
    return log


@pytest.mark.parametrize("stopped", [True, False], ids=["after a stop", "after a kill"])
@pytest.mark.parametrize("damage", ["a few bytes", "the last batch", "the newest segment"])
def test_an_end_before_what_was_flushed_refuses_the_log(
    tmp_path: Path, damage: str, stopped: bool
) -> None:
    log = filled(tmp_path, config=LogConfig(segment_bytes=5000))
    path, base = log.segments[-1].path, log.segments[-1].base_offset
    last = list(log.segments[-1].headers())[-1]
    if stopped:
        log.close()
    else:
        log.mark_flushed(log.sync())
        log.abandon()
    if damage == "the newest segment":
        path.unlink()
    else:
        cut = 7 if damage == "a few bytes" else last.size
        path.write_bytes(path.read_bytes()[:-cut])
    files = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    with pytest.raises(CorruptError, match="flushed the log up to offset 119") as caught:
        open_log(tmp_path, CONFIG)
    assert f"offset {base if damage == 'the newest segment' else 118}" in str(caught.value)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == files


def test_a_bad_bit_below_the_recovery_point_after_a_kill_refuses_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.mark_flushed(log.sync())
    path = log.segments[0].path
    log.abandon()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="CRC32C"):
        open_log(tmp_path, CONFIG)
    assert path.read_bytes() == data


def test_what_a_recovery_truncates_is_kept_beside_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    log.mark_flushed(log.sync())
    flushed = log.size
    for _ in range(10):
        data = batch(1, size=80)
        log.stage(memoryview(data), check_batch(data))
        log.commit()
    path = log.segments[0].path
    log.abandon()
    whole = bytearray(path.read_bytes())
    whole[flushed + 70] ^= 1
    path.write_bytes(whole)
    again, recovery = open_log(tmp_path, CONFIG)
    assert (again.log_end_offset, recovery.cut_bytes) == (10, len(whole) - flushed)
    assert recovery.kept is not None
    assert recovery.kept.read_bytes() == whole[flushed:]
    again.close()


def test_only_the_newest_truncated_tails_are_kept_and_zeros_are_not(tmp_path: Path) -> None:
    for number in range(KEPT_FILES + 2):
        log = filled(tmp_path, 1)
        log.mark_flushed(log.sync())
        path = log.segments[-1].path
        log.abandon()
        with path.open("ab") as file:
            file.write(b"torn %d" % number)
        open_log(tmp_path, CONFIG)[0].close()
        os.utime(max(kept_tails(tmp_path)), ns=(number, number))
    kept = [one.read_bytes() for one in kept_tails(tmp_path)]
    assert kept == [b"torn %d" % number for number in range(2, KEPT_FILES + 2)]
    with path.open("ab") as file:
        file.write(bytes(5000))
    log, recovery = open_log(tmp_path, CONFIG)
    assert (recovery.cut_bytes, recovery.kept) == (5000, None)
    log.close()


def test_a_full_disk_does_not_keep_a_torn_log_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 1)
    log.close()
    with log.segments[0].path.open("ab") as file:
        file.write(b"torn")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headworks._broker.log.kept_tails.shutil.copyfileobj", full)
    log, recovery = open_log(tmp_path, CONFIG)
    assert (log.log_end_offset, recovery.cut_bytes, recovery.kept) == (1, 4, None)
    assert kept_tails(tmp_path) == []
    log.close()


@pytest.mark.parametrize("at", [0, 20, 60, 511, 512, 580, 1023])
def test_one_damaged_slot_of_the_recovery_point_loses_nothing(tmp_path: Path, at: int) -> None:
    log = filled(tmp_path)
    log.close()
    file = tmp_path / "recovery-point"
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)
    path = log.segments[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(CorruptError, match="flushed the log up to offset 119"):
        open_log(tmp_path, CONFIG)
    path.write_bytes(whole)
    again, _ = open_log(tmp_path, CONFIG)
    assert again.log_end_offset == 119
    again.close()


@pytest.mark.parametrize("content", [b"", b"?" * 1024])
def test_a_damaged_recovery_point_refuses_the_log(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path).close()
    (tmp_path / "recovery-point").write_bytes(content)
    with pytest.raises(CorruptError, match="recovery-point is damaged"):
        open_log(tmp_path, CONFIG)


def test_a_log_without_a_recovery_point_opens_and_gets_one(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "recovery-point").unlink()
    log, _ = open_log(tmp_path, CONFIG)
    assert log.log_end_offset == 119
    log.abandon()
    log.segments[0].path.unlink()
    with pytest.raises(CorruptError, match="flushed the log up to offset 119"):
        open_log(tmp_path, CONFIG)


def test_a_start_offset_outside_the_log_refuses_it(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.delete_before(0)
    log.mark_flushed(log.sync())
    log.delete_before(50)
    log.close()
    file = tmp_path / "start-offset"
    saved = file.read_bytes()
    log, _ = open_log(tmp_path, CONFIG)
    assert log.log_start_offset == 50
    log.close()
    for damaged in (b"999999\n", b"", b"noise", saved.replace(b"50", b"51"), saved[:-3], b"\xff"):
        file.write_bytes(damaged)
        with pytest.raises(CorruptError, match="start-offset"):
            open_log(tmp_path, CONFIG)
    file.write_bytes(b"60\n")  # of an earlier version
    log, _ = open_log(tmp_path, CONFIG)
    assert log.log_start_offset == 60
    log.close()


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
    assert f"log salvage {tmp_path} --repair" in str(caught.value)


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


def test_a_first_segment_that_no_retention_removed_is_missed(tmp_path: Path) -> None:
    log = filled(tmp_path, config=LogConfig(segment_bytes=5000))
    first, second, *_ = log.segments
    log.close()
    moved = first.path.rename(tmp_path / "moved")
    with pytest.raises(CorruptError, match="it started at offset 0") as caught:
        open_log(tmp_path, CONFIG)
    assert second.path.name in str(caught.value)
    moved.rename(first.path)
    log, _ = open_log(tmp_path, LogConfig(retention_bytes=0))
    for segment in log.expire(log.segments[-1].last_write_ms()):
        segment.remove_files()
    start = log.log_start_offset
    log.abandon()  # a crash right after retention
    assert start > 0
    again, _ = open_log(tmp_path, CONFIG)
    assert again.log_start_offset == start
    again.close()
