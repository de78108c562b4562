"""Which segments were compacted, and the change from old segments to new ones that no crash halves.

A file `compacted` in the partition's folder lists the segments that may have gaps between their
batches, each with the offset where it ends and its size, so that a lost piece is still noticed.

A change goes: the new segments are written beside the old ones (`<base>.cleaned-<generation>`) and
put on disk; the list is replaced, which is the one moment where new stands for old; the files are
moved into place. Whoever opens the folder finishes the last step or, if the list was not replaced,
removes what was being written.

Rules: everything before the list's replacement leaves the old segments as they are; everything
after it can be done twice. A list that is damaged refuses the partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from crc32c import crc32c

from headworks._atomic_file import replace_file, sync_folder
from headworks._broker.log.segment import segment_path
from headworks.errors import CorruptError, HeadworksError

__all__ = [
    "CompactedSegment",
    "CompactionState",
    "UnfinishedSwapError",
    "adopt",
    "load",
    "staged_path",
    "swap",
]

FILE = "compacted"
_STAGED = ".cleaned-"
_MAGIC = "compacted-1"


class UnfinishedSwapError(HeadworksError):
    """New segments may have taken the old ones' place on disk, but not all steps were done."""


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """A segment that may have gaps: its base, the offset after it, its bytes."""

    base: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class CompactionState:
    """What was compacted: up to `dirty`; `replaced` segments (by base) went into others."""

    generation: int = 0
    dirty: int = 0
    segments: tuple[CompactedSegment, ...] = ()
    replaced: tuple[int, ...] = ()

    def find(self, base: int) -> CompactedSegment | None:
        """The entry of the segment that starts at `base`."""
        return next((segment for segment in self.segments if segment.base == base), None)

    def with_group(
        self, bases: Iterable[int], new: CompactedSegment, oldest: int
    ) -> CompactionState:
        """As it will be when the segments of `bases` have become `new`; none before `oldest`."""
        gone = set(bases)
        kept = [s for s in self.segments if s.base not in gone and s.base >= oldest]
        return CompactionState(
            self.generation + 1,
            self.dirty,
            tuple(sorted([*kept, new], key=lambda segment: segment.base)),
            tuple(sorted(gone - {new.base})),
        )


def staged_path(folder: Path, base: int, generation: int) -> Path:
    """Where the segment that starts at `base` is written before it takes its place."""
    return segment_path(folder, base).with_suffix(f"{_STAGED}{generation}")


def load(folder: Path) -> CompactionState:
    """What the list in `folder` says; nothing compacted if there is none. CorruptError."""
    path = folder / FILE
    try:
        head, _, body = path.read_text(encoding="ascii").partition("\n")
    except FileNotFoundError:
        return CompactionState()
    except ValueError:
        head = body = ""
    if head != f"{_MAGIC} {crc32c(body.encode()):08x}":
        raise CorruptError(
            f"{path} is damaged: without it nobody can tell what was compacted from what is lost",
            fix="restore the file from a copy of the folder",
        )
    content = json.loads(body)
    segments = tuple(CompactedSegment(**segment) for segment in content["segments"])
    return CompactionState(
        content["generation"], content["dirty"], segments, tuple(content["replaced"])
    )


def save(folder: Path, cleaned: CompactionState) -> None:
    """Replace the list; it is on disk when this returns."""
    body = json.dumps(asdict(cleaned))
    replace_file(folder / FILE, f"{_MAGIC} {crc32c(body.encode()):08x}\n{body}")


def swap(folder: Path, cleaned: CompactionState) -> None:
    """Let what is staged, and on disk, take its place.

    OSError if nothing has happened; UnfinishedSwapError if it may have, but not wholly: then what
    is staged must stay, and the old segments can be served as long as they are open.
    """
    try:
        sync_folder(folder)
        save(folder, cleaned)
        _finish(folder, cleaned)
    except OSError as error:
        if _is_listed(folder, cleaned) is False:
            raise
        raise UnfinishedSwapError(
            f"{folder}: compacted segments did not take their place: {error}",
            fix="restart the broker: it finishes or undoes that when it opens the folder",
        ) from error


def _is_listed(folder: Path, cleaned: CompactionState) -> bool | None:
    """Whether the list is this one; None if that cannot be read now, so that it may be."""
    try:
        return load(folder).generation == cleaned.generation
    except (OSError, CorruptError):
        return None


def adopt(folder: Path) -> CompactionState:
    """Finish, or undo, what a crash interrupted; returns what is compacted."""
    cleaned = load(folder)
    _finish(folder, cleaned)
    for path in folder.glob(f"*{_STAGED}*"):
        path.unlink()
    return cleaned


def _finish(folder: Path, cleaned: CompactionState) -> None:
    """Move staged segments into place and remove those that went into them."""
    for segment in cleaned.segments:
        new = staged_path(folder, segment.base, cleaned.generation)
        if new.exists():
            path = segment_path(folder, segment.base)
            path.with_suffix(".index").unlink(missing_ok=True)
            sync_folder(folder)  # an old index must never stand beside a new segment
            new.replace(path)
    for base in cleaned.replaced:
        for suffix in (".log", ".index", ".producers"):
            segment_path(folder, base).with_suffix(suffix).unlink(missing_ok=True)
    if cleaned.generation:
        sync_folder(folder)
