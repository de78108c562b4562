"""Find every intact batch of a damaged log, whatever lies between them.

Rules:

- A batch counts as intact if its CRC is right. The CRC covers the records and most of the header.
- The other fields of the header (base offset, length, leader epoch, magic) follow from the batches
  around it. Where they are damaged and fit only one value, they are rebuilt, and the CRC decides.
- After damage, the length in the header says where the next batch starts. If no batch starts
  there, every later byte is tried. A candidate needs a right CRC and an offset that can follow.
- Nothing is written, and memory grows with the damage, not with the log.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from headworks._broker.log.compaction_state import CompactionState, load
from headworks._broker.log.dump import DumpedBatch, marker_of, records_of
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._broker.log.recovery_point import LogPosition, RecoveryPoint
from headworks._kafka.records.batch import (
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    Batch,
    InvalidBatchError,
    check_batch,
    patch_placement,
    read_header,
)
from headworks.errors import CorruptError

_BEFORE_CRC = LEADER_EPOCH.to_bytes(4) + bytes([MAGIC])  # of every batch
_BEFORE_CRC_AT = LENGTH_PREFIX  # its position in a batch
_ATTRIBUTES = 0x7F  # that a batch may have
_SEARCHED_BYTES = 1 << 16  # before a batch, for one with a damaged header


@dataclass(frozen=True, slots=True)
class IntactRun:
    """Adjacent intact batches of a file, with consecutive offsets."""

    path: Path
    position: int  # of the first batch, in the file
    size: int  # bytes
    first: int  # offset
    end: int  # the offset after the last record
    rebuilt: bytes | None = None  # the one batch of the run, if its header had to be rebuilt


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """Bytes of a file that hold no intact batch."""

    path: Path
    position: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class Salvage:
    """The intact runs and the damage in the folder of a partition."""

    runs: tuple[IntactRun, ...]  # by offset, none overlaps another
    damaged: tuple[DamagedStretch, ...]
    state: CompactionState
    state_damage: str  # why `compacted` cannot be read; empty if it can
    flushed: LogPosition | None  # the recovery point, None if it is missing or damaged
    start: int  # the first offset, by the recovery point or the names of the files
    end: int  # the offset after everything that was ever written, as far as anything tells

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """Ranges of offsets, first and next, that no intact batch and no compaction explains."""
        found, expected = [], self.start
        for run in (*self.runs, IntactRun(Path(), 0, 0, self.end, self.end)):
            if run.first > expected and not self._compacted(expected, run.first):
                found.append((expected, run.first))
            expected = max(expected, run.end)
        return tuple(found)

    def _compacted(self, first: int, end: int) -> bool:
        """Whether compaction may have removed these offsets."""
        if self.state_damage:
            return True
        inside = [one for one in self.state.segments if one.base <= first and end <= one.end]
        return any(
            not any(damage.path.stem == f"{one.base:020d}" for damage in self.damaged)
            for one in inside
        )


def salvage_folder(folder: Path) -> Salvage:
    """Search all segments in the folder of a partition."""
    try:
        state, state_damage = load(folder), ""
    except CorruptError as error:
        state, state_damage = CompactionState(), str(error)
    try:
        point = RecoveryPoint.load(folder)
    except CorruptError:
        point = RecoveryPoint(folder)
    flushed = point.flushed
    paths = sorted(folder.glob("*.log"), key=lambda path: (not is_segment(path), path.name))
    bases = [int(path.stem) for path in paths if is_segment(path)]
    ends = [flushed.offset if flushed else 0, *bases, *(one.end for one in state.segments)]
    found: list[IntactRun] = []
    damaged: list[DamagedStretch] = []
    foreign = {}
    for path, following in zip_longest(paths, bases[1:]):
        first = _foreign_base(path, int(path.stem) if is_segment(path) else -1, following)
        if first is not None:
            foreign[path] = first
            damaged.append(DamagedStretch(path, 0, 0, f"the file starts at offset {first}"))
    own = [int(path.stem) for path in paths if is_segment(path) and path not in foreign]
    for path in paths:
        base = int(path.stem) if is_segment(path) else -1
        gaps = bool(state_damage) or state.find(base) is not None
        base, following = foreign.get(path, base), None
        if path not in foreign:
            following = min((one for one in own if one > base), default=None)
        flushed_end = flushed.offset if flushed is not None and following is None else None
        for item in search_file(path, base, following, gaps=gaps, flushed_end=flushed_end):
            if isinstance(item, IntactRun):
                found.append(item)
            else:
                damaged.append(item)
    runs = _without_overlaps(found)
    end = max([*ends, *(run.end for run in runs)])
    starts = [*bases, *(run.first for run in runs)]
    start = min(starts, default=end) if point.first is None else point.first
    return Salvage(runs, tuple(damaged), state, state_damage, flushed, start, end)


def salvage_file(path: Path) -> Salvage:
    """Search one file, a segment or the bytes that a recovery cut."""
    base = int(path.stem) if is_segment(path) else 0
    items = list(search_file(path, base, None, gaps=True))
    runs = _without_overlaps([item for item in items if isinstance(item, IntactRun)])
    damaged = tuple(item for item in items if isinstance(item, DamagedStretch))
    start = runs[0].first if runs else 0
    return Salvage(runs, damaged, CompactionState(), "", None, start, runs[-1].end if runs else 0)


def read_run(run: IntactRun) -> Iterator[DumpedBatch]:
    """Yield the batches of a run with their records."""
    with run.path.open("rb") as file:
        if run.rebuilt is None:
            file.seek(run.position)
        at, end = run.position, run.position + run.size
        while at < end:
            data = run.rebuilt
            if data is None:
                head = file.read(HEADER_SIZE)
                data = head + file.read(read_header(head).size - HEADER_SIZE)
            batch = check_batch(data)
            placed, found = batch._replace(position=at), records_of(data, batch)
            yield DumpedBatch(run.path, placed, found, marker_of(data, batch))
            at += len(data)


def _foreign_base(path: Path, base: int, following: int | None) -> int | None:
    """Return the first offset of a file with another segment's batches, else None."""
    with path.open("rb") as file:
        data = file.read(HEADER_SIZE)
        if len(data) < HEADER_SIZE or read_header(data).magic != MAGIC:
            return None
        first = read_header(data)
        file.seek(max(0, first.size))
        data = file.read(HEADER_SIZE)
    if 0 <= base <= first.base_offset and (following is None or first.base_offset < following):
        return None
    chained = len(data) == HEADER_SIZE and read_header(data).base_offset == first.last_offset + 1
    return first.base_offset if chained and first.base_offset >= 0 else None


def _without_overlaps(found: list[IntactRun]) -> tuple[IntactRun, ...]:
    """Return runs by offset; where two hold an offset, the longer one, in its own file."""
    runs: list[IntactRun] = []
    for run in sorted(found, key=lambda one: (one.first, -one.end, not _at_home(one))):
        if not runs or run.first >= runs[-1].end:
            runs.append(run)
    return tuple(runs)


def is_segment(path: Path) -> bool:
    """Whether a file is named like a segment."""
    return path.suffix == ".log" and len(path.stem) == 20 and path.stem.isdigit()


def _at_home(run: IntactRun) -> bool:
    """Whether the name of the file allows these offsets."""
    return is_segment(run.path) and int(run.path.stem) <= run.first


def search_file(
    path: Path,
    expected: int,
    following: int | None,
    *,
    gaps: bool,
    flushed_end: int | None = None,
) -> Iterator[IntactRun | DamagedStretch]:
    """Yield the intact runs and the damage of a file of batches, in order of position.

    `expected` is the offset of its first record, and `following` the offset after its last one.
    With `gaps`, both are bounds only. Some batch ends before the offset `flushed_end`.
    """
    if not path.stat().st_size:
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        run: IntactRun | None = None
        search = _Search(data, view, following, gaps, flushed_end)
        position = skipped = 0
        while position < len(view):
            batch, reason = search.batch_at(position, expected, skipped)
            rebuilt, stop = None, position + batch.size if batch else len(view)
            if batch is None:
                later = search.next_batch(position, expected)
                stop = len(view) if later is None else later.position
                rebuilt = search.rebuilt(position, stop, expected, later)
            if run is not None and (batch is None or batch.base_offset != run.end):
                yield run
                run = None
            if batch is not None:
                first, begun = (
                    (batch.base_offset, position) if run is None else (run.first, run.position)
                )
                run = IntactRun(path, begun, stop - begun, first, batch.last_offset + 1)
                expected = run.end
            elif rebuilt is not None:
                start, content = rebuilt
                fixed = check_batch(content)
                expected = fixed.last_offset + 1
                size = start + HEADER_SIZE - position
                yield DamagedStretch(path, position, size, f"{reason}; a header was rebuilt")
                yield IntactRun(path, start, stop - start, fixed.base_offset, expected, content)
            else:
                yield DamagedStretch(path, position, stop - position, reason)
            skipped = 0 if batch is not None or rebuilt is not None else stop - position
            position = stop
        if run is not None:
            yield run


class _Search:
    """The bytes of one file."""

    def __init__(
        self,
        data: mmap.mmap,
        view: memoryview,
        following: int | None,
        gaps: bool,
        flushed_end: int | None,
    ) -> None:
        self._data = data
        self._view = view
        self._following = following
        self._gaps = gaps
        self._flushed_end = flushed_end

    def batch_at(self, position: int, expected: int, skipped: int) -> tuple[Batch | None, str]:
        """Return the batch that starts here, behind `skipped` damaged bytes, or why there is none.

        A wrong base offset does not change the CRC. A larger one than expected is believed if the
        next batch follows from it. At the end of the file, or before more damage, the lost offsets
        must fit into the skipped bytes.
        """
        try:
            batch = check_batch(self._view, position)
        except InvalidBatchError as error:
            return None, str(error)
        base, end = batch.base_offset, batch.last_offset + 1
        here = f"offset {base} (epoch {batch.leader_epoch}) where {expected} follows"
        if batch.leader_epoch != LEADER_EPOCH or base < expected:
            return None, here
        if self._following is not None and end > self._following:
            return None, here
        if base == expected or end in (self._following, self._flushed_end):
            return batch, ""
        try:
            following = check_batch(self._view, position + batch.size).base_offset
        except InvalidBatchError:
            return (batch, "") if self._gaps or base - expected <= skipped else (None, here)
        return (batch, "") if end == following or (self._gaps and end < following) else (None, here)

    def next_batch(self, position: int, expected: int) -> Batch | None:
        """Return the first batch after the damage at `position`."""
        if len(self._view) - position >= HEADER_SIZE:
            size = read_header(self._view, position).size
            if size >= HEADER_SIZE and position + size < len(self._view):
                found, _ = self.batch_at(position + size, expected, size)
                if found is not None:
                    return found
        at = position
        while (mark := self._data.find(_BEFORE_CRC, at + 1 + _BEFORE_CRC_AT)) >= 0:
            at = mark - _BEFORE_CRC_AT
            found, _ = self.batch_at(at, expected, at - position)
            if found is not None:
                return found
        return None

    def rebuilt(
        self, position: int, stop: int, expected: int, later: Batch | None
    ) -> tuple[int, bytes] | None:
        """Return a batch that ends at `stop`, with a rebuilt header, and where it starts.

        It starts at `position` or, if more than a header is damaged, somewhere behind.
        """
        if stop - position < HEADER_SIZE:
            return None
        following = self._following if later is None else later.base_offset
        if later is None and following is None:
            following = self._flushed_end
        own = read_header(self._view, position).base_offset
        for base in {own, expected} if self._gaps else (expected,):
            for end in {following, following if later else self._following}:
                if base >= expected and (data := self._with_header(position, stop, base, end)):
                    return position, data
        if following is None or self._gaps:
            return None
        for start in range(stop - HEADER_SIZE, max(position, stop - _SEARCHED_BYTES), -1):
            header = read_header(self._view, start)
            plausible = header.record_count == header.last_offset_delta + 1 > 0
            base = following - header.record_count
            if plausible and base >= expected and header.attributes & ~_ATTRIBUTES == 0:
                data = self._with_header(start, stop, base, following)
                if data is not None:
                    return start, data
        return None

    def _with_header(self, start: int, stop: int, base: int, following: int | None) -> bytes | None:
        """Return the batch in these bytes with this base offset; None if its CRC is wrong."""
        data = bytearray(self._view[start:stop])
        patch_placement(data, 0, base, stop - start - LENGTH_PREFIX, LEADER_EPOCH)
        data[_BEFORE_CRC_AT + 4] = MAGIC
        try:
            end = check_batch(data).last_offset + 1
        except InvalidBatchError:
            return None
        fits = following is None or (end <= following if self._gaps else end == following)
        return bytes(data) if fits else None
