"""Transactions in the log of a partition: what a reader of committed records gets, and when."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headworks._broker.log import (
    CompactionConfig,
    DuplicateBatchError,
    InvalidProducerEpochError,
    LogConfig,
    OpenTransactionError,
    OutOfOrderSequenceError,
    PartitionLog,
    ProducerLimit,
    open_log,
)
from headworks._broker.log.compaction import DEFAULT_MEMORY_BYTES, compact, plan
from headworks._broker.log.dump import SegmentDamage, dump_segment, segments_of
from headworks._kafka.records import Record, check_batch, encode_batch, iter_batches, iter_records
from headworks._kafka.records.batch import CONTROL, TRANSACTIONAL
from headworks._kafka.records.control import commits, encode_marker
from headworks.errors import CorruptError

pytestmark = pytest.mark.unit

NOW = 1_600_000_000_000
EAGER = CompactionConfig(min_dirty_ratio=0.0, delete_retention_ms=0)
Message = tuple[int, bytes | None]  # offset and key
PRODUCERS = (5, 6, 7)


def opened(folder: Path, config: LogConfig | None = None) -> PartitionLog:
    return open_log(folder, config or LogConfig(segment_bytes=1024, show_unflushed=True))[0]


def append(
    log: PartitionLog, keys: list[bytes], producer: tuple[int, int, int] | None = None
) -> int:
    """Append records, in a transaction of `producer` if one is given."""
    records = [Record(0, NOW, key, b"v" * 30, ()) for key in keys]
    attributes = 0 if producer is None else TRANSACTIONAL
    data = bytearray(
        encode_batch(records, producer=producer or (-1, -1, -1), attributes=attributes)
    )
    base = log.stage(memoryview(data), check_batch(data))
    log.commit()
    return base


def end(log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
    return log.append_marker(
        encode_marker(producer_id, epoch, commit=commit, coordinator_epoch=0, timestamp=NOW)
    )


def read_committed(log: PartitionLog, max_bytes: int = 400) -> list[Message]:
    """Read as a client does: skip markers, and records of the transactions named as aborted."""
    found: list[Message] = []
    offset = log.log_start_offset
    while True:
        piece, aborted = log.read_committed(offset, max_bytes)
        if not piece.size:
            return found
        data = os.pread(piece.descriptor.fd, piece.size, piece.position)
        waiting = sorted(aborted, key=lambda one: one.first)
        skipped: set[int] = set()
        before = offset
        for batch in iter_batches(data):
            while waiting and waiting[0].first <= batch.last_offset:
                skipped.add(waiting.pop(0).producer_id)
            if batch.attributes & CONTROL:
                skipped.discard(batch.producer_id)
            elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in skipped):
                found += [
                    (r.offset, r.key) for r in iter_records(data, batch) if r.offset >= offset
                ]
            offset = max(offset, batch.last_offset + 1)
        assert offset > before


@dataclass
class Model:
    """The log as a list of what was written, and whether its transaction was committed."""

    next: int = 0
    start: int = 0
    messages: list[tuple[int, bytes, int]] = field(default_factory=list)  # offset, key, producer
    open: dict[int, int] = field(default_factory=dict)  # producer: first offset
    aborted: set[int] = field(default_factory=set)  # offsets
    sequences: dict[int, int] = field(default_factory=dict)
    snapshots_lost: bool = (
        False  # in this restart or an earlier one: none are made for old segments
    )
    lost_before: int = 0  # no snapshot told the last restart what lies before this offset

    @property
    def stable(self) -> int:
        return max(self.start, min(self.open.values(), default=self.next))

    def append(self, keys: list[bytes], producer: int | None) -> None:
        if producer is not None:
            self.open.setdefault(producer, self.next)
            self.sequences[producer] = self.sequences.get(producer, 0) + len(keys)
        self.messages += [(self.next + i, key, producer or -1) for i, key in enumerate(keys)]
        self.next += len(keys)

    def end(self, producer: int, *, commit: bool) -> None:
        first = self.open.pop(producer, None)
        if first is not None and not commit:
            self.aborted |= {at for at, _, by in self.messages if by == producer and at >= first}
        self.next += 1

    def forget_removed(self, first: int) -> None:
        """Forget of open transactions what lies before `first`, because no snapshot has it."""
        left: dict[int, list[int]] = {}
        for at, _, by in self.messages:
            if by in self.open and at >= max(first, self.open[by]):
                left.setdefault(by, []).append(at)
        self.open = {by: offsets[0] for by, offsets in left.items()}

    def committed(self) -> list[Message]:
        return [
            (at, key)
            for at, key, _ in self.messages
            if self.start <= at < self.stable and at not in self.aborted
        ]


_keys = st.lists(st.sampled_from([b"a", b"b", b"c", b"long key" * 9]), min_size=1, max_size=4)
_step = st.one_of(
    st.tuples(st.just("append"), _keys, st.sampled_from([None, *PRODUCERS])),
    st.tuples(st.just("append"), _keys, st.sampled_from(PRODUCERS)),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.just(("roll",)),
    st.tuples(
        st.just("restart"),
        st.sets(st.sampled_from([".index", ".producers", ".aborted"])),
        st.booleans(),
    ),
    st.tuples(st.just("delete"), st.floats(0, 1)),
    st.just(("compact",)),
)
_EXAMPLES = int(os.environ.get("HEADWORKS_TEST_TRANSACTION_LOGS", "25"))


_REMOVED_AFTER_A_RESTART = [
    ("append", [b"a"] * 4, 6),
    *[("append", [b"a"] * 3, None)] * 3,
    ("restart", {".producers", ".aborted"}, False),
    ("append", [b"a"], None),
    ("delete", 0.7),
    ("restart", {".aborted"}, False),
]

# The restart forgets a transaction, and the last stable offset stays where it was.
_REMOVED_BEFORE_A_RESTART = [
    ("append", [b"a"], 5),
    ("roll",),
    ("append", [b"a"], None),
    ("delete", 1.0),
    ("restart", {".index", ".producers"}, False),
    ("end", 6, False),
]

# The restart forgets where a transaction began, behind which another one is open.
_BEGINNING_REMOVED = [
    ("append", [b"a"] * 3, 5),
    ("append", [b"a"] * 2, 6),
    ("append", [b"a"], 5),
    ("delete", 0.5),
    ("restart", {".producers", ".index"}, False),
    ("end", 6, False),
]


@settings(max_examples=_EXAMPLES, deadline=None)
@given(st.lists(_step, min_size=4, max_size=30), st.booleans(), st.booleans())
@example(steps=_REMOVED_AFTER_A_RESTART, compacted=False, small=True)
@example(steps=_REMOVED_BEFORE_A_RESTART, compacted=False, small=False)
@example(steps=_BEGINNING_REMOVED, compacted=False, small=True)
def test_a_reader_of_committed_records_agrees_with_a_model(
    steps: list[tuple[object, ...]], compacted: bool, small: bool
) -> None:
    """Whatever is written, ended, rolled, deleted, compacted, and reopened without its caches."""
    config = LogConfig(
        segment_bytes=300 if small else 1024,
        show_unflushed=True,
        compaction=EAGER if compacted else None,
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        log, model = opened(folder, config), Model()
        for step in steps:
            log = _take(log, model, step, folder, config)
            if log.last_stable_offset != model.stable:  # it may show long after the restart
                model.forget_removed(model.lost_before)
            assert log.last_stable_offset == model.stable
            assert log.log_end_offset == model.next
            found, expected = read_committed(log), model.committed()
            if not compacted:
                assert found == expected
                continue
            assert [one for one in found if one not in expected] == []
            newest = {key: at for at, key in expected}
            assert [one for one in expected if newest[one[1]] == one[0] and one not in found] == []
        for path in segments_of(folder):
            assert not [x for x in dump_segment(path) if isinstance(x, SegmentDamage)]
        log.close()


def _take(
    log: PartitionLog, model: Model, step: tuple[object, ...], folder: Path, config: LogConfig
) -> PartitionLog:
    kind, *rest = step
    if kind == "append":
        keys, producer = rest
        assert isinstance(keys, list)
        assert producer is None or isinstance(producer, int)
        sequence = model.sequences.get(producer or -1, 0)
        append(log, keys, None if producer is None else (producer, 0, sequence))
        model.append(keys, producer)
    elif kind == "end":
        assert isinstance(rest[0], int)
        end(log, rest[0], commit=bool(rest[1]))
        model.end(rest[0], commit=bool(rest[1]))
    elif kind == "roll":
        log.roll()
    elif kind == "delete":
        assert isinstance(rest[0], float)
        at = int(model.start + rest[0] * (model.next - model.start))
        for segment in log.delete_before(at):
            segment.remove_files()
        model.start = max(at, model.start)
    elif kind == "compact":
        due = plan(log, NOW)
        for swap in () if due is None else compact(due, now_ms=NOW, throttle=lambda: None):
            log.swap(*swap)
    else:
        lost, clean = rest
        assert isinstance(lost, set)
        if clean:
            log.close()
        else:
            log.abandon()
        for suffix in lost:
            for path in folder.glob(f"*{suffix}"):
                path.unlink()
        log = opened(folder, config)
        model.snapshots_lost |= bool(lost)
        if model.snapshots_lost:
            model.lost_before = log.segments[0].base_offset
    return log


def test_readers_of_committed_records_stop_at_an_open_transaction(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [b"before"])
    append(log, [b"open"], (5, 0, 0))
    append(log, [b"after"])
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert read_committed(log) == [(0, b"before")]
    assert log.read_committed(1, 1000)[0].size == 0
    assert log.read(1, 1000).size > 0, "a reader of all records goes on"
    end(log, 5, commit=True)
    assert log.last_stable_offset == 4
    assert read_committed(log) == [(0, b"before"), (1, b"open"), (2, b"after")]
    log.close()


@pytest.mark.parametrize("written", [True, False], ids=["written", "staged"])
def test_a_producer_does_not_write_beside_its_open_transaction(
    tmp_path: Path, written: bool
) -> None:
    def stage(attributes: int, sequence: int) -> None:
        data = bytearray(
            encode_batch(
                [Record(0, 1, b"k", b"v", ())],
                producer=(5, 0, sequence),
                attributes=attributes,
            )
        )
        log.stage(memoryview(data), check_batch(data))

    log = opened(tmp_path)
    stage(TRANSACTIONAL, 0)
    if written:
        log.commit()
    with pytest.raises(OpenTransactionError):
        stage(0, 1)
    stage(TRANSACTIONAL, 1)
    log.commit()
    append(log, [b"of another"])
    end(log, 5, commit=True)
    stage(0, 2)
    log.commit()
    assert log.log_end_offset == 5
    log.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_sequence_number_of_an_ended_transaction_is_no_retry(
    tmp_path: Path, *, restarted: bool
) -> None:
    """librdkafka sent it for a message that no log had, and was told that it is written."""
    log = opened(tmp_path)
    append(log, [b"aborted"], (5, 0, 0))
    with pytest.raises(DuplicateBatchError):  # a retry, while its transaction is open
        append(log, [b"aborted"], (5, 0, 0))
    end(log, 5, commit=False)
    if restarted:
        log.close()
        log = opened(tmp_path)
    with pytest.raises(OutOfOrderSequenceError, match="in a transaction that has ended"):
        append(log, [b"the next"], (5, 0, 0))
    append(log, [b"later"], (5, 0, 1))
    with pytest.raises(OutOfOrderSequenceError, match="in a transaction that has ended"):
        append(log, [b"the next"], (5, 0, 0))
    with pytest.raises(DuplicateBatchError):
        append(log, [b"later"], (5, 0, 1))
    log.close()


def test_a_transaction_is_open_to_readers_until_its_marker_is_flushed(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig())
    append(log, [b"open"], (5, 0, 0))
    log.mark_flushed(log.sync())
    end(log, 5, commit=True)
    append(log, [b"next"], (5, 0, 1))
    assert log.last_stable_offset == 0, "a power cut may still remove the marker"
    log.mark_flushed(log.sync())
    assert log.last_stable_offset == 2
    end(log, 5, commit=True)
    log.mark_flushed(log.sync())
    assert log.last_stable_offset == 4
    log.close()


def test_the_log_alone_rebuilds_the_aborted_transactions(tmp_path: Path) -> None:
    log = opened(tmp_path, LogConfig(segment_bytes=256, show_unflushed=True))
    for number in range(20):
        append(log, [b"k"], (5, 0, 2 * number))
        append(log, [b"k"], (6, 0, number))
        append(log, [b"k"], (5, 0, 2 * number + 1))
        end(log, 6, commit=True)
        end(log, 5, commit=number % 2 == 0)
    expected, count = read_committed(log), len(log.segments)
    assert count > 20
    assert len(list(tmp_path.glob("*.aborted"))) == 9, "only for segments that need one"
    log.close()
    for lost in ([".aborted"], [".producers"], [".aborted", ".producers", ".index"], []):
        for suffix in lost:
            for path in tmp_path.glob(f"*{suffix}"):
                path.unlink()
        log = opened(tmp_path, LogConfig(segment_bytes=256, show_unflushed=True))
        assert read_committed(log) == expected
        log.close()
    for path in tmp_path.glob("*.aborted"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    log = opened(tmp_path)
    assert read_committed(log) == expected, "a damaged index is rebuilt"
    log.close()


def test_a_marker_that_cannot_be_read_refuses_the_log(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, [b"k"], (5, 0, 0))
    end(log, 5, commit=False)
    segment = log.segments[0]
    marker = next(batch for batch in segment.headers() if batch.attributes & CONTROL)
    log.roll()
    log.close()
    with segment.path.open("r+b") as file:
        file.seek(marker.position + 61)
        file.write(b"\xff\xff")
    for suffix in (".aborted", ".producers"):
        for path in tmp_path.glob(f"*{suffix}"):
            path.unlink()
    with pytest.raises(CorruptError, match=f"control batch at byte {marker.position}"):
        opened(tmp_path)


def test_a_marker_of_a_newer_epoch_fences_the_producer_and_restarts_its_sequence(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    append(log, [b"k"], (5, 3, 0))
    end(log, 5, commit=False, epoch=4)
    with pytest.raises(InvalidProducerEpochError):
        append(log, [b"k"], (5, 3, 1))
    append(log, [b"k"], (5, 4, 0))
    for again in range(2):
        log.abandon()
        if again:
            for path in tmp_path.glob("*.producers"):
                path.unlink()
        log = opened(tmp_path)
        with pytest.raises(InvalidProducerEpochError):
            append(log, [b"k"], (5, 3, 1))
    log.close()


def test_a_producer_with_an_open_transaction_does_not_expire(tmp_path: Path) -> None:
    now = 0.0
    limit = ProducerLimit(2, lambda: now)
    log = opened(tmp_path)
    log.producers.join(limit)
    append(log, [b"k"], (5, 0, 0))
    append(log, [b"k"], (6, 0, 0))
    end(log, 6, commit=True)
    now = 100.0
    assert limit.expire(10) == 1
    assert log.producers.get(5) is not None
    for producer in (7, 8, 9):
        append(log, [b"k"], (producer, 0, 0))
    assert log.producers.get(5) is not None, "nor is it removed above the limit"
    log.close()


def test_compaction_removes_what_was_aborted_and_the_markers(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1024, show_unflushed=True, compaction=EAGER)
    log = opened(tmp_path, config)
    append(log, [b"a"], (5, 0, 0))
    end(log, 5, commit=True)
    append(log, [b"a", b"b"], (5, 0, 1))
    end(log, 5, commit=False)
    append(log, [b"c"], (5, 0, 3))
    end(log, 5, commit=True)
    log.roll()
    append(log, [b"d"], (6, 0, 0))
    log.roll()
    append(log, [b"e"])
    due = plan(log, NOW)
    assert due is not None
    assert due.end == 7, "the open transaction and what follows wait"
    for swap in compact(due, now_ms=NOW, throttle=lambda: None):
        log.swap(*swap)
    assert read_committed(log) == [(0, b"a"), (5, b"c")]
    assert not any(len(segment.aborted) for segment in log.segments)
    batches = list(log.segments[0].headers())
    assert not [one for one in batches if one.attributes & (CONTROL | TRANSACTIONAL)]
    assert batches[-1].last_offset == 6, "a consumer arrives at the end"
    log.close()
    for path in [*tmp_path.glob("*.producers"), *tmp_path.glob("*.aborted")]:
        path.unlink()
    log = opened(tmp_path, config)
    assert log.last_stable_offset == 7, "no transaction seems open because its marker is gone"
    end(log, 6, commit=True)
    assert read_committed(log) == [(0, b"a"), (5, b"c"), (7, b"d"), (8, b"e")]
    log.close()


def test_a_snapshot_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """Logs of that version hold no transactions, so they need no index."""
    log = opened(tmp_path)
    for number in range(30):
        append(log, [b"k%d" % number])
        append(log, [b"k"])
    log.close()
    from headworks._broker.log import producer_state

    body = b""
    for path in tmp_path.glob("*.producers"):
        magic = producer_state._MAGIC_WITHOUT_TRANSACTIONS
        path.write_bytes(producer_state._header(body, magic))
    shutil.copytree(tmp_path, tmp_path / "copy")
    log = opened(tmp_path / "copy")
    assert len(log.segments) > 2
    assert log.last_stable_offset == 60
    assert list((tmp_path / "copy").glob("*.aborted")) == []
    log.close()


def test_a_marker_says_what_it_is() -> None:
    for commit in (True, False):
        marker = encode_marker(9, 2, commit=commit, coordinator_epoch=4, timestamp=NOW)
        batch = check_batch(marker)
        assert commits(bytes(marker), batch) is commit
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, -1)
        assert DEFAULT_MEMORY_BYTES > batch.size == 78
