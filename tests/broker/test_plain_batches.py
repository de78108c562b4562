"""Plain batches: recognized exactly as the full check does, and staged with the same effect."""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headworks._broker.handlers.produce import check_produced_batch
from headworks._broker.log import LogConfig, PartitionLog, open_log
from headworks._kafka.records.batch import HEADER_SIZE, check_batch, plain_batches
from headworks.errors import RefusedError
from tests.broker.build import batch

pytestmark = pytest.mark.unit

_PARTITION: Any = SimpleNamespace(config=SimpleNamespace(max_message_bytes=1 << 20))


def accepted(data: bytearray) -> bool:
    """Whether the full check takes it, and it is of no idempotent producer."""
    try:
        return check_produced_batch(data, 0, len(data), _PARTITION).producer_id < 0
    except RefusedError:
        return False


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, HEADER_SIZE + 5), st.integers(0, 255)), max_size=3),
    st.sampled_from([(-1, -1, -1), (7, 0, 0)]),
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
    found = plain_batches(memoryview(data), [(0, len(data))])
    assert bool(found) == accepted(data)
    if found:
        header = check_batch(data)
        assert found == [(0, len(data), header.record_count, header.max_timestamp)]


def test_plain_batches_end_before_the_first_that_is_not_and_none_is_looked_at_after() -> None:
    one, damaged = batch(2), batch(2)
    damaged[-1] ^= 1
    data = one + one + damaged + one
    spans = iter(pairwise(range(0, len(data) + 1, len(one))))
    assert [start for start, *_ in plain_batches(memoryview(data), spans)] == [0, len(one)]
    assert next(spans) == (3 * len(one), 4 * len(one))
    for size in range(HEADER_SIZE):
        assert not plain_batches(memoryview(one), [(0, size)])


@pytest.mark.parametrize("segment_bytes", [1024, 1 << 20])
@settings(max_examples=20, deadline=None)
@given(runs=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=9), max_size=6))
def test_a_run_is_staged_as_its_batches_are_one_by_one(
    segment_bytes: int, runs: list[list[int]]
) -> None:
    with TemporaryDirectory() as name:
        logs = [
            open_log(Path(name) / way, LogConfig(segment_bytes=segment_bytes))[0] for way in "ab"
        ]
        for run in runs:
            placed = [_stage(log, run, at_once=log is logs[0]) for log in logs]
            assert placed[0] == placed[1]
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
        for log in logs:
            log.close()


def _stage(log: PartitionLog, counts: list[int], *, at_once: bool) -> list[int]:
    """Stage batches of so many records; their offsets."""
    batches = [batch(count, timestamp=1000 - log.log_end_offset) for count in counts]
    data = bytearray(b"".join(batches))
    ends = [sum(map(len, batches[:number])) for number in range(len(batches) + 1)]
    view = memoryview(data)
    if at_once:
        before = bytes(data)
        plain = plain_batches(view, pairwise(ends))
        assert len(plain) == len(batches)
        base = log.stage_plain(view, plain)
        if base is not None:
            return [base + sum(counts[:number]) for number in range(len(counts))]
        data[:] = before
    return [log.stage(view, check_batch(view, at, to)) for at, to in pairwise(ends)]


def test_a_run_that_cannot_be_written_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path, LogConfig())

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headworks._broker.log.segment.os.pwritev", full)
    assert _stage(log, [1, 2, 3], at_once=True) == [0, 1, 3]
    with pytest.raises(OSError, match="space"):
        log.commit()
    monkeypatch.undo()
    assert (log.log_end_offset, log.size, os.path.getsize(log.segments[0].path)) == (0, 0, 0)
    assert _stage(log, [2, 2], at_once=True) == [0, 2]
    log.commit()
    assert log.log_end_offset == 4
    log.close()
