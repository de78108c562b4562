"""Open the folder of a partition: recover its log, or raise CorruptError.

Rules:

- After a crash, the newest segment may have a torn tail. Every batch is verified (length, CRC32C,
  magic, consecutive offsets), the file is truncated at the first that fails, and that is reported.
- No crash tears a record below the recovery point, which `PartitionLog.close` moves to the end of
  the log. Damage below it, or an end before it, is a CorruptError.
- The bytes that a truncation removes are kept in a file beside the segment (`kept_tails`).
- Older segments were flushed before their successor was started. Their headers must chain without a
  gap up to the next segment. A truncation there would lose acknowledged records, so a break in the
  chain is a CorruptError.
- Only compacted segments may have gaps between their batches. Their size and end are listed.
- After a crash, valid records may be in the page cache only. Recovery flushes them first:
  otherwise a power cut could remove records that consumers have read.
- Indexes and producer snapshots are caches. They are rebuilt if they are missing or implausible.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headworks._atomic_file import sync_folder
from headworks._broker.log.compaction_state import CompactedSegment, CompactionState, adopt
from headworks._broker.log.config import LogConfig
from headworks._broker.log.headers import read_headers
from headworks._broker.log.index import GrowingIndex, MappedIndex
from headworks._broker.log.kept_tails import keep_tail
from headworks._broker.log.partition import LEADER_EPOCH, PartitionLog
from headworks._broker.log.producer_recovery import recovered_producers
from headworks._broker.log.producer_state import ProducerStates
from headworks._broker.log.recovery_point import FILE as RECOVERY_POINT_FILE
from headworks._broker.log.recovery_point import LogPosition, RecoveryPoint
from headworks._broker.log.segment import (
    NO_TIMESTAMP,
    LogSegment,
    salvage_fix,
    segment_path,
)
from headworks._broker.log.start_offset import load_start
from headworks._kafka.records.batch import InvalidBatchError, check_batch
from headworks.errors import CorruptError


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of a recovery."""

    cut_bytes: int = 0  # truncated from the tail
    reason: str = ""  # why
    kept: Path | None = None  # the file that holds the truncated bytes


@dataclass(slots=True)
class _Scan:
    """The valid prefix of a segment."""

    size: int  # bytes
    next_offset: int  # after its last record
    max_timestamp: int  # of its batches
    index: GrowingIndex
    reason: str = ""  # why the next batch is not valid


def open_log(
    folder: Path, config: LogConfig, *, begun: bool = False
) -> tuple[PartitionLog, Recovery]:
    """Open or create the log in `folder`. Raises CorruptError if it must not be served.

    A log that was `begun` once is never created again.
    """
    if begun and not holds_log(folder):
        raise CorruptError(
            f"{folder} holds no log, and this partition had one: the folder was removed, or its"
            f" disk is not mounted",
            fix="mount the disk, or restore the folder from a copy (docs/backup.md). If the"
            " messages are lost, stop the broker and run"
            f" `headworks broker recreate {folder.name}`",
        )
    if not folder.exists():
        folder.mkdir(parents=True)
        sync_folder(folder.parent)
    state = adopt(folder)
    point = RecoveryPoint.load(folder)
    paths = _segment_paths(folder, state)
    if point.first is not None and int(paths[0].stem) > point.first:
        raise CorruptError(
            f"{folder}: the log starts at offset {int(paths[0].stem)}, byte 0 of {paths[0].name};"
            f" it started at offset {point.first}, and no retention has removed that",
            fix=salvage_fix(folder),
        )
    segments: list[LogSegment] = []
    try:
        for path, following in pairwise(paths):
            clean = state.find(int(path.stem))
            segments.append(_open_sealed(path, int(following.stem), clean))
        newest, recovery = _open_newest(paths[-1], point.flushed)
        segments.append(newest)
        end = LogPosition(newest.next_offset, newest.base_offset, newest.size)
        if newest.size and end != point.flushed:
            newest.sync()
        producers = recovered_producers(segments)
        start = max(segments[0].base_offset, load_start(folder, newest.next_offset))
        if end != point.flushed:
            point.settle(end, segments[0].base_offset)
    except BaseException:
        point.close()
        for segment in segments:
            segment.close()
        raise
    return PartitionLog(folder, tuple(segments), producers, config, start, state, point), recovery


def holds_log(folder: Path) -> bool:
    """Return whether a folder holds the log of a partition, whole or damaged."""
    return (folder / RECOVERY_POINT_FILE).exists() or any(folder.glob("*.log"))


def _segment_paths(folder: Path, state: CompactionState) -> list[Path]:
    """Return the segments of a folder, oldest first. The last one becomes the active one."""
    paths = sorted(path for path in folder.iterdir() if path.suffix == ".log")
    for path in paths:
        if not (path.stem.isdigit() and len(path.stem) == 20):
            raise CorruptError(
                f"{path} is not named like a segment (20 digits and .log)",
                fix=salvage_fix(folder),
            )
    end = state.segments[-1].end if state.segments else 0
    if not paths and not end:
        segment_path(folder, 0).with_suffix(".producers").write_bytes(ProducerStates().dump())
    if not paths or int(paths[-1].stem) < end:  # a compacted segment is never appended to
        paths.append(segment_path(folder, end))
    return paths


def valid_prefix(data: bytes | mmap.mmap, base_offset: int) -> _Scan:
    """Return how far `data` is a chain of valid batches with consecutive offsets."""
    scan = _Scan(0, base_offset, NO_TIMESTAMP, GrowingIndex())
    end = len(data)
    with memoryview(data) as view:
        while scan.size < end:
            try:
                batch = check_batch(view, scan.size, end)
            except InvalidBatchError as error:
                scan.reason = str(error)
                break
            if batch.base_offset != scan.next_offset or batch.leader_epoch != LEADER_EPOCH:
                scan.reason = f"offset {batch.base_offset} follows, not {scan.next_offset}"
                break
            scan.index.append(batch.base_offset - base_offset, scan.size, scan.max_timestamp)
            scan.max_timestamp = max(scan.max_timestamp, batch.max_timestamp)
            scan.next_offset = batch.last_offset + 1
            scan.size += batch.size
    return scan


def _open_newest(path: Path, flushed: LogPosition | None) -> tuple[LogSegment, Recovery]:
    """Open the active segment, or refuse it if the log ends before the `flushed` position."""
    size = path.stat().st_size if path.exists() else 0
    scan = _scan_newest(path, size)
    if flushed is not None:
        same = flushed.segment_base_offset == int(path.stem)
        if scan.next_offset < flushed.offset or (same and scan.size < flushed.position):
            raise _lost_end(path, size, scan, flushed)
    path.with_suffix(".index").unlink(missing_ok=True)
    kept = None
    if scan.size < size:
        kept = keep_tail(path, scan.size)
        os.truncate(path, scan.size)
    return LogSegment(
        path,
        size=scan.size,
        next_offset=scan.next_offset,
        max_timestamp=scan.max_timestamp,
        index=scan.index,
    ), Recovery(size - scan.size, scan.reason, kept)


def _lost_end(path: Path, size: int, scan: _Scan, flushed: LogPosition) -> CorruptError:
    last = segment_path(path.parent, flushed.segment_base_offset).name
    return CorruptError(
        f"{path}: damaged at byte {scan.size} of {size} ({scan.reason or 'it is cut'}), which is"
        f" offset {scan.next_offset}. The broker had flushed the log up to offset {flushed.offset}"
        f" (byte {flushed.position} of {last}), so this is no torn tail to truncate",
        fix=salvage_fix(path.parent),
    )


def _scan_newest(path: Path, size: int) -> _Scan:
    if not size:
        return valid_prefix(b"", int(path.stem))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return valid_prefix(data, int(path.stem))


def _open_sealed(path: Path, following: int, clean: CompactedSegment | None) -> LogSegment:
    size = path.stat().st_size
    base = int(path.stem)
    segment = LogSegment(path, size=size)
    gaps = clean is not None
    try:
        index = MappedIndex.open(segment.index_path, size)
        if index is not None:
            relative, position, earlier = index.last_entry
            scan = _walk_sealed(segment, position, base + relative, earlier, gaps=gaps)
            if scan.size != size:  # the index may be of an older file: scan the log itself
                index.close()
                index = None
        if index is None:
            scan = _walk_sealed(segment, 0, base, NO_TIMESTAMP, gaps=gaps)
            if scan.size == size and size:
                scan.index.write(segment.index_path)
                index = MappedIndex.open(segment.index_path, size)
        if clean is not None:
            _check_clean(path, scan, size, clean, following)
        elif scan.size != size or scan.next_offset != following or index is None:
            raise CorruptError(
                f"{path}: its batches end at offset {scan.next_offset}, byte {scan.size} of {size},"
                f" but the next segment starts at offset {following}",
                fix=salvage_fix(path.parent),
            )
    except BaseException:
        segment.close()
        raise
    segment.index = scan.index if index is None else index
    segment.next_offset, segment.max_timestamp = following, scan.max_timestamp
    segment.folder_synced, segment.gaps = True, gaps
    return segment


def _check_clean(
    path: Path, scan: _Scan, size: int, clean: CompactedSegment, following: int
) -> None:
    whole = scan.size == size == clean.size and scan.next_offset <= clean.end
    if not whole or clean.end != following:
        raise CorruptError(
            f"{path}: it was compacted to {clean.size} bytes that end before offset {clean.end};"
            f" now it is valid up to byte {scan.size} of {size}, and the next segment starts at"
            f" offset {following}",
            fix=salvage_fix(path.parent),
        )


def _walk_sealed(
    segment: LogSegment, position: int, offset: int, timestamp: int, *, gaps: bool
) -> _Scan:
    """Follow the batch headers from `position`. The records of a sealed segment are not read."""
    scan = _Scan(position, offset, timestamp, GrowingIndex())
    for batch in read_headers(segment.file.fd, position, segment.size):
        missing = batch.base_offset - scan.next_offset
        if missing < 0 or (missing and not gaps):
            break
        scan.index.append(batch.base_offset - segment.base_offset, scan.size, scan.max_timestamp)
        scan.max_timestamp = max(scan.max_timestamp, batch.max_timestamp)
        scan.next_offset = batch.last_offset + 1
        scan.size += batch.size
    return scan
