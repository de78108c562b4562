"""Log compaction: of every key the last record stays, what came before it goes.

`plan` looks at a log and says what is to be done; `compact` does it, segment group by segment
group, and yields each `Swap` that it has made on disk, for `PartitionLog.swap`.

Rules:

- Only sealed segments are touched; offsets never change; a batch that loses nothing stays as it is.
- A record goes if a later one of its key is known, and a tombstone once it has stood for
  `delete_retention_ms` after what came before it was gone. Records without a key stay.
- The last batch of each idempotent producer, and the last one of what is compacted, stay, empty if
  need be: who repeats a batch is still told, and whoever reads to the end arrives there.
- Every batch's CRC is verified before it is judged: damage is never sealed with a new CRC.
- Runs beside the log's writer: it reads only the sealed segments that the plan names, and the
  writer keeps those (`PartitionLog.held`) until the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headworks._broker.log.compaction_state import (
    CompactedSegment,
    CompactionState,
    UnfinishedSwapError,
    save,
    staged_path,
    swap,
)
from headworks._broker.log.config import CompactionConfig
from headworks._broker.log.index import GrowingIndex, MappedIndex
from headworks._broker.log.offset_map import OffsetMap
from headworks._broker.log.partition import MAX_RELATIVE_OFFSET, PartitionLog
from headworks._broker.log.segment import NO_TIMESTAMP, LogSegment, segment_path
from headworks._kafka.records.batch import Batch, check_batch
from headworks._kafka.records.record import opened
from headworks._kafka.records.rewrite import Entry, delete_horizon, emptied, entries_in, rewritten

__all__ = ["DEFAULT_MEMORY_BYTES", "Plan", "Swap", "compact", "plan"]

DEFAULT_MEMORY_BYTES = 64 << 20
_RECORDS_PER_THROTTLE = 50  # records between two calls of `pace`
_MAX_DECOMPRESSED_BYTES = 256 << 20  # of one batch


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be compacted: these segments, and how dirty they are (0 to 1)."""

    folder: Path
    segments: tuple[LogSegment, ...]
    state: CompactionState
    kept: frozenset[int]  # base offsets of the producers' last batches
    config: CompactionConfig
    segment_bytes: int
    ratio: float

    @property
    def end(self) -> int:
        """The offset up to which keys are compared."""
        return self.segments[-1].next_offset


class Swap(NamedTuple):
    """A change that is on disk: `new` stands where `old` were (None: only `cleaned` changed)."""

    old: tuple[LogSegment, ...]
    new: LogSegment | None
    state: CompactionState


class _RetentionRules(NamedTuple):
    newest: OffsetMap
    end: int  # the map knows of every key below this offset
    last: int  # where the plan ends
    kept: frozenset[int]
    now_ms: int
    delete_retention_ms: int


class _WrittenSegment(NamedTuple):
    size: int
    max_timestamp: int
    sparse: GrowingIndex
    changed: bool


def plan(log: PartitionLog, now_ms: int) -> Plan | None:
    """What is due, or None: too little is dirty, or nothing is old enough."""
    config = log.config.compaction
    if config is None:
        return None
    segments: list[LogSegment] = []
    for segment in log.segments[:-1]:
        if config.min_lag_ms and now_ms - segment.last_write_ms() < config.min_lag_ms:
            break
        segments.append(segment)
    dirty = [segment for segment in segments if segment.next_offset > log.compaction_state.dirty]
    if not dirty:
        return None
    ratio = sum(s.size for s in dirty) / max(1, sum(s.size for s in segments))
    overdue = 0 <= config.max_lag_ms < now_ms - dirty[0].created_ms()
    if ratio < config.min_dirty_ratio and not overdue:
        return None
    return Plan(
        log.folder,
        tuple(segments),
        log.compaction_state,
        log.producers.last_batches(),
        config,
        log.config.segment_bytes,
        ratio,
    )


def compact(
    plan: Plan, *, now_ms: int, throttle: Callable[[], None], memory: int = DEFAULT_MEMORY_BYTES
) -> Iterator[Swap]:
    """Carry out a plan, in as many passes as the memory for keys makes necessary.

    `pace` is called every few records; it may wait, or raise to stop. Raises InvalidBatchError for
    a damaged batch, OSError when there is no room (nothing has changed then), UnfinishedSwapError.
    """
    segments, state = list(plan.segments), plan.state
    while state.dirty < plan.end:
        newest = OffsetMap(memory, plan.end - state.dirty)
        end = _build_offset_map(newest, segments, state.dirty, plan.end, throttle)
        retention = plan.config.delete_retention_ms
        rules = _RetentionRules(newest, end, plan.end, plan.kept, now_ms, retention)
        done: list[LogSegment] = []
        for group in _group_segments(segments, end, plan.segment_bytes):
            change = _compact_group(plan, group, state, rules, throttle)
            if change is None:
                done += group
                continue
            assert change.new is not None
            done.append(change.new)
            state = change.state
            yield change
        segments = done + [segment for segment in segments if segment.base_offset >= end]
        state = replace(state, dirty=end)
        save(plan.folder, state)
        yield Swap((), None, state)


def _build_offset_map(
    newest: OffsetMap,
    segments: Sequence[LogSegment],
    dirty: int,
    end: int,
    throttle: Callable[[], None],
) -> int:
    """Note every key from offset `dirty` on; returns the offset up to which that was done."""
    for segment in segments:
        if segment.next_offset <= dirty:
            continue
        first = segment.find_batch(dirty)
        for batch in segment.headers(first.position if first is not None else segment.size):
            data, own = _read(segment, batch)
            for entry in _entries(opened(data, own, limit=_MAX_DECOMPRESSED_BYTES), own, throttle):
                if entry.offset < dirty or entry.key is None:
                    continue
                if not newest.put(entry.key, entry.offset):
                    return entry.offset
    return end


def _group_segments(
    segments: Sequence[LogSegment], end: int, most: int
) -> Iterator[tuple[LogSegment, ...]]:
    """Neighbours below `end` that fit into one segment together."""
    group: list[LogSegment] = []
    size = 0
    for segment in segments:
        if segment.base_offset >= end:
            break
        wide = group and segment.next_offset - group[0].base_offset > MAX_RELATIVE_OFFSET
        if group and (size + segment.size > most or wide):
            yield tuple(group)
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield tuple(group)


def _compact_group(
    plan: Plan,
    group: tuple[LogSegment, ...],
    state: CompactionState,
    rules: _RetentionRules,
    throttle: Callable[[], None],
) -> Swap | None:
    """Write what stays of a group as one segment and let it take its place; None: all stays."""
    folder, oldest = plan.folder, plan.segments[0].base_offset
    base, end = group[0].base_offset, group[-1].next_offset
    staged = staged_path(folder, base, state.generation + 1)
    try:
        with staged.open("wb") as file:
            written = _write(file, group, rules, throttle)
            file.flush()
            os.fsync(file.fileno())
        unchanged = len(group) == 1 and not written.changed
        if unchanged:
            staged.unlink()
            return None
        latest = max(os.fstat(segment.file.fd).st_mtime_ns for segment in group)
        os.utime(staged, ns=(latest, latest))  # retention goes by the last write
        bases = [segment.base_offset for segment in group]
        after = state.with_group(bases, CompactedSegment(base, end, written.size), oldest)
        swap(folder, after)
    except UnfinishedSwapError:
        raise
    except Exception:
        staged.unlink(missing_ok=True)
        raise
    try:
        return Swap(group, _open_compacted(segment_path(folder, base), end, written), after)
    except OSError as error:
        raise UnfinishedSwapError(
            f"{staged.name} has taken its place and cannot be opened: {error}",
            fix="restart the broker: it opens the new segments then",
        ) from error


def _write(
    file: BinaryIO,
    group: tuple[LogSegment, ...],
    rules: _RetentionRules,
    throttle: Callable[[], None],
) -> _WrittenSegment:
    base, size, max_timestamp = group[0].base_offset, 0, NO_TIMESTAMP
    index, changed = GrowingIndex(), False
    for segment in group:
        for batch in segment.headers():
            data, own = _read(segment, batch)
            kept = _retained_batch(own, data, rules, throttle)
            changed = changed or kept is not data
            if kept is None:
                continue
            file.write(kept)
            index.append(batch.base_offset - base, size, max_timestamp)
            max_timestamp = max(max_timestamp, check_batch(kept).max_timestamp)
            size += len(kept)
    return _WrittenSegment(size, max_timestamp, index, changed)


def _entries(data: bytes, batch: Batch, throttle: Callable[[], None]) -> Iterator[Entry]:
    """The records of a batch, with time for others between them."""
    throttle()
    for number, entry in enumerate(entries_in(data, batch), 1):
        yield entry
        if not number % _RECORDS_PER_THROTTLE:
            throttle()


def _retained_batch(
    batch: Batch, data: bytes, rules: _RetentionRules, throttle: Callable[[], None]
) -> bytes | None:
    """The batch as it is to be from now on; the very same `data` if nothing changes.

    Its records are gone through twice, once to judge and once to write, and never held together:
    millions of small ones fit into what a batch may become.
    """
    horizon = delete_horizon(batch)
    content = opened(data, batch, limit=_MAX_DECOMPRESSED_BYTES)
    stays, tombstones = bytearray(), False
    for entry in _entries(content, batch, throttle):
        stays.append(_is_retained(entry, horizon, rules))
        tombstones = tombstones or bool(stays[-1] and entry.tombstone and entry.key is not None)
    kept = sum(stays)
    if not kept:
        last = batch.last_offset + 1 >= rules.last
        if not last and batch.base_offset not in rules.kept:
            return None
        return emptied(batch) if stays else data
    whole = batch.last_offset < rules.end
    if horizon is None and whole and tombstones:
        horizon = rules.now_ms + rules.delete_retention_ms
    elif kept == len(stays):
        return data
    else:
        horizon = None
    return rewritten(batch, compress(_entries(content, batch, throttle), stays), horizon)


def _is_retained(entry: Entry, horizon: int | None, rules: _RetentionRules) -> bool:
    if entry.key is None:
        return True
    newest = rules.newest.latest_offset(entry.key)
    if newest is not None and newest > entry.offset:
        return False
    expired = horizon is not None and rules.now_ms >= horizon
    return not (entry.tombstone and expired)


def _read(segment: LogSegment, batch: Batch) -> tuple[bytes, Batch]:
    data = segment.read(batch)
    return data, check_batch(data)


def _open_compacted(path: Path, end: int, written: _WrittenSegment) -> LogSegment:
    """The segment that has taken its place, with its index."""
    segment = LogSegment(
        path,
        size=written.size,
        next_offset=end,
        max_timestamp=written.max_timestamp,
        index=written.sparse,
    )
    with suppress(OSError):  # without room it stays in memory, and the next start makes the file
        segment.save_index()
        if written.size:
            segment.index = MappedIndex(segment.index_path)
    segment.folder_synced = True
    return segment
