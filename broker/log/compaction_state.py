"""Which segments were compacted, and the atomic swap from old segments to compacted ones.

The file `compacted` in the folder of a partition lists the segments that may have gaps between
their batches. It holds the end offset and the size of each, so that lost bytes are still noticed.

A swap has three steps:

1. The compacted segment is written beside the old ones (`<base>.cleaned-<generation>`) and flushed.
2. The list is replaced. This commits the swap.
3. The compacted segment is renamed into place, and the segments that it replaces are deleted.

Rules:

- Before step 2 the old segments are unchanged. `adopt` then deletes the unfinished file.
- Step 3 can be repeated. `adopt` finishes it when the folder is opened.
- A partition whose list is damaged is not opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from crc32c import crc32c

from headworks._atomic_file import replace_file, sync_folder
from headworks._broker.log.aborted_index import SUFFIX
from headworks._broker.log.segment import salvage_fix, segment_path
from headworks.errors import CorruptError, HeadworksError

FILE = "compacted"
_STAGED = ".cleaned-"
_MAGIC = "compacted-1"


class UnfinishedSwapError(HeadworksError):
    """A swap may be committed on disk, but is not finished."""


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """A segment that may have gaps between its batches; the file has these names."""

    base: int  # its base offset
    end: int  # the offset at which the next segment starts
    size: int  # its bytes


@dataclass(frozen=True, slots=True)
class CompactionState:
    """Which part of a log was compacted; the file has these names."""

    generation: int = 0  # counts the swaps
    dirty: int = 0  # the first offset that was not compacted yet
    segments: tuple[CompactedSegment, ...] = ()  # those that may have gaps
    replaced: tuple[int, ...] = ()  # base offsets of the segments that the last swap merged

    def find(self, base: int) -> CompactedSegment | None:
        """Return the entry of the segment with this base offset."""
        return next((segment for segment in self.segments if segment.base == base), None)

    def with_group(
        self, bases: Iterable[int], new: CompactedSegment, oldest: int
    ) -> CompactionState:
        """Return the state after a swap of `bases` for `new`, without segments before `oldest`."""
        gone = set(bases)
        kept = [s for s in self.segments if s.base not in gone and s.base >= oldest]
        return CompactionState(
            self.generation + 1,
            self.dirty,
            tuple(sorted([*kept, new], key=lambda segment: segment.base)),
            tuple(sorted(gone - {new.base})),
        )


def staged_path(folder: Path, base: int, generation: int) -> Path:
    """Return where the compacted segment is written before the swap."""
    return segment_path(folder, base).with_suffix(f"{_STAGED}{generation}")


def load(folder: Path) -> CompactionState:
    """Read the list in `folder`, which may be missing. Raises CorruptError if it is damaged."""
    path = folder / FILE
    try:
        head, _, body = path.read_text(encoding="ascii").partition("\n")
    except FileNotFoundError:
        return CompactionState()
    except ValueError:
        head = body = ""
    if head != f"{_MAGIC} {crc32c(body.encode()):08x}":
        raise CorruptError(
            f"{path} is damaged at byte 0: without it, compacted records look like lost ones",
            fix=salvage_fix(folder),
        )
    content = json.loads(body)
    segments = tuple(CompactedSegment(**segment) for segment in content["segments"])
    return CompactionState(
        content["generation"], content["dirty"], segments, tuple(content["replaced"])
    )


def save(folder: Path, cleaned: CompactionState) -> None:
    """Replace the list durably."""
    body = json.dumps(asdict(cleaned))
    replace_file(folder / FILE, f"{_MAGIC} {crc32c(body.encode()):08x}\n{body}")


def swap(folder: Path, cleaned: CompactionState) -> None:
    """Commit and finish a swap whose new segment is on disk.

    OSError means that nothing has changed. UnfinishedSwapError means that the swap may be
    committed: the new segment must stay, and the open old segments can still be read.
    """
    try:
        sync_folder(folder)
        save(folder, cleaned)
        _finish(folder, cleaned)
    except OSError as error:
        if _is_listed(folder, cleaned) is False:
            raise
        raise UnfinishedSwapError(
            f"{folder}: the swap of compacted segments did not finish: {error}",
            fix="restart the broker: it finishes or undoes the swap when it opens the folder",
        ) from error


def _is_listed(folder: Path, cleaned: CompactionState) -> bool | None:
    """Return whether the list on disk has this generation; None if it cannot be read."""
    try:
        return load(folder).generation == cleaned.generation
    except (OSError, CorruptError):
        return None


def adopt(folder: Path) -> CompactionState:
    """Finish or undo a swap that a crash interrupted, and return the state."""
    cleaned = load(folder)
    _finish(folder, cleaned)
    for path in folder.glob(f"*{_STAGED}*"):
        path.unlink()
    return cleaned


def _finish(folder: Path, cleaned: CompactionState) -> None:
    """Rename the new segments into place, and delete those that they replace."""
    for segment in cleaned.segments:
        new = staged_path(folder, segment.base, cleaned.generation)
        if new.exists():
            path = segment_path(folder, segment.base)
            for suffix in (".index", SUFFIX):
                path.with_suffix(suffix).unlink(missing_ok=True)
            sync_folder(folder)  # an old index must never lie beside a new segment
            new.replace(path)
    for base in cleaned.replaced:
        for suffix in (".log", ".index", ".producers", SUFFIX):
            segment_path(folder, base).with_suffix(suffix).unlink(missing_ok=True)
    if cleaned.generation:
        sync_folder(folder)
