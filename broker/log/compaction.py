"""Log compaction: the log retains at least the last record of every key.

`plan` decides whether a log is due and which segments to compact. `compact` rewrites them group by
group, and yields each `Swap` that it has made on disk, for `PartitionLog.swap`.

Rules:

- Only sealed segments are compacted. Offsets never change, and a batch that loses no record is
  copied as it is.
- A record is removed if a later one has its key. A tombstone is removed `delete_retention_ms` after
  the earlier records of its key. A record without a key is retained.
- The last batch of each idempotent producer is retained, empty if need be, so that a repeated batch
  is still detected. So is the last batch of the plan, so that a consumer reaches its end.
- Nothing from the last stable offset on is compacted. Below it every transaction has ended: records
  of an aborted one are removed, and the others belong to no transaction any more. Nobody needs the
  markers then, so they are removed too.
- The CRC of every batch is verified first: damage never gets a new, valid CRC.
- Compaction runs in a thread beside the writer. It reads only the sealed segments of the plan, and
  while `PartitionLog.compacting` is set the writer removes none of them.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headworks import _system_calls
from headworks._broker.log.aborted_index import SUFFIX, AbortedIndex, AbortedTransaction
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
from headworks._broker.log.slices import aborted_between
from headworks._kafka.records.batch import CONTROL, TRANSACTIONAL, Batch, check_batch
from headworks._kafka.records.record import record_data
from headworks._kafka.records.rewrite import (
    RawRecord,
    delete_horizon,
    empty_batch,
    parse_raw_records,
    rebuild_batch,
    without_transaction,
)

DEFAULT_MEMORY_BYTES = 64 << 20
_RECORDS_PER_THROTTLE = 50  # between two calls of `throttle`
_MAX_DECOMPRESSED_BYTES = 256 << 20  # of one batch


@dataclass(frozen=True, slots=True)
class Plan:
    """The compaction of one log."""

    folder: Path  # of the log
    segments: tuple[LogSegment, ...]  # to compact, oldest first; the older ones may be clean
    state: CompactionState  # before the compaction
    retained_batches: frozenset[int]  # base offsets of the producers' last batches
    aborted: Mapping[int, Sequence[AbortedTransaction]]  # by producer id, by offset
    config: CompactionConfig
    segment_bytes: int  # maximum size of a segment
    ratio: float  # of bytes that are dirty, 0 to 1

    @property
    def end(self) -> int:
        """The offset after the last record to compact."""
        return self.segments[-1].next_offset

    def discards(self, batch: Batch) -> bool:
        """Return whether a batch is a marker, or holds records of an aborted transaction."""
        if not batch.attributes & (TRANSACTIONAL | CONTROL):
            return False
        if batch.attributes & CONTROL:
            return True
        own = self.aborted.get(batch.producer_id, ())
        at = bisect_left(own, batch.base_offset, key=lambda one: one.last)
        return at < len(own) and own[at].first <= batch.base_offset


class Swap(NamedTuple):
    """A swap that is on disk."""

    old: tuple[LogSegment, ...]  # the segments that were replaced
    new: LogSegment | None  # the segment that replaces them; None: only the state changed
    state: CompactionState  # after the swap


class _RetentionRules(NamedTuple):
    offset_map: OffsetMap  # the latest offset of each key
    end: int  # the map has every key below this offset
    last: int  # where the plan ends
    retained_batches: frozenset[int]  # see `Plan`
    now_ms: int
    delete_retention_ms: int  # how long a tombstone stays

    def keeps_place(self, batch: Batch) -> bool:
        """Return whether a batch without records stays: a producer's last, or the last of all."""
        return batch.last_offset + 1 >= self.last or batch.base_offset in self.retained_batches


class _WrittenSegment(NamedTuple):
    size: int  # bytes
    max_timestamp: int  # of all batches, in ms
    sparse_index: GrowingIndex
    changed: bool  # whether any batch lost a record


def plan(log: PartitionLog, now_ms: int) -> Plan | None:
    """Return the plan for a log; None if too little is dirty, or nothing is old enough."""
    config = log.config.compaction
    if config is None:
        return None
    segments: list[LogSegment] = []
    for segment in log.segments[:-1]:
        if segment.next_offset > log.last_stable_offset:
            break
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
        _by_producer(
            aborted_between(log.segments, segments[0].base_offset, segments[-1].next_offset)
        ),
        config,
        log.config.segment_bytes,
        ratio,
    )


def _by_producer(
    aborted: Iterable[AbortedTransaction],
) -> dict[int, list[AbortedTransaction]]:
    found: dict[int, list[AbortedTransaction]] = {}
    for one in aborted:
        found.setdefault(one.producer_id, []).append(one)
    return found


def compact(
    plan: Plan, *, now_ms: int, throttle: Callable[[], None], memory: int = DEFAULT_MEMORY_BYTES
) -> Iterator[Swap]:
    """Execute a plan, in as many passes as the `memory` for keys, in bytes, requires.

    `throttle` is called every few records. It may wait, or raise to stop. Raises InvalidBatchError
    for a damaged batch, OSError if the disk is full, which changes nothing, and
    UnfinishedSwapError.
    """
    segments, state = list(plan.segments), plan.state
    while state.dirty < plan.end:
        offset_map = OffsetMap(memory, plan.end - state.dirty)
        end = _build_offset_map(plan, offset_map, segments, state.dirty, throttle)
        retention = plan.config.delete_retention_ms
        rules = _RetentionRules(offset_map, end, plan.end, plan.retained_batches, now_ms, retention)
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
    plan: Plan,
    offset_map: OffsetMap,
    segments: Sequence[LogSegment],
    dirty: int,
    throttle: Callable[[], None],
) -> int:
    """Add every key from the offset `dirty` on; return the offset at which the map was full."""
    for segment in segments:
        if segment.next_offset <= dirty:
            continue
        first = segment.find_batch(dirty)
        for batch in segment.headers(first.position if first is not None else segment.size):
            data, own = _read(segment, batch)
            if plan.discards(own):
                continue
            for entry in _entries(
                record_data(data, own, limit=_MAX_DECOMPRESSED_BYTES), own, throttle
            ):
                if entry.offset < dirty or entry.key is None:
                    continue
                if not offset_map.put(entry.key, entry.offset):
                    return entry.offset
    return plan.end


def _group_segments(
    segments: Sequence[LogSegment], end: int, most: int
) -> Iterator[tuple[LogSegment, ...]]:
    """Yield groups of adjacent segments below `end`, each of which fits into one segment."""
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
    """Write the retained records of a group as one segment, and swap it in; None if all stay."""
    folder, oldest = plan.folder, plan.segments[0].base_offset
    base, end = group[0].base_offset, group[-1].next_offset
    staged = staged_path(folder, base, state.generation + 1)
    try:
        with staged.open("wb") as file:
            written = _write(file, plan, group, rules, throttle)
            file.flush()
            _system_calls.sync(file.fileno())
        unchanged = len(group) == 1 and not written.changed
        if unchanged:
            staged.unlink()
            return None
        latest = max(os.fstat(segment.file.fd).st_mtime_ns for segment in group)
        os.utime(staged, ns=(latest, latest))  # retention uses the last write
        bases = [segment.base_offset for segment in group]
        after = state.with_group(bases, CompactedSegment(base, end, written.size), oldest)
        swap(folder, after)
    except UnfinishedSwapError:
        raise
    except Exception:
        staged.unlink(missing_ok=True)
        raise
    try:
        if any(len(segment.aborted) for segment in group):  # none is left
            AbortedIndex().write(segment_path(folder, base).with_suffix(SUFFIX), end)
        return Swap(group, _open_compacted(segment_path(folder, base), end, written), after)
    except OSError as error:
        raise UnfinishedSwapError(
            f"{staged.name} was swapped in and cannot be opened: {error}",
            fix="restart the broker, which opens the new segments",
        ) from error


def _write(
    file: BinaryIO,
    plan: Plan,
    group: tuple[LogSegment, ...],
    rules: _RetentionRules,
    throttle: Callable[[], None],
) -> _WrittenSegment:
    base, size, max_timestamp = group[0].base_offset, 0, NO_TIMESTAMP
    index, changed = GrowingIndex(), False
    for segment in group:
        for batch in segment.headers():
            data, own = _read(segment, batch)
            if plan.discards(own):
                retained = empty_batch(own) if rules.keeps_place(own) else None
            elif own.attributes & TRANSACTIONAL:
                settled = without_transaction(own, data)
                retained = _retained_batch(check_batch(settled), settled, rules, throttle)
            else:
                retained = _retained_batch(own, data, rules, throttle)
            changed = changed or retained is not data
            if retained is None:
                continue
            file.write(retained)
            index.append(batch.base_offset - base, size, max_timestamp)
            max_timestamp = max(max_timestamp, check_batch(retained).max_timestamp)
            size += len(retained)
    return _WrittenSegment(size, max_timestamp, index, changed)


def _entries(data: bytes, batch: Batch, throttle: Callable[[], None]) -> Iterator[RawRecord]:
    """Yield the records of a batch, and throttle between them."""
    throttle()
    for number, entry in enumerate(parse_raw_records(data, batch), 1):
        yield entry
        if not number % _RECORDS_PER_THROTTLE:
            throttle()


def _retained_batch(
    batch: Batch, data: bytes, rules: _RetentionRules, throttle: Callable[[], None]
) -> bytes | None:
    """Return the compacted batch: `data` itself if nothing changes, None if it is removed.

    The records are decoded twice, once to decide and once to write, and never held together: one
    batch may decompress to millions of small ones.
    """
    horizon = delete_horizon(batch)
    content = record_data(data, batch, limit=_MAX_DECOMPRESSED_BYTES)
    decisions, tombstones = bytearray(), False
    for entry in _entries(content, batch, throttle):
        decisions.append(_is_retained(entry, horizon, rules))
        tombstones = tombstones or bool(decisions[-1] and entry.tombstone and entry.key is not None)
    retained = sum(decisions)
    if not retained:
        if not rules.keeps_place(batch):
            return None
        return empty_batch(batch) if decisions else data
    whole = batch.last_offset < rules.end
    if horizon is None and whole and tombstones:
        horizon = rules.now_ms + rules.delete_retention_ms
    elif retained == len(decisions):
        return data
    else:
        horizon = None
    return rebuild_batch(batch, compress(_entries(content, batch, throttle), decisions), horizon)


def _is_retained(entry: RawRecord, horizon: int | None, rules: _RetentionRules) -> bool:
    if entry.key is None:
        return True
    offset_map = rules.offset_map.latest_offset(entry.key)
    if offset_map is not None and offset_map > entry.offset:
        return False
    expired = horizon is not None and rules.now_ms >= horizon
    return not (entry.tombstone and expired)


def _read(segment: LogSegment, batch: Batch) -> tuple[bytes, Batch]:
    data = segment.read(batch)
    return data, check_batch(data)


def _open_compacted(path: Path, end: int, written: _WrittenSegment) -> LogSegment:
    """Open the compacted segment that was swapped in, with its index."""
    segment = LogSegment(
        path,
        size=written.size,
        next_offset=end,
        max_timestamp=written.max_timestamp,
        index=written.sparse_index,
    )
    with suppress(OSError):  # if the disk is full, the index stays in memory until the next start
        segment.save_index()
        if written.size:
            segment.index = MappedIndex(segment.index_path)
    segment.folder_synced = segment.gaps = True
    return segment
