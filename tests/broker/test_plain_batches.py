"""Plain batches: recognized exactly as the full check does, and staged with the same effect."""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headworks._broker.handlers.produce import check_produced_batch
from headworks._broker.log import LogConfig, PartitionLog, open_log
from headworks._kafka.records import Record, encode_batch
from headworks._kafka.records.batch import (
    HEADER_SIZE,
    SEQUENCE_MODULUS,
    TRANSACTIONAL,
    check_batch,
    plain_run,
)
from headworks.errors import RefusedError
from tests.broker.build import batch

pytestmark = pytest.mark.unit

_PARTITION: Any = SimpleNamespace(config=SimpleNamespace(max_message_bytes=1 << 20))


def accepted(data: bytearray) -> bool:
    """Whether the full check takes it."""
    try:
        check_produced_batch(data, 0, len(data), _PARTITION)
    except RefusedError:
        return False
    return True


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, HEADER_SIZE + 5), st.integers(0, 255)), max_size=3),
    st.sampled_from([(-1, -1, -1), (7, 0, 0), (7, -1, 0), (7, 0, -1)]),
    st.booleans(),
)
def test_plain_batches_are_those_that_the_full_check_accepts(
    count: int, changes: list[tuple[int, int]], producer: tuple[int, int, int], mend: bool
) -> None:
    data = batch(count, producer=producer)
    for at, value in changes:
        data[at] = value
    if mend:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    found = plain_run(memoryview(data), [(0, len(data))])
    assert bool(found.batches) == accepted(data)
    if found.batches:
        header = check_batch(data)
        assert found.batches == [(0, len(data), header.record_count, header.max_timestamp)]
        sent = header.producer_id, header.producer_epoch, header.base_sequence
        assert found[1:] == (sent if header.producer_id >= 0 else (-1, -1, -1))


_LAST = SEQUENCE_MODULUS - 1


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [
        ((-1, -1, -1), (-1, -1, -1), 2),
        ((7, 0, 3), (7, 0, 5), 2),
        ((7, 0, _LAST), (7, 0, 1), 2),
        ((7, 0, 3), (7, 0, 3), 1),
        ((7, 0, 3), (7, 0, 6), 1),
        ((7, 0, 3), (7, 1, 5), 1),
        ((7, 0, 3), (8, 0, 5), 1),
        ((7, 0, 3), (-1, -1, -1), 1),
        ((-1, -1, -1), (7, 0, 0), 1),
    ],
)
def test_a_run_is_of_one_producer_without_a_gap(
    first: tuple[int, int, int], second: tuple[int, int, int], length: int
) -> None:
    one, other = batch(2, producer=first), batch(2, producer=second)
    spans = [(0, len(one)), (len(one), len(one) + len(other))]
    assert len(plain_run(memoryview(one + other), spans).batches) == length


def test_plain_batches_end_before_the_first_that_is_not_and_none_is_looked_at_after() -> None:
    one, damaged = batch(2), batch(2)
    damaged[-1] ^= 1
    data = one + one + damaged + one
    spans = iter(pairwise(range(0, len(data) + 1, len(one))))
    found = plain_run(memoryview(data), spans).batches
    assert [start for start, *_ in found] == [0, len(one)]
    assert next(spans) == (3 * len(one), 4 * len(one))
    for size in range(HEADER_SIZE):
        assert not plain_run(memoryview(one), [(0, size)]).batches


class Run(NamedTuple):
    """Batches that arrive together, of a producer or of none."""

    counts: list[int]  # of the records in each batch
    producer: int  # -1: none
    jump: int  # from the sequence number that the producer would send
    epoch: int
    opens: bool  # whether another producer has a transaction open meanwhile


_RUNS = st.builds(
    Run,
    st.lists(st.integers(1, 4), min_size=1, max_size=9),
    st.sampled_from([-1, 7, 7, 7, 8]),
    st.sampled_from([0] * 9 + [-2, 1]),
    st.sampled_from([0] * 9 + [1]),
    st.sampled_from([False] * 5 + [True]),
)


@pytest.mark.parametrize("segment_bytes", [1024, 1 << 20])
@settings(max_examples=30, deadline=None)
@given(runs=st.lists(_RUNS, max_size=8), begin=st.sampled_from([0, SEQUENCE_MODULUS - 9]))
def test_a_run_is_staged_as_its_batches_are_one_by_one(
    segment_bytes: int, runs: list[Run], begin: int
) -> None:
    with TemporaryDirectory() as name:
        logs = [
            open_log(Path(name) / way, LogConfig(segment_bytes=segment_bytes))[0] for way in "ab"
        ]
        numbers = {-1: -1, 7: begin, 8: begin}
        for run in runs:
            first = (numbers[run.producer] + run.jump) % SEQUENCE_MODULUS
            place = (run.producer, run.epoch, first) if run.producer >= 0 else (-1, -1, -1)
            placed = [
                _stage(log, run.counts, place, opens=run.opens, at_once=log is logs[0])
                for log in logs
            ]
            assert placed[0] == placed[1]
            if run.producer >= 0 and len(placed[0]) == len(run.counts):
                numbers[run.producer] = (first + sum(run.counts)) % SEQUENCE_MODULUS
            for log in logs:
                log.commit()
        states = [
            [
                (s.path.name, s.path.read_bytes(), s.next_offset, s.max_timestamp, s.size)
                for s in log.segments
            ]
            for log in logs
        ]
        assert states[0] == states[1]
        assert len({(log.log_end_offset, log.appended_bytes) for log in logs}) == 1
        assert logs[0].producers.dump() == logs[1].producers.dump()
        for log in logs:
            log.close()


def _stage(
    log: PartitionLog,
    counts: list[int],
    place: tuple[int, int, int] = (-1, -1, -1),
    *,
    opens: bool = False,
    at_once: bool,
) -> list[int]:
    """Stage batches of so many records, up to the first that is refused; their offsets."""
    if opens and 9 not in log.producers.transactions.open:
        opening = encode_batch(
            [Record(0, 1, None, b"", ())], producer=(9, 0, 0), attributes=TRANSACTIONAL
        )
        log.stage(memoryview(bytearray(opening)), check_batch(opening))
    producer, epoch, sequence = place
    numbers = [(sequence + sum(counts[:number])) % SEQUENCE_MODULUS for number in range(9)]
    batches = [
        batch(
            count,
            timestamp=1000 - log.log_end_offset,
            producer=(producer, epoch, number) if producer >= 0 else place,
        )
        for count, number in zip(counts, numbers, strict=False)
    ]
    data = bytearray(b"".join(batches))
    ends = [sum(map(len, batches[:number])) for number in range(len(batches) + 1)]
    view = memoryview(data)
    if at_once:
        run = plain_run(view, pairwise(ends))
        assert len(run.batches) == len(batches)
        staged = log.stage_plain(view, run)
        if staged is not None:
            return staged
    placed = []
    for at, to in pairwise(ends):
        try:
            placed.append(log.stage(view, check_batch(view, at, to)))
        except RefusedError:
            break
    return placed


@pytest.mark.parametrize("place", [(-1, -1, -1), (7, 0, 2)])
def test_a_run_that_cannot_be_written_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[int, int, int]
) -> None:
    log, _ = open_log(tmp_path, LogConfig())
    _stage(log, [2], (7, 0, 0), at_once=True)
    log.commit()
    before, size = log.producers.dump(), log.size

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headworks._broker.log.segment.os.pwritev", full)
    assert _stage(log, [1, 2, 3], place, at_once=True) == [2, 3, 5]
    with pytest.raises(OSError, match="space"):
        log.commit()
    monkeypatch.undo()
    assert (log.log_end_offset, log.size) == (2, size)
    assert os.path.getsize(log.segments[0].path) == size
    assert log.producers.dump() == before
    assert _stage(log, [2, 2], place, at_once=True) == [2, 4]
    log.commit()
    assert log.log_end_offset == 6
    log.close()
