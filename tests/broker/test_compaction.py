"""Log compaction, on files: what stays and what goes, and that no crash leaves anything between."""

from __future__ import annotations

import errno
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headworks._broker.log import (
    CompactionConfig,
    DuplicateBatchError,
    LogConfig,
    PartitionLog,
    open_log,
)
from headworks._broker.log.compaction import DEFAULT_MEMORY_BYTES, compact, plan
from headworks._broker.log.compaction_state import UnfinishedSwapError
from headworks._broker.log.dump import SegmentDamage, dump_segment, gaps, segments_of
from headworks._broker.log.offset_map import SLOT_BYTES, OffsetMap
from headworks._kafka.records import (
    Codec,
    InvalidBatchError,
    Record,
    check_batch,
    encode_batch,
    iter_batches,
    iter_records,
)
from headworks.errors import CorruptError

pytestmark = pytest.mark.unit

SECOND = 1000
NOW = 1_000_000 * SECOND
EAGER = CompactionConfig(min_dirty_ratio=0.0, delete_retention_ms=60 * SECOND)
CONFIG = LogConfig(segment_bytes=1024, compaction=EAGER)
LARGE = LogConfig(segment_bytes=20_000, compaction=EAGER)  # so that an index has several entries
Pair = tuple[bytes | None, bytes | None]


def opened(folder: Path, config: LogConfig = CONFIG) -> PartitionLog:
    log, recovery = open_log(folder, config)
    assert recovery.cut_bytes == 0
    return log


def append(
    log: PartitionLog,
    pairs: list[Pair],
    *,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> int:
    records = [
        Record(0, NOW + i, key, value, (("h", b"x"),)) for i, (key, value) in enumerate(pairs)
    ]
    data = bytearray(encode_batch(records, codec=codec, producer=producer))
    base = log.stage(memoryview(data), check_batch(data))
    log.commit()
    return base


def run(log: PartitionLog, *, now_ms: int = NOW, memory: int = DEFAULT_MEMORY_BYTES) -> int:
    """Compact what is due; returns how many segments were written."""
    due = plan(log, now_ms)
    if due is None:
        return 0
    swaps = 0
    for swap in compact(due, now_ms=now_ms, throttle=lambda: None, memory=memory):
        log.swap(*swap)
        swaps += swap.new is not None
    return swaps


def read_all(log: PartitionLog) -> list[Record]:
    """What a consumer gets that reads from the start to the end."""
    log.mark_flushed(log.sync())
    offset, found = log.log_start_offset, []
    while offset < log.high_watermark:
        piece = log.read(offset, 300)
        assert piece.size, f"reading stops at {offset} of {log.high_watermark}"
        data = os.pread(piece.descriptor.fd, piece.size, piece.position)
        before = offset
        for batch in iter_batches(data):
            found += [r for r in iter_records(data, batch) if r.offset >= offset]
            offset = batch.last_offset + 1
        assert offset > before
    return found


def kept(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_all(log)]


def assert_dump_is_clean(folder: Path) -> None:
    ends = []
    for path in segments_of(folder):
        items = list(dump_segment(path, records=True))
        assert not [item for item in items if isinstance(item, SegmentDamage)]
        last = items[-1] if items else None
        assert not isinstance(last, SegmentDamage)
        ends.append((path, int(path.stem) if last is None else last.batch.last_offset + 1))
    assert list(gaps(ends)) == []


def test_the_last_value_of_each_key_stays_where_it_was(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(40):
        append(log, [(b"k%d" % (number % 5), b"value %d" % number + b"." * 60)] * 2)
    log.roll()
    append(log, [(b"k0", b"active")])
    files = len(log.segments)
    assert run(log) > 0
    found = kept(log)
    assert kept_files(log) == files
    assert found == [
        *((2 * n + 1, b"k%d" % (n % 5), b"value %d" % n + b"." * 60) for n in range(35, 40)),
        (80, b"k0", b"active"),
    ]
    assert [record.timestamp for record in read_all(log)][:2] == [NOW + 1, NOW + 1]
    assert read_all(log)[0].headers == (("h", b"x"),)
    assert log.log_start_offset == 0
    assert_dump_is_clean(tmp_path)
    log.close()
    again = opened(tmp_path)
    assert kept(again) == found
    assert append(again, [(b"k", b"new")]) == 81
    again.roll()
    run(again)
    assert kept_files(again) == 2, "what has become small is merged"
    assert_dump_is_clean(tmp_path)
    again.close()


def kept_files(log: PartitionLog) -> int:
    assert len(list(log.folder.glob("*.log"))) == len(log.segments)
    return len(log.segments)


_keys = st.sampled_from([b"", b"a", b"b", b"c", b"long key" * 10, None])
_values = st.none() | st.binary(max_size=30)
_step = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(st.tuples(_keys, _values), min_size=1, max_size=6),
        st.sampled_from(Codec),
        st.sampled_from([-1, 5, 6]),
    ),
    st.just(("roll",)),
    st.tuples(st.just("compact"), st.sampled_from([1, DEFAULT_MEMORY_BYTES])),
    st.just(("restart",)),
)


@pytest.mark.seconds
@settings(max_examples=int(os.environ.get("HEADWORKS_TEST_COMPACTIONS", "60")), deadline=None)
@given(st.lists(_step, min_size=3, max_size=25), st.booleans())
def test_compaction_agrees_with_a_model(steps: list[tuple[object, ...]], tiny: bool) -> None:
    """Whatever is written, rolled, compacted and reopened: nothing that is the last is lost."""
    config = LogConfig(segment_bytes=200 if tiny else 1024, compaction=EAGER)
    with TemporaryDirectory() as name:
        folder = Path(name)
        log = opened(folder, config)
        written: list[tuple[int, bytes | None, bytes | None]] = []
        sequences = {5: 0, 6: 0}
        for step in [*steps, ("roll",), ("compact", DEFAULT_MEMORY_BYTES)]:
            if step[0] == "append":
                _, pairs, codec, producer = step
                assert isinstance(pairs, list)
                assert isinstance(codec, Codec)
                assert isinstance(producer, int)
                state = (producer, 0, sequences[producer]) if producer > 0 else (-1, -1, -1)
                base = append(log, pairs, codec=codec, producer=state)
                assert base == len(written)
                written += [(base + i, *pair) for i, pair in enumerate(pairs)]
                if producer > 0:
                    sequences[producer] += len(pairs)
            elif step[0] == "roll":
                log.roll()
            elif step[0] == "compact":
                assert isinstance(step[1], int)
                run(log, memory=step[1])
            else:
                states = {p: log.producers.get(p) for p in (5, 6)}
                log.close()
                for path in folder.glob("*.producers"):
                    path.unlink()  # so that they come from the batches that stayed
                log = opened(folder, config)
                for producer, before in states.items():
                    after = log.producers.get(producer)
                    assert (after and after.batches[-1]) == (before and before.batches[-1])
            found = kept(log)
            assert [r for r in found if r not in written] == []
            newest = {key: offset for offset, key, _ in written}
            must = [r for r in written if r[1] is None or newest[r[1]] == r[0]]
            assert [r for r in found if r in must] == must
            assert log.log_end_offset == len(written)
        last = {key: offset for offset, key, _ in written}
        assert kept(log) == [r for r in written if r[1] is None or last[r[1]] == r[0]]
        assert_dump_is_clean(folder)
        log.close()


def test_batches_that_lose_nothing_stay_byte_for_byte(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [(b"once", b"v")] * 1, codec=Codec.ZSTD)
    append(log, [(b"a", b"1"), (b"a", b"2")], codec=Codec.ZSTD)
    log.roll()
    before = log.segments[0].path.read_bytes()
    size = check_batch(before).size
    run(log)
    after = log.segments[0].path.read_bytes()
    assert after[:size] == before[:size]
    one, two = iter_batches(after)
    assert (one.codec, two.codec) == (Codec.ZSTD, Codec.ZSTD)
    assert (two.base_offset, two.last_offset, two.record_count) == (1, 2, 1)
    assert run(log) == 0, "nothing is dirty"
    log.close()


def test_max_timestamp_follows_when_the_latest_record_is_removed(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [(b"stays", b"1"), (b"goes", b"1"), (b"goes", b"1")])
    append(log, [(b"goes", b"2")])
    log.roll()
    run(log)
    first = next(iter_batches(log.segments[0].path.read_bytes()))
    assert (first.record_count, first.last_offset, first.max_timestamp) == (1, 2, NOW)
    assert log.offset_at_time(NOW) == (0, NOW)
    log.close()


def test_tombstones_stay_for_their_time_and_then_go(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", None)])
    log.roll()
    run(log, now_ms=NOW)
    assert kept(log) == [(1, b"b", b"1"), (2, b"a", None)]
    assert read_all(log)[1].timestamp == NOW, "the delete horizon does not show in timestamps"
    append(log, [(b"c", b"1")])
    log.roll()
    run(log, now_ms=NOW + 59 * SECOND)
    assert (2, b"a", None) in kept(log)
    append(log, [(b"d", b"1")])
    log.roll()
    run(log, now_ms=NOW + 61 * SECOND)
    assert kept(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]
    log.close()


def test_who_reads_to_the_end_arrives_there_even_if_the_last_record_went(tmp_path: Path) -> None:
    log = opened(tmp_path, replace(CONFIG, compaction=replace(EAGER, delete_retention_ms=0)))
    append(log, [(b"a", b"1"), (b"b", b"2")])
    append(log, [(b"a", None)])
    log.roll()
    run(log)
    log.compaction_state = replace(
        log.compaction_state, dirty=0
    )  # as if there were more: a second look
    run(log, now_ms=NOW + 1)
    assert kept(log) == [(1, b"b", b"2")], "read_all asserts that it gets to offset 3"
    assert log.log_end_offset == 3
    log.close()
    again = opened(tmp_path)
    assert (again.log_end_offset, kept(again)) == (3, [(1, b"b", b"2")])
    assert append(again, [(b"x", b"y")]) == 3
    again.close()


def test_a_producer_whose_records_all_went_is_still_known(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [(b"a", b"1"), (b"b", b"1")], producer=(9, 3, 0))
    append(log, [(b"a", b"2"), (b"b", b"2")], producer=(9, 3, 2))
    append(log, [(b"a", b"3"), (b"b", b"3")])
    log.roll()
    run(log)
    assert [key for _, key, _ in kept(log)] == [b"a", b"b"]
    log.close()
    for path in tmp_path.glob("*.producers"):
        path.unlink()
    again = opened(tmp_path)
    with pytest.raises(DuplicateBatchError) as caught:
        append(again, [(b"a", b"2"), (b"b", b"2")], producer=(9, 3, 2))
    assert caught.value.base_offset == 2
    assert append(again, [(b"a", b"4")], producer=(9, 3, 4)) == 6
    again.close()


def test_times_are_found_after_compaction(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(60):
        data = bytearray(
            encode_batch([Record(0, 10 * number, b"%d" % (number % 20), b"." * 40, ())])
        )
        log.stage(memoryview(data), check_batch(data))
        log.commit()
    log.roll()
    run(log)
    records = read_all(log)
    assert len(records) == 20
    for timestamp in (0, 5, 399, 400, 401, 590):
        first = next(r for r in records if r.timestamp >= timestamp)
        assert log.offset_at_time(timestamp) == (first.offset, first.timestamp)
    assert log.latest_timestamp() == (59, 590)
    log.close()


def test_a_full_key_map_takes_several_passes(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(100):
        append(log, [(b"%d" % (number % 50), b"%d" % number)])
    log.roll()
    run(log, memory=20 * SLOT_BYTES)
    assert [offset for offset, _, _ in kept(log)] == list(range(50, 100))
    log.close()


def test_a_tombstone_that_a_pass_did_not_get_to_stays_for_its_time(tmp_path: Path) -> None:
    log = opened(tmp_path, replace(CONFIG, compaction=replace(EAGER, delete_retention_ms=0)))
    append(log, [(b"a", b"1")])
    for number in range(11):
        append(log, [(b"%d" % number, b"1")])
    append(log, [(b"x", b"1"), (b"y", b"1"), (b"z", b"1"), (b"a", None)])
    log.roll()
    run(log, memory=0)
    assert log.compaction_state.dirty == log.log_end_offset
    found = kept(log)
    assert (0, b"a", b"1") not in found
    assert (15, b"a", None) in found, "it went together with what it deletes"
    log.close()


def test_the_ratio_and_the_lags_say_when(tmp_path: Path) -> None:
    config = LogConfig(compaction=CompactionConfig(min_dirty_ratio=0.5))
    log = opened(tmp_path, config)
    append(log, [(b"%d" % n, b"v" * 20) for n in range(100)])
    assert plan(log, NOW) is None, "the active segment is not touched"
    log.roll()
    now = log.segments[0].last_write_ms() + 10
    assert run(log, now_ms=now) == 0, "there is nothing to remove, and that is known from now on"
    assert log.compaction_state.dirty == 100
    append(log, [(b"1", b"2")])
    log.roll()
    assert plan(log, now) is None, "too little is dirty"
    lag = replace(config, compaction=CompactionConfig(min_dirty_ratio=0.5, max_lag_ms=1000))
    log.config = lag
    assert plan(log, now) is None
    assert plan(log, now + 60_000) is not None, "it has waited for too long"
    log.config = replace(
        config, compaction=CompactionConfig(min_dirty_ratio=0.0, min_lag_ms=60_000)
    )
    assert plan(log, now) is None, "it is too young"
    assert plan(log, now + 120_000) is not None
    log.config = replace(config, compaction=None)
    assert plan(log, now + 120_000) is None
    log.close()


def test_segments_roll_by_time(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(segment_ms=60_000))
    now = log.segments[-1].last_write_ms()
    assert not log.roll_due(now + 120_000), "an empty one stays"
    append(log, [(b"a", b"b")])
    assert not log.roll_due(now + 30_000)
    assert log.roll_due(now + 61_000)
    log.config = LogConfig(segment_ms=60_000, compaction=CompactionConfig(max_lag_ms=10_000))
    assert log.roll_due(now + 30_000), "or a record would wait for longer than max.compaction.lag"
    log.close()


def test_a_reader_goes_on_with_the_segment_it_has(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [(b"a", b"1")])
    append(log, [(b"a", b"2")])
    log.roll()
    log.mark_flushed(log.sync())
    piece = log.read(0, 1 << 20)
    run(log)
    assert not log.segments[0].path.read_bytes().startswith(b"\0" * 8 + b"\0\0\0\x00")
    data = os.pread(piece.descriptor.fd, piece.size, piece.position)
    assert [batch.base_offset for batch in iter_batches(data)] == [0, 1]
    assert kept(log) == [(1, b"a", b"2")]
    log.close()


def test_retention_waits_while_segments_are_held(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(segment_bytes=200, retention_bytes=0, compaction=EAGER))
    for number in range(10):
        append(log, [(b"%d" % number, b"." * 100)])
    log.mark_flushed(log.sync())
    log.compacting = True
    assert log.expire(NOW) == []
    assert log.delete_before(8) == []
    assert log.log_start_offset == 8
    log.compacting = False
    log.config = replace(log.config, retention_bytes=-1, retention_ms=-1)
    dropped = log.expire(NOW)
    assert [segment.base_offset for segment in dropped] == list(range(8))
    log.close()


def damaged(folder: Path) -> PartitionLog:
    log = opened(folder)
    append(log, [(b"a", b"1" * 50)])
    append(log, [(b"a", b"2" * 50)])
    log.roll()
    with log.segments[0].path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"x")
    return log


def test_damage_is_not_sealed_with_a_new_crc(tmp_path: Path) -> None:
    log = damaged(tmp_path)
    before = log.segments[0].path.read_bytes()
    with pytest.raises(InvalidBatchError, match="CRC"):
        run(log)
    assert log.segments[0].path.read_bytes() == before
    assert list(tmp_path.glob("*.cleaned-*")) == []
    log.close()


def prepared(folder: Path, config: LogConfig = CONFIG, size: int = 50) -> None:
    """A log with clean and dirty segments, deletions, several producers and codecs."""
    log = opened(folder, config)
    for number in range(30):
        pairs: list[Pair] = [(b"%d" % (number % 7), os.urandom(size)), (b"%d" % number, None)]
        append(log, pairs, codec=Codec(number % 5), producer=(number % 3, 0, 2 * (number // 3)))
    log.roll()
    run(log)
    for number in range(12):
        append(log, [(b"%d" % (number % 7), b"!" * 2 * size)])
    log.roll()
    append(log, [(b"end", b"end")])
    log.close()


class KilledError(BaseException):
    """Stands for a SIGKILL: nothing that cleans up may run because of it."""


_CALLS = ("fsync", "replace", "rename", "unlink", "utime", "fdatasync", "open")


def killed_at(count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """From the `count`th call that changes files on, nothing happens any more."""
    calls = [0]
    for name in filter(partial(hasattr, os), _CALLS):
        real = getattr(os, name)

        def call(*args: object, _real: object = real, **named: object) -> object:
            calls[0] += 1
            if calls[0] >= count:
                raise KilledError
            return _real(*args, **named)  # type: ignore[operator]

        monkeypatch.setattr(os, name, call)
    yield 0
    monkeypatch.undo()


@pytest.mark.seconds
def test_a_kill_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "start"
    prepared(start, LARGE, 1500)
    log = opened(start, LARGE)
    before, end = kept(log), log.log_end_offset
    log.close()
    shutil.copytree(start, tmp_path / "whole")
    log = opened(tmp_path / "whole", LARGE)
    run(log)
    after = kept(log)
    log.close()
    assert len(after) < len(before)
    states, count, killed = set(), 0, True
    while killed:
        count += 1
        folder = tmp_path / f"kill-{count}"
        shutil.copytree(start, folder)
        log = opened(folder, LARGE)
        due = plan(log, NOW)
        assert due is not None
        killing = killed_at(count, monkeypatch)
        next(killing)
        try:
            for swap in compact(due, now_ms=NOW, throttle=lambda: None):
                log.swap(*swap)
            killed = False
        except KilledError:
            pass
        next(killing, None)
        reading = kept(log)
        log.abandon()
        assert_dump_is_clean(folder)  # before a broker finishes the swap
        again = opened(folder, LARGE)
        found = kept(again)
        assert set(after) <= set(found) <= set(before), count
        assert again.log_end_offset == end
        assert set(found) <= set(reading), "what is served is never older than what is on disk"
        assert_dump_is_clean(folder)
        assert list(folder.glob("*.cleaned-*")) == []
        run(again)
        assert kept(again) == after, count
        states.add(len(found))
        again.close()
        third = opened(folder, LARGE)
        assert kept(third) == after
        third.close()
        shutil.rmtree(folder)
    assert count > 15
    assert {len(before), len(after)} <= states


def test_an_old_index_never_stands_beside_a_new_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the new segment took its place, before its index was made."""
    config = LogConfig(segment_bytes=100_000, compaction=EAGER)
    log = opened(tmp_path, config)
    for segment in range(2):
        for number in range(30):
            append(log, [(b"%d %d" % (segment, number), b"." * 500), (b"same", b"." * 500)])
        log.roll()

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr("headworks._broker.log.compaction._open_compacted", killed)
    with pytest.raises(KilledError):
        run(log)
    monkeypatch.undo()
    log.abandon()
    again = opened(tmp_path, config)
    assert len(again.segments) == 2
    offsets = [*range(0, 120, 2), 119]
    assert [offset for offset, _, _ in kept(again)] == offsets
    for offset in range(120):
        piece = again.read(offset, 2000)
        first = next(iter_batches(os.pread(piece.descriptor.fd, piece.size, piece.position)))
        assert first.base_offset <= offset <= first.last_offset
    again.close()


def test_a_full_disk_leaves_the_old_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(tmp_path)
    log = opened(tmp_path)
    before = kept(log)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headworks._system_calls.sync", full)
    with pytest.raises(OSError, match="No space"):
        run(log)
    monkeypatch.undo()
    assert kept(log) == before
    assert list(tmp_path.glob("*.cleaned-*")) == []
    assert run(log) > 0
    log.close()


@pytest.mark.parametrize("what", ["cut", "gone", "grown", "list"])
def test_damage_of_a_compacted_segment_refuses_the_partition(tmp_path: Path, what: str) -> None:
    prepared(tmp_path)
    log = opened(tmp_path)
    run(log)
    first, second = log.segments[0].path, log.segments[1].path
    log.close()
    if what == "cut":
        last = list(iter_batches(first.read_bytes()))[-1]
        os.truncate(first, last.position)
        first.with_suffix(".index").unlink()
    elif what == "gone":
        second.unlink()
    elif what == "grown":
        first.write_bytes(first.read_bytes() + first.read_bytes()[:200])
    else:
        (tmp_path / "compacted").write_bytes((tmp_path / "compacted").read_bytes()[:-2])
    with pytest.raises(CorruptError):
        open_log(tmp_path, CONFIG)


def test_offsets_do_not_go_back_when_the_active_segment_is_lost(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [(b"a", b"1"), (b"a", b"2")])
    append(log, [(b"a", b"3"), (b"b", b"4")])
    log.roll()
    run(log)
    active = log.segments[-1].path
    log.close()
    active.unlink()  # it was empty
    again = opened(tmp_path)
    assert again.log_end_offset == 4
    assert kept(again) == [(2, b"a", b"3"), (3, b"b", b"4")]
    again.close()


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 1 << 60)), max_size=200))
def test_the_key_map_is_a_dict_until_it_is_full(pairs: list[tuple[bytes, int]]) -> None:
    table = OffsetMap(64 * SLOT_BYTES, 1 << 40)
    model: dict[bytes, int] = {}
    for key, offset in pairs:
        if table.put(key, offset):
            model[key] = offset
        else:
            assert len(model) >= 40
            assert key not in model
    assert {key: table.latest_offset(key) for key in model} == model
    assert table.latest_offset(b"never there") is None


def test_offsets_of_segments_meet(tmp_path: Path) -> None:
    prepared(tmp_path)
    log = opened(tmp_path)
    run(log)
    for one, two in pairwise(log.segments):
        assert one.next_offset == two.base_offset
    log.close()


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_swap_that_fails_half_way_neither_loses_nor_refuses_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: bool
) -> None:
    """A rename fails after the list is replaced; and then the list cannot even be read."""
    log = opened(tmp_path)
    for number in range(40):
        append(log, [(b"k%d" % (number % 5), b"value %d" % number + b"." * 60)] * 2)
    log.roll()
    before = kept(log)
    newest = {key: value for _, key, value in before}
    really_replace, really_read = Path.replace, Path.read_text

    def replace_not(path: Path, target: Path) -> Path:
        if ".cleaned-" in path.name:
            if unreadable:
                monkeypatch.setattr(Path, "read_text", broken)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really_replace(path, target)

    def broken(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "replace", replace_not)
    with pytest.raises(UnfinishedSwapError):
        run(log)
    monkeypatch.setattr(Path, "read_text", really_read)
    monkeypatch.undo()
    assert kept(log) == before, "what was open is served on"
    append(log, [(b"after", b"it")])
    log.close()

    again = opened(tmp_path)
    assert {key: value for _, key, value in kept(again)} == newest | {b"after": b"it"}
    assert len(kept(again)) < len(before)
    assert_dump_is_clean(tmp_path)
    again.close()


@pytest.mark.seconds
def test_many_small_records_are_never_held_together(tmp_path: Path) -> None:
    """A batch of a few kilobytes may hold what is many megabytes as objects."""
    count = 50_000
    log = opened(tmp_path, LogConfig(segment_bytes=1 << 20, compaction=EAGER))
    records = [Record(0, NOW, b"%d" % (n % 3), b"", ()) for n in range(count)]
    data = bytearray(encode_batch(records, codec=Codec.ZSTD))
    log.stage(memoryview(data), check_batch(data))
    log.commit()
    log.roll()
    append(log, [(b"a", b"b")])
    tracemalloc.start()
    try:
        run(log)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [offset for offset, _, _ in kept(log)] == [count - 3, count - 2, count - 1, count]
    assert most < 100 * count, most  # as objects they are some 400 bytes each
    log.close()
