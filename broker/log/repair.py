"""Rewrite a damaged log from its intact batches.

The new folder takes the place of the damaged one, which is renamed and stays whole. Every intact
batch keeps its offset. Lost offsets are gaps, which the list of compacted segments permits.

Rules:

- The damaged files are never changed. An intact segment is linked, or else copied.
- The new folder is complete and on disk before it takes the name.
- Offsets are never used again: the log continues after the last offset that was ever written.
- The caller keeps brokers away from the folder.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from headworks import _system_calls
from headworks._atomic_file import sync_folder, write_file
from headworks._broker.log.compaction_state import CompactedSegment, CompactionState, save
from headworks._broker.log.recovery_point import LogPosition, RecoveryPoint
from headworks._broker.log.salvage import IntactRun, Salvage, is_segment, salvage_folder
from headworks._broker.log.segment import segment_path
from headworks._broker.log.start_offset import load_start, save_start
from headworks.errors import CorruptError, UsageError

_STAGED = ".salvaged"
_DAMAGED = ".damaged"
_CHUNK_BYTES = 1 << 20


def repair(folder: Path) -> tuple[Salvage, Path]:
    """Replace a folder by its intact batches; return what was found and where the old one is."""
    staged = folder.with_name(f"{folder.name}{_STAGED}")
    shutil.rmtree(staged, ignore_errors=True)
    damaged = folder.with_name(f"{folder.name}{_DAMAGED}.{time.strftime('%Y%m%dT%H%M%S')}")
    if damaged.exists():
        raise UsageError(f"{damaged} exists already", fix="try again in a second")
    found = salvage_folder(folder)
    staged.mkdir()
    _write(found, folder, staged)
    sync_folder(staged)
    os.rename(folder, damaged)
    os.rename(staged, folder)
    sync_folder(folder.parent)
    return found, damaged


def recreate(folder: Path, first_offset: int) -> None:
    """Make an empty log that begins at `first_offset`, durably, in a folder that holds none."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(segment_path(folder, first_offset), b"")
    RecoveryPoint(folder).settle(LogPosition(first_offset, first_offset, 0), first_offset)
    sync_folder(folder.parent)


def _write(found: Salvage, folder: Path, staged: Path) -> None:
    """Write the segments, the list of those with gaps, the start offset, and the recovery point."""
    files = [list(runs) for _, runs in groupby(found.runs, key=lambda run: run.path)]
    bases: list[int] = []
    for number, runs in enumerate(files):
        named = int(runs[0].path.stem) if is_segment(runs[0].path) else runs[0].first
        free = not number or named >= files[number - 1][-1].end
        bases.append(named if free and named <= runs[0].first else runs[0].first)
    listed: list[CompactedSegment] = []
    for runs, base, following in zip(files, bases, [*bases[1:], found.end], strict=True):
        path = segment_path(staged, base)
        size = _write_segment(path, runs, link=base != bases[-1])  # the last may be appended to
        with suppress(FileNotFoundError):
            shutil.copy2(runs[0].path.with_suffix(".producers"), path.with_suffix(".producers"))
        if _has_gaps(runs, base, following) or found.state.find(base) is not None:
            listed.append(CompactedSegment(base, following, size))
    state = found.state
    save(staged, CompactionState(state.generation + 1, state.dirty, tuple(listed)))
    end = LogPosition(found.end, found.end, 0)
    if files and not (listed and listed[-1].base == bases[-1]):
        size = segment_path(staged, bases[-1]).stat().st_size
        end = LogPosition(found.end, bases[-1], size)
    else:
        write_file(segment_path(staged, found.end), b"")
    with suppress(CorruptError):  # records that clients had deleted are then served again
        if start := load_start(folder, found.end):
            save_start(staged, start)
    RecoveryPoint(staged).settle(end, bases[0] if bases else found.end)


def _has_gaps(runs: list[IntactRun], base: int, following: int) -> bool:
    ends = [base, *(run.end for run in runs)]
    return [*(run.first for run in runs), following] != ends


def _write_segment(path: Path, runs: list[IntactRun], *, link: bool) -> int:
    """Write the runs of one file as a segment, durably; return its size."""
    source = runs[0].path
    whole = len(runs) == 1 and runs[0].rebuilt is None and runs[0].size == source.stat().st_size
    if whole and link:
        with suppress(OSError):  # another file system, or one without links
            os.link(source, path)
            return runs[0].size
    with source.open("rb") as file, path.open("wb") as out:
        for run in runs:
            if run.rebuilt is not None:
                out.write(run.rebuilt)
                continue
            file.seek(run.position)
            left = run.size
            while left:
                chunk = file.read(min(left, _CHUNK_BYTES))
                out.write(chunk)
                left -= len(chunk)
        out.flush()
        _system_calls.sync(out.fileno())
    shutil.copystat(source, path)  # retention uses the last write
    return path.stat().st_size
