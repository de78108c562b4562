"""The log of a partition: appends, reads, rolling, retention."""

from __future__ import annotations

import errno
import os
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headworks._broker.log import (
    DuplicateBatchError,
    FlushFailedError,
    InvalidProducerEpochError,
    LogConfig,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionLog,
    ProducerStates,
    open_log,
)
from headworks._broker.log.index import INDEX_INTERVAL_BYTES
from headworks._kafka.records import Batch, Record, check_batch, encode_batch, iter_batches
from headworks._kafka.records.file_slice import FileSlice
from headworks.errors import CorruptError
from tests.broker.build import batch

pytestmark = pytest.mark.unit

SMALL = LogConfig(segment_bytes=1024)


def opened(folder: Path, config: LogConfig = SMALL) -> PartitionLog:
    return open_log(folder, config)[0]


def append(log: PartitionLog, data: bytearray) -> int:
    base = log.stage(memoryview(data), check_batch(data))
    log.commit()
    return base


def flush(log: PartitionLog) -> None:
    log.mark_flushed(log.sync())


def read(piece: FileSlice) -> list[Batch]:
    return list(iter_batches(os.pread(piece.descriptor.fd, piece.size, piece.position)))


def filled(folder: Path, batches: int = 40, config: LogConfig = SMALL) -> PartitionLog:
    log = opened(folder, config)
    for number in range(batches):
        append(log, batch(1 + number % 4, timestamp=1000 * number, size=50 + number // 64))
    flush(log)
    return log


def read_all(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Batch]:
    offset, found = log.log_start_offset, []
    while offset < log.high_watermark:
        got = read(log.read(offset, max_bytes))
        found += got
        offset = got[-1].last_offset + 1
    return found


def test_offsets_follow_each_other_over_segments_and_reads_find_every_batch(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert len(log.segments) > 5
    batches = read_all(log)
    assert batches[0].base_offset == 0
    for before, after in pairwise(batches):
        assert after.base_offset == before.last_offset + 1
    assert batches[-1].last_offset + 1 == log.log_end_offset
    for offset in range(log.log_end_offset):
        first = read(log.read(offset, 10_000))[0]
        assert first.base_offset <= offset <= first.last_offset
    log.close()


@given(
    sizes=st.lists(st.integers(100, 30_000), min_size=2, max_size=25),
    max_bytes=st.integers(1000, 60_000),
    sealed=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_an_answer_carries_little_of_a_batch_that_does_not_fit(
    sizes: list[int], max_bytes: int, sealed: bool
) -> None:
    with TemporaryDirectory() as folder:
        log = opened(Path(folder), LogConfig(segment_bytes=1 << 30))
        placed = [append(log, batch(1, size=size)) for size in sizes]
        if sealed:
            log.roll()
        flush(log)
        assert [b.base_offset for b in read_all(log, max_bytes)] == placed
        lengths = [b.size for b in read_all(log)]
        for offset in placed:
            piece = log.read(offset, max_bytes)
            whole = sum(b.size for b in read(piece))
            fitting = [n for n in accumulate(lengths[offset:]) if n <= max_bytes]
            assert piece.size - whole <= INDEX_INTERVAL_BYTES
            assert not fitting or fitting[-1] - whole < INDEX_INTERVAL_BYTES
        log.close()


def test_consumers_see_only_what_is_flushed(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, batch(3))
    assert (log.log_end_offset, log.high_watermark) == (3, 0)
    for offset in range(4):
        assert log.read(offset, 1000).size == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(4, 1000)
    flush(log)
    assert log.high_watermark == 3
    assert log.read(0, 1000).size > 0
    log.close()


def test_consumers_see_unflushed_records_if_the_config_allows_it(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(show_unflushed=True))
    append(log, batch(3))
    assert (log.flushed_offset, log.high_watermark) == (0, 3)
    assert log.read(0, 1000).size > 0
    log.close()


def test_a_flush_covers_only_what_was_written_when_it_began(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, batch(3))
    point = log.sync()
    append(log, batch(2))
    log.mark_flushed(point)
    assert (log.log_end_offset, log.high_watermark) == (5, 3)
    assert [b.last_offset for b in read(log.read(0, 10_000))] == [2]
    log.close()


def test_the_first_batch_comes_whole_however_small_the_limit(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, batch(1, size=500))
    flush(log)
    assert len(read(log.read(0, 10))) == 1
    assert log.read(0, 10, at_least_one=False).size == 0
    log.close()


def test_a_batch_larger_than_a_segment_has_one_for_itself(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for size in (10, 5000, 10):
        append(log, batch(1, size=size))
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    log.close()


def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = read_all(log)
    log.close()
    again, recovery = open_log(tmp_path, SMALL)
    assert recovery.cut_bytes == 0
    assert read_all(again) == before
    assert again.offset_at_time(17_001) == log_time(before, 17_001)
    again.close()


def log_time(batches: list[Batch], timestamp: int) -> tuple[int, int]:
    for found in batches:
        for delta in range(found.record_count):
            if found.base_timestamp + delta >= timestamp:
                return found.base_offset + delta, found.base_timestamp + delta
    raise AssertionError


def test_search_by_time_agrees_with_looking_at_every_record(tmp_path: Path) -> None:
    log = filled(tmp_path)
    batches = read_all(log)
    for timestamp in [-5, 0, 1, 999, 1000, 1001, 1002, 20_003, 20_004, 39_000, 39_003]:
        assert log.offset_at_time(timestamp) == log_time(batches, timestamp)
    assert log.offset_at_time(39_004) is None
    assert log.latest_timestamp() == (log.log_end_offset - 1, 39_003)
    log.close()


def test_search_by_time_finds_what_follows_deleted_records_in_the_same_segment(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    for timestamp in (1000, 2000, 3000, 2000):
        append(log, batch(2, timestamp=timestamp))
    flush(log)
    log.delete_before(2)
    assert log.offset_at_time(500) == (2, 2000)
    log.delete_before(3)
    assert log.offset_at_time(500) == (3, 2001)
    log.delete_before(5)
    assert log.offset_at_time(3001) == (5, 3001)
    assert log.offset_at_time(3002) is None
    log.delete_before(6)
    assert log.offset_at_time(1999) == (6, 2000)
    log.close()


def test_search_by_time_goes_on_after_a_batch_of_which_only_early_records_are_left(
    tmp_path: Path,
) -> None:
    late_first = encode_batch([Record(n, at, None, b"", ()) for n, at in ((0, 9000), (1, 100))])
    for number, rest in enumerate(((), (batch(1, timestamp=8000),))):
        log = opened(tmp_path / str(number))
        for data in (late_first, *rest):
            append(log, bytearray(data))
        flush(log)
        log.delete_before(1)
        assert log.offset_at_time(200) == ((2, 8000) if rest else None)
        assert log.offset_at_time(50) == (1, 100)
        log.close()


def test_the_latest_timestamp_is_that_of_visible_records(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig())
    for timestamp in (9000, 1000, *range(2000, 2500), 8000):
        append(log, batch(2, timestamp=timestamp))
    visible = log.log_end_offset - 2
    log.mark_flushed(log.sync()._replace(offset=visible))
    assert log.latest_timestamp() == (1, 9001)
    log.delete_before(2)
    assert log.latest_timestamp() == (visible - 1, 2500)
    log.delete_before(visible)
    assert log.latest_timestamp() is None
    flush(log)
    assert log.latest_timestamp() == (log.log_end_offset - 1, 8001)
    log.close()


def test_the_latest_timestamp_is_known_while_a_later_one_is_not_flushed(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig())
    assert log.latest_timestamp() is None
    for timestamp in (3000, *range(1000, 1300)):  # over several entries of the index
        append(log, batch(2, timestamp=timestamp))
    flush(log)
    append(log, batch(2, timestamp=5000))
    assert log.latest_timestamp() == (1, 3001)
    flush(log)
    assert log.latest_timestamp() == (log.log_end_offset - 1, 5001)
    log.close()


def test_search_by_time_where_times_are_out_of_order(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for timestamp in (5000, 100, 7000, 200, 6000):
        append(log, batch(1, timestamp=timestamp, size=300))
    flush(log)
    assert log.offset_at_time(0) == (0, 5000)
    assert log.offset_at_time(5001) == (2, 7000)
    assert log.latest_timestamp() == (2, 7000)
    log.close()


@pytest.mark.parametrize("suffix", [".index", ".producers"])
@pytest.mark.parametrize("damage", ["missing", "empty", "noise"])
def test_caches_beside_a_segment_are_rebuilt(tmp_path: Path, suffix: str, damage: str) -> None:
    log = filled(tmp_path)
    before = read_all(log)
    log.close()
    for path in tmp_path.glob(f"*{suffix}"):
        path.unlink()
        if damage != "missing":
            path.write_bytes(b"" if damage == "empty" else b"\x7fnoise" * 16)
    again = opened(tmp_path)
    assert read_all(again) == before
    assert again.offset_at_time(20_000) == log_time(before, 20_000)
    again.close()


LARGE = LogConfig(segment_bytes=20_000)  # several index entries each


@pytest.mark.parametrize("damage", ["of its neighbour", "wrong inside"])
def test_an_index_that_is_not_of_its_segment_is_made_again(tmp_path: Path, damage: str) -> None:
    log = filled(tmp_path, 600, LARGE)
    before = read_all(log)
    log.close()
    paths = sorted(tmp_path.glob("*.index"))[:-1]
    assert len(paths) > 2
    others = [path.read_bytes() for path in [*paths[1:], paths[0]]]
    for path, other in zip(paths, others, strict=True):
        own = bytearray(path.read_bytes())
        for at in range(16 + 4, len(own) - 16, 16):  # positions, but of the first and last entry
            own[at : at + 4] = (int.from_bytes(own[at : at + 4]) + 7).to_bytes(4)
        path.write_bytes(own if damage == "wrong inside" else other)
    again = opened(tmp_path, LARGE)
    for one in before:
        assert read(again.read(one.last_offset, 1))[0].base_offset == one.base_offset
        assert again.offset_at_time(one.max_timestamp) == (one.last_offset, one.max_timestamp)
    again.close()
    last = opened(tmp_path, LARGE)
    assert read_all(last) == before, "and a start finds them sound or makes them from the log"
    last.close()


def test_a_header_damaged_in_the_middle_is_said_and_never_stepped_over(tmp_path: Path) -> None:
    log = filled(tmp_path, 600, LARGE)
    before = read_all(log)
    log.close()
    [path, _, *_] = sorted(tmp_path.glob("*.log"))
    victim = before[7]
    for at, first in ((8, victim), (16, victim), (11, before[8])):  # length, magic, length by a bit
        data = bytearray(path.read_bytes())
        data[victim.position + at] ^= 0x44
        path.write_bytes(data)
        again = opened(tmp_path, LARGE)
        assert read(again.read(0, victim.position))[-1].last_offset == victim.base_offset - 1
        for offset in (first.base_offset, first.last_offset):
            with pytest.raises(CorruptError, match="no batch at byte"):
                again.read(offset, 1 << 20)
        with pytest.raises(CorruptError, match="no batch at byte"):
            again.offset_at_time(first.base_timestamp)
        assert read(again.read(before[-1].base_offset, 1))[0].base_offset == before[-1].base_offset
        again.close()
        data[victim.position + at] ^= 0x44
        path.write_bytes(data)


@pytest.mark.parametrize("number", [0, 7, 9])
def test_a_wrong_base_offset_is_never_served(tmp_path: Path, number: int) -> None:
    log = filled(tmp_path, 600, LARGE)
    before = read_all(log)
    log.close()
    [path, _, *_] = sorted(tmp_path.glob("*.log"))
    victim = before[number]
    data = bytearray(path.read_bytes())
    data[victim.position + 6] ^= 2  # 512 later
    path.write_bytes(data)
    again = opened(tmp_path, LARGE)
    for offset in (0, victim.base_offset):
        while offset < victim.base_offset:
            found = read(again.read(offset, 1 << 20))
            assert found == [b for b in before if offset <= b.base_offset <= found[-1].last_offset]
            offset = found[-1].last_offset + 1
        with pytest.raises(CorruptError, match=f"byte {victim.position} has offset"):
            again.read(offset, 1 << 20)
    assert read(again.read(before[-1].base_offset, 1))[0].base_offset == before[-1].base_offset
    again.close()


def test_a_failed_write_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    append(log, batch(2, producer=(7, 0, 0)))
    size = log.size
    real = os.pwritev

    def full(fd: int, buffers: list[bytes], position: int) -> int:
        real(fd, [bytes(buffers[0])[:20]], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headworks._broker.log.segment.os.pwritev", full)
    for number in (2, 4):
        data = batch(2, producer=(7, 0, number))
        log.stage(memoryview(data), check_batch(data))
    with pytest.raises(OSError, match="space"):
        log.commit()
    monkeypatch.undo()
    assert (log.log_end_offset, log.size, log.appended_bytes) == (2, size, size)
    assert append(log, batch(2, producer=(7, 0, 2))) == 2
    log.close()
    again, recovery = open_log(tmp_path, SMALL)
    assert (again.log_end_offset, recovery.cut_bytes) == (4, 0)
    again.close()


def test_a_write_that_fails_while_a_segment_fills_fails_all_that_was_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headworks._broker.log.segment.os.pwritev", full)
    first = batch(1, size=900)
    assert log.stage(memoryview(first), check_batch(first)) == 0
    for _ in range(2):
        with pytest.raises(OSError, match="space"):
            log.stage(memoryview(first), check_batch(first))
    with pytest.raises(OSError, match="space"):
        log.commit()
    monkeypatch.undo()
    assert (log.log_end_offset, log.size) == (0, 0)
    assert append(log, first) == 0
    log.close()


@pytest.mark.parametrize(
    "what", ["headworks._broker.log.partition.LogSegment", "headworks._atomic_file.os.replace"]
)
def test_a_segment_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    log = opened(tmp_path)
    append(log, batch(1, size=900))

    def full(*_: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(what, full)
    with pytest.raises(OSError, match="space"):
        append(log, batch(1, size=900))
    monkeypatch.undo()
    assert (log.log_end_offset, len(log.segments), len(list(tmp_path.glob("*.log")))) == (1, 1, 1)
    assert append(log, batch(1, size=900)) == 1
    assert len(log.segments) == 2
    log.close()


def test_a_failed_flush_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    append(log, batch(1))

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("headworks._system_calls.sync_data", broken)
    with pytest.raises(FlushFailedError, match="Input/output"):
        log.sync()
    monkeypatch.undo()
    assert log.high_watermark == 0
    log.close()


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    real = os.pwritev
    monkeypatch.setattr(
        "headworks._broker.log.segment.os.pwritev",
        lambda fd, bufs, at: real(fd, [bytes(bufs[0])[:7]], at),
    )
    append(log, batch(3))
    monkeypatch.undo()
    flush(log)
    assert [b.record_count for b in read_all(log)] == [3]
    log.close()


def test_retention_by_size_keeps_the_newest(tmp_path: Path) -> None:
    log = filled(tmp_path, config=LogConfig(segment_bytes=1024, retention_bytes=3000))
    held = log.read(0, 1000)
    dropped = log.expire(0)
    for segment in dropped:
        segment.remove_files()
    assert log.size >= 3000 > log.size - log.segments[0].size
    assert log.log_start_offset == log.segments[0].base_offset > 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 1000)
    assert read(held), "a reader that was at it reads on"
    log.close()
    again = opened(tmp_path)
    assert again.log_start_offset == log.log_start_offset
    again.close()


def test_retention_by_time_goes_by_the_last_write_not_by_the_events_own_time(
    tmp_path: Path,
) -> None:
    log = filled(tmp_path, config=LogConfig(segment_bytes=1024, retention_ms=60_000))
    now = log.segments[-1].last_write_ms()
    assert log.expire(now) == []
    end = log.log_end_offset
    for segment in log.expire(now + 120_000):
        segment.remove_files()
    assert (log.log_start_offset, log.log_end_offset, log.size) == (end, end, 0)
    assert append(log, batch(1)) == end
    log.close()
    again = opened(tmp_path)
    assert (again.log_start_offset, again.log_end_offset) == (end, end + 1)
    again.close()


def test_deleting_records_moves_the_start_for_good(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for segment in log.delete_before(13):
        segment.remove_files()
    assert log.log_start_offset == 13
    assert log.segments[0].base_offset <= 13
    with pytest.raises(OffsetOutOfRangeError):
        log.read(12, 1000)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_before(log.log_end_offset + 1)
    log.close()
    again = opened(tmp_path)
    assert again.log_start_offset == 13
    again.close()


def test_a_start_that_cannot_be_kept_does_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    log = filled(tmp_path)
    monkeypatch.setattr("headworks._atomic_file.os.replace", full)
    with pytest.raises(OSError, match="No space"):
        log.delete_before(13)
    monkeypatch.undo()
    assert log.log_start_offset == 0, "a restart would bring back what seemed deleted"
    log.close()


def test_idempotence_repeats_gaps_epochs(tmp_path: Path) -> None:
    log = opened(tmp_path)
    offsets = [append(log, batch(2, producer=(9, 0, 2 * n))) for n in range(7)]
    with pytest.raises(DuplicateBatchError) as caught:
        append(log, batch(2, producer=(9, 0, 8)))
    assert caught.value.base_offset == offsets[4]
    for sequence in (0, 13, 20):  # forgotten, overlapping, a gap
        with pytest.raises(OutOfOrderSequenceError):
            append(log, batch(2, producer=(9, 0, sequence)))
    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch(2, producer=(9, 1, 5)))
    append(log, batch(2, producer=(9, 1, 0)))
    with pytest.raises(InvalidProducerEpochError):
        append(log, batch(2, producer=(9, 0, 14)))
    append(log, batch(1, producer=(10, 3, 1234)))  # unknown: may start anywhere
    log.close()


def test_idempotence_survives_a_restart_with_and_without_snapshots(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(30):
        append(log, batch(2, size=100, producer=(9, 0, 2 * number)))
    log.close()
    for _ in range(2):
        again = opened(tmp_path)
        with pytest.raises(DuplicateBatchError) as caught:
            append(again, batch(2, size=100, producer=(9, 0, 58)))
        assert caught.value.base_offset == 58
        with pytest.raises(OutOfOrderSequenceError):
            append(again, batch(2, producer=(9, 0, 70)))
        again.close()
        for path in tmp_path.glob("*.producers"):
            path.unlink()


def test_sequences_wrap() -> None:
    states = ProducerStates()
    last = check_batch(batch(2, producer=(1, 0, (1 << 31) - 2)))
    states.update(last, 0)
    states.check(check_batch(batch(1, producer=(1, 0, 0))))
    crossing = check_batch(batch(4, producer=(2, 0, (1 << 31) - 2)))
    states.update(crossing, 2)
    states.check(check_batch(batch(1, producer=(2, 0, 2))))


def test_producer_states_are_bounded_and_dump() -> None:
    states = ProducerStates(limit=3)
    for producer in (1, 2, 3, 1, 4):
        states.update(check_batch(batch(1, producer=(producer, 0, 0))), producer)
    assert len(states) == 3
    assert states.get(2) is None
    loaded = ProducerStates.load(states.dump())
    assert loaded is not None
    before, after = states.get(1), loaded.get(1)
    assert before is not None
    assert after is not None
    assert after[:2] == before[:2]
    assert ProducerStates.load(states.dump()[:-1]) is None
    assert ProducerStates.load(b"") is None
