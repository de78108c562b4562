"""The checksums of a store's pages as they were when they were known to be good: its seal.

A whole check calls Python for every row. To compare pages with a seal costs a small part of that,
and notices the same damage. A page is good if it is as sealed, or as in the write-ahead log, whose
frames have checksums.

Rules:

- A seal proves health, never damage. If a page is neither, a whole check decides, and the store is
  sealed again. So any program may write to the store, and a seal may be removed at any time.
- Pages are compared as SQLite reads them, which is through the log. A seal that is taken before a
  checkpoint is therefore right before and after it.
- Only checked pages, and pages from the log, are sealed.
- The page of SQLite's locks, in a store above 1 GB, holds nothing and is in no log. Any content of
  it is good.
- A store that is too large for memory is read from its file, while a connection keeps its snapshot:
  a checkpoint of another process then copies no newer page. A page that it copies meanwhile may
  look changed, which costs a whole check.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import threading
from array import array
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from headworks._server.checked_sqlite.write_ahead_log import read_log

_MAGIC = b"HWPAGES1"
_HEAD = struct.Struct(">8sI")  # magic, bytes of a page
_CRC_BYTES = 4
_MAX_BYTES_IN_MEMORY = 512 << 20  # of a store
_READ_PAGES = 256  # at a time
_LOCKS_AT = 1 << 30  # the byte that SQLite locks; nothing is stored in its page
PageSums = array  # of unsigned numbers of 32 bits, one for each page


def seal_path(path: Path) -> Path:
    """Return the path of the seal of the store at `path`."""
    return path.with_name(f"{path.name}-checked")


def is_large(store_bytes: int) -> bool:
    """Return whether a store is too large for memory, and a check of its rows takes minutes."""
    return store_bytes > _MAX_BYTES_IN_MEMORY


def page_sums(
    db: sqlite3.Connection, path: Path, logged: Mapping[int, bytes]
) -> PageSums[int] | None:
    """Return the checksums of the pages in a connection's snapshot; None if they cannot be read.

    `logged` holds the pages of the write-ahead log, by number.
    """
    (count,), (size,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    if count <= 0:
        return None
    if not is_large(count * size) and hasattr(db, "serialize"):
        content = memoryview(db.serialize())
        return array("I", (crc32(content[at : at + size]) for at in range(0, len(content), size)))
    found = _file_sums(path, size, count)
    for number, page in logged.items():
        if number <= len(found):
            found[number - 1] = crc32(page)
    return found


def _file_sums(path: Path, size: int, count: int) -> PageSums[int]:
    """Return the checksums of the pages in a file; 0 for those that it lacks."""
    found = array("I", bytes(4 * count))
    with path.open("rb", buffering=0) as file:
        for first in range(0, count, _READ_PAGES):
            content = memoryview(file.read(size * min(_READ_PAGES, count - first)))
            for at in range(len(content) // size):
                found[first + at] = crc32(content[at * size : (at + 1) * size])
    return found


def is_as_sealed(path: Path, sums: PageSums[int], logged: Mapping[int, bytes]) -> bool:
    """Return whether each page is as sealed, or as in the log."""
    sealed = _read(path)
    if sealed is None:
        return False
    page_bytes, known = sealed
    in_log = {number: crc32(page) for number, page in logged.items()}
    return all(
        (index < len(known) and known[index] == found)
        or in_log.get(index + 1) == found
        or index == _LOCKS_AT // page_bytes
        for index, found in enumerate(sums)
    )


def seal(path: Path, sums: PageSums[int], page_bytes: int) -> None:
    """Seal a store with these pages, which were checked."""
    content = _HEAD.pack(_MAGIC, page_bytes) + sums.tobytes()
    new = seal_path(path).with_name(
        f"{path.name}-checked.{os.getpid()}-{threading.get_native_id()}"
    )
    try:
        new.write_bytes(content + crc32(content).to_bytes(_CRC_BYTES, "big"))
        os.replace(new, seal_path(path))
    except OSError:  # without a seal, the next check is a whole one
        for file in (new, seal_path(path)):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def seal_log(path: Path, *, verify: bool = False) -> None:
    """Add the committed pages of the log to the seal. The caller keeps other writers out.

    A new store, all of whose pages are in the log, gets its seal here. `verify`: see `read_log`.
    """
    log = read_log(path, verify=verify)
    if not log.page_count:
        return
    sealed = _read(path)
    if sealed is not None:
        page_bytes, sums = sealed
    elif log.pages.keys() >= {*range(1, log.page_count + 1)}:
        page_bytes, sums = len(log.pages[1]), array("I")
    else:
        return
    del sums[log.page_count :]
    sums.extend([0] * (log.page_count - len(sums)))
    for number, page in log.pages.items():
        if number <= len(sums):
            sums[number - 1] = crc32(page)
    seal(path, sums, page_bytes)


def _read(path: Path) -> tuple[int, PageSums[int]] | None:
    """Return the page size and the sums, or None without a seal that can be read."""
    try:
        content = seal_path(path).read_bytes()
    except OSError:
        return None
    body, stored = content[:-_CRC_BYTES], content[-_CRC_BYTES:]
    if len(body) < _HEAD.size or crc32(body) != int.from_bytes(stored, "big"):
        return None
    magic, page_bytes = _HEAD.unpack_from(body)
    if magic != _MAGIC or (len(body) - _HEAD.size) % array("I").itemsize:
        return None
    return page_bytes, array("I", body[_HEAD.size :])
