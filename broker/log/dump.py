"""Read and verify segments on disk, of a stopped or a running broker.

Rules:

- Nothing is written.
- Damage ends the dump of its segment: bytes after it cannot be trusted to start a batch.
- Only segments that the folder lists as compacted may have gaps between their batches.
- A broker that was killed may have committed a swap of compacted segments and not finished it. The
  dump shows the log as the broker will find it: the new segment, and none that it replaces.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headworks._broker.log.compaction_state import load, staged_path
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._kafka.records import Batch, InvalidBatchError, Record, check_batch, iter_records
from headworks._kafka.records.batch import CONTROL, TRANSACTIONAL
from headworks._kafka.records.control import commits
from headworks.errors import UsageError


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A valid batch of a segment, with its records if requested."""

    segment: Path
    batch: Batch
    records: tuple[Record, ...] = ()
    marker: str = ""  # "commit", "abort", or "control" if it is a control batch

    @property
    def transactional(self) -> bool:
        """Whether its records belong to a transaction."""
        return bool(self.batch.attributes & TRANSACTIONAL) and not self.marker


@dataclass(frozen=True, slots=True)
class SegmentDamage:
    """Damage at a byte of a segment."""

    segment: Path
    position: int
    reason: str


def segments_of(path: Path) -> list[Path]:
    """Return the segments at `path`, a segment file or the folder of a partition.

    Raises UsageError if it is neither.
    """
    if path.is_dir():
        replaced = load(path).replaced
        found = [one for one in sorted(path.glob("*.log")) if not _has_base(one, replaced)]
    else:
        found = [path] if path.suffix == ".log" and path.exists() else []
    good = [one for one in found if one.stem.isdigit()]
    if not good:
        raise UsageError(
            f"{path} is neither a segment file nor a partition's folder",
            fix="give for example headworks-data/broker/logs/TOPIC-0",
        )
    return good


def _has_base(path: Path, bases: tuple[int, ...]) -> bool:
    return path.stem.isdigit() and int(path.stem) in bases


def dump_segment(path: Path, *, records: bool = False) -> Iterator[DumpedBatch | SegmentDamage]:
    """Yield every batch of a segment in order, and the first damage."""
    state = load(path.parent)
    clean = state.find(int(path.stem))
    staged = staged_path(path.parent, int(path.stem), state.generation)
    if clean is not None and staged.exists():
        path = staged
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise UsageError(
            f"{path} is gone: a running broker removed or compacted it meanwhile", fix="try again"
        ) from None
    if clean is not None and size != clean.size:
        yield SegmentDamage(
            path, min(size, clean.size), f"{size} bytes; compacted it had {clean.size}"
        )
    if not size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        expected, position = int(path.name.partition(".")[0]), 0
        with memoryview(data) as view:
            while position < len(view):
                try:
                    batch = check_batch(view, position)
                    _check_place(batch, expected, gaps=clean is not None)
                    found = records_of(view, batch) if records else ()
                    marker = marker_of(view, batch)
                except InvalidBatchError as error:
                    yield SegmentDamage(path, position, str(error))
                    return
                yield DumpedBatch(path, batch, found, marker)
                expected, position = batch.last_offset + 1, position + batch.size


def gaps(ends: list[tuple[Path, int]]) -> Iterator[SegmentDamage]:
    """Yield the segments that do not start where the segment before ends.

    `ends` are pairs of a segment and the offset after its last record.
    """
    for (path, last), (following, _) in pairwise(ends):
        clean = load(path.parent).find(int(path.stem))
        end = last if clean is None else clean.end
        if int(following.stem) != end:
            yield SegmentDamage(
                following, 0, f"starts at {int(following.stem)}; {path.name} ends at {end}"
            )


def records_of(view: bytes | memoryview, batch: Batch) -> tuple[Record, ...]:
    """Return the records of a batch of a buffer, or raise InvalidBatchError."""
    with memoryview(view)[batch.position : batch.position + batch.size] as own:
        return tuple(iter_records(own, batch._replace(position=0)))


def marker_of(view: bytes | memoryview, batch: Batch) -> str:
    """Return "commit" or "abort" for a marker of a buffer, "" for a batch of records.

    Raises InvalidBatchError for a marker whose record does not decode.
    """
    if not batch.attributes & CONTROL:
        return ""
    data = bytes(memoryview(view)[batch.position : batch.position + batch.size])
    return {True: "commit", False: "abort", None: "control"}[commits(data, batch)]


def _check_place(batch: Batch, expected: int, *, gaps: bool) -> None:
    in_place = batch.base_offset >= expected if gaps else batch.base_offset == expected
    if not in_place or batch.leader_epoch != LEADER_EPOCH:
        raise InvalidBatchError(
            "place",
            f"offset {batch.base_offset} (epoch {batch.leader_epoch}) where {expected} follows",
        )
