"""The bytes that recovery truncated from a log, kept in files beside it.

Recovery cannot know whether they are a torn write or acknowledged messages behind a bad batch. The
file `<segment>-<byte>-<seconds since 1970>.cut` holds them as they were.

Rules:

- The copy is on disk before the segment is truncated.
- A partition keeps its newest `KEPT_FILES` files. They go with the topic, or an operator deletes
  them; the broker never reads them again.
- Bytes that are all zero, which a power cut leaves, are not kept.
- A full disk keeps no log from opening: the bytes are then truncated without a copy.
"""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path

from headworks import _system_calls
from headworks._atomic_file import sync_folder

SUFFIX = ".cut"
KEPT_FILES = 3
_CHUNK_BYTES = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def keep_tail(segment: Path, position: int) -> Path | None:
    """Copy a segment's bytes from `position` on; return the file, None if nothing was kept."""
    target = segment.with_name(f"{segment.stem}-{position}-{int(time.time())}{SUFFIX}")
    try:
        with segment.open("rb") as source:
            source.seek(position)
            if not any(any(chunk) for chunk in iter(lambda: source.read(_CHUNK_BYTES), b"")):
                return None
            source.seek(position)
            with target.open("wb") as kept:
                shutil.copyfileobj(source, kept, _CHUNK_BYTES)
                kept.flush()
                _system_calls.sync(kept.fileno())
        sync_folder(segment.parent)
    except OSError as error:
        target.unlink(missing_ok=True)
        if error.errno in _NO_ROOM:
            return None
        raise
    for old in kept_tails(segment.parent)[:-KEPT_FILES]:
        old.unlink(missing_ok=True)
    return target


def kept_tails(folder: Path) -> list[Path]:
    """Return the kept files of a partition, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
