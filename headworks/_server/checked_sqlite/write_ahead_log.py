"""The write-ahead log of an SQLite file, read without SQLite.

SQLite reads it up to the first frame whose checksum is wrong, and says nothing of what follows.
After a power cut that is right: the rest was never flushed. After damage it loses transactions.

Format: "WAL-mode File Format" of the SQLite documentation, section "The WAL File Format".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC = 0x377F0682  # its last bit tells the byte order of the checksums
_MASK = 0xFFFF_FFFF


@dataclass(slots=True)
class WriteAheadLog:
    """The committed pages, and the frames of this log that SQLite will not read."""

    pages: dict[int, bytes] = field(default_factory=dict)  # by number, as last committed
    page_count: int = 0  # of the store after the last commit; 0: there is none
    damaged_at: int | None = None  # the byte of the first frame that is not intact
    lost_commits: int = 0  # transactions that end in it or behind it


def log_path(path: Path) -> Path:
    """Return the path of the write-ahead log of the store at `path`."""
    return path.with_name(f"{path.name}-wal")


def read_log(path: Path, *, verify: bool = True) -> WriteAheadLog:
    """Read the write-ahead log of the store at `path`, which may be missing.

    Without `verify`, the checksums of its frames are taken to be right: its writer asks.
    """
    found = WriteAheadLog()
    try:
        content = log_path(path).read_bytes()
    except FileNotFoundError:
        return found
    if len(content) < _HEADER_BYTES + _FRAME_HEADER_BYTES:
        return found
    magic, _, page_bytes, _, salt = struct.unpack_from(">IIII8s", content)
    order = ">" if magic & 1 else "<"
    sums = _checksum(order, (0, 0), content[:24])
    if magic & ~1 != _MAGIC or struct.pack(">II", *sums) != content[24:32]:
        found.damaged_at, found.lost_commits = 0, _commits_of_any(content)
        return found
    pending: dict[int, bytes] = {}
    size = _FRAME_HEADER_BYTES + page_bytes
    for at in range(_HEADER_BYTES, len(content) - size + 1, size):
        number, commits, frame_salt, first, second = struct.unpack_from(">II8sII", content, at)
        # An earlier log, whose frames lie behind this one's, differs in both halves of the salt.
        if frame_salt[:4] != salt[:4] and frame_salt[4:] != salt[4:]:
            if not _continues(content, at + size, size, salt):
                break
            frame_salt = b""
        if verify:
            sums = _checksum(order, sums, content[at : at + 8])
            sums = _checksum(order, sums, content[at + _FRAME_HEADER_BYTES : at + size])
        else:
            sums = (first, second)
        if found.damaged_at is None and (frame_salt, *sums) == (salt, first, second):
            pending[number] = content[at + _FRAME_HEADER_BYTES : at + size]
            if commits:
                found.pages |= pending
                found.page_count = commits
                pending = {}
            continue
        if found.damaged_at is None:
            found.damaged_at = at
        found.lost_commits += bool(commits)
    return found


def _continues(content: bytes, start: int, size: int, salt: bytes) -> bool:
    """Return whether a frame from `start` on is one of this log."""
    return any(content[at + 8 : at + 16] == salt for at in range(start, len(content), size))


def _commits_of_any(content: bytes) -> int:
    """Count the commits of a log whose header is damaged: frames with the first frame's salt."""
    salt = content[_HEADER_BYTES + 8 : _HEADER_BYTES + 16]
    places = [at for at in range(len(content) - 8) if content.startswith(salt, at)]
    return sum(content[at - 4 : at] != bytes(4) for at in places)


def _checksum(order: str, sums: tuple[int, int], content: bytes) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & _MASK
        second = (second + words[i + 1] + first) & _MASK
    return first, second
