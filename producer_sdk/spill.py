"""A queue on disk for what does not fit in memory: bounded, in order, and there after a crash.

Rules:

- One file per process, locked while it lives; `leftover_spills` finds those of dead processes.
- A message is in the file from `put` until the broker has acknowledged it (`taken` moves the
  position), so a crash sends some again and loses none that were written.
- The file never holds more than `limit` bytes; it is emptied whenever all of it is delivered.
- What survives is what the page cache holds: a killed process loses nothing, a power cut may.

Layout: magic and position (8 bytes each), then records: length and CRC-32 of the body, the body.
A record that is cut or damaged ends the file: it was being written when the process died.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headworks.errors import CorruptError

__all__ = ["Spill", "Spilled", "leftover_spills"]

_MAGIC = b"HWSPILL1"
_HEADER = 16
_POSITION = 8
_SUFFIX = ".spill"
_RECORD = struct.Struct("<II")
_FIXED = struct.Struct("<qiiiH")
_LENGTHS = struct.Struct("<ii")
_NONE = -1
Headers = dict[str, bytes | str]


class Spilled(NamedTuple):
    """A message that waits on disk."""

    topic: str
    value: bytes
    key: bytes | None
    timestamp: int
    headers: Headers | None


class Spill:
    """The spill of this process, a new file in `folder`; or, by `path`, a dead one's."""

    def __init__(self, folder: Path, *, limit: int, path: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = path or folder / f"{uuid.uuid4()}{_SUFFIX}"
        self._limit = limit
        self._lock = threading.Lock()
        self._file = os.open(self.path, os.O_RDWR | (os.O_CREAT if path is None else 0), 0o600)
        try:
            # Others who look for leftovers may hold a new file for a moment.
            fcntl.flock(self._file, fcntl.LOCK_EX | (0 if path is None else fcntl.LOCK_NB))
            if path is None:
                os.pwrite(self._file, _MAGIC + _HEADER.to_bytes(8, "little"), 0)
            head = os.pread(self._file, _HEADER, 0)
            if len(head) < _HEADER or head[:8] != _MAGIC:
                raise CorruptError(f"{self.path} is not a spill of a producer", fix="remove it")
        except BaseException:
            os.close(self._file)
            raise
        self._position = int.from_bytes(head[8:], "little")
        self._read = self._position
        self.messages = 0  # put here by this process, and not delivered yet
        self._given = 0
        self._end = max(_HEADER, os.fstat(self._file).st_size)

    @property
    def empty(self) -> bool:
        """Whether everything that was put has been delivered."""
        return self._position >= self._end

    def put(self, message: Spilled) -> bool:
        """Append a message; False if the file would grow beyond its limit.

        OSError if the disk does not take it; then nothing of it is left.
        """
        body = _packed(message)
        record = _RECORD.pack(len(body), zlib.crc32(body)) + body
        with self._lock:
            if self._file < 0 or self._end + len(record) > self._limit:
                return False
            if os.pwrite(self._file, record, self._end) != len(record):
                os.ftruncate(self._file, self._end)
                return False
            self._end += len(record)
            self.messages += 1
        return True

    def take(self, most: int, most_bytes: int = 16 << 20) -> list[Spilled]:
        """The next messages in order, `most` at most; they stay until `taken` is called."""
        found: list[Spilled] = []
        with self._lock:
            stop = self._read + most_bytes
            while len(found) < most and self._read < min(self._end, stop):
                message, size = self._at(self._read)
                if message is None:
                    self._end = self._read
                    break
                found.append(message)
                self._read += size
            self._given = len(found)
        return found

    def taken(self) -> None:
        """What `take` gave has been delivered (or has failed for good)."""
        with self._lock:
            self._position = self._read
            self.messages, self._given = max(0, self.messages - self._given), 0
            if self._position >= self._end:
                os.ftruncate(self._file, _HEADER)
                self._position = self._read = self._end = _HEADER
            os.pwrite(self._file, self._position.to_bytes(8, "little"), _POSITION)

    def close(self) -> None:
        """Let go of the file; it is removed if it is empty."""
        with self._lock:
            if self._file < 0:
                return
            if self.empty:
                self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1

    def forget(self) -> None:
        """In a forked child: let go of the parent's file, which stays the parent's."""
        os.close(self._file)
        self._file = -1

    def _at(self, place: int) -> tuple[Spilled | None, int]:
        head = os.pread(self._file, _RECORD.size, place)
        if len(head) < _RECORD.size:
            return None, 0
        size, checksum = _RECORD.unpack(head)
        if not _FIXED.size <= size <= self._end - place:  # a hole reads as zeros
            return None, 0
        body = os.pread(self._file, size, place + _RECORD.size)
        if len(body) < size or zlib.crc32(body) != checksum:
            return None, 0
        return _unpacked(body), _RECORD.size + size


def leftover_spills(folder: Path) -> Iterator[Spill]:
    """The spills of dead processes in `folder`, opened and locked, one by one."""
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            yield Spill(folder, limit=0, path=path)
        except (BlockingIOError, FileNotFoundError):
            continue  # its process lives, or another has just emptied it
        except CorruptError:
            continue  # died before it wrote anything


def _packed(message: Spilled) -> bytes:
    topic, headers = message.topic.encode(), message.headers or {}
    parts = [
        _FIXED.pack(
            message.timestamp,
            len(topic),
            len(message.value),
            _NONE if message.key is None else len(message.key),
            len(headers),
        ),
        topic,
        message.value,
        message.key or b"",
    ]
    for name, value in headers.items():
        raw = value if isinstance(value, bytes) else value.encode()
        parts += [_LENGTHS.pack(len(name.encode()), len(raw)), name.encode(), raw]
    return b"".join(parts)


def _unpacked(body: bytes) -> Spilled:
    timestamp, topic_size, value_size, key_size, count = _FIXED.unpack_from(body)
    at = _FIXED.size
    topic, at = body[at : at + topic_size].decode(), at + topic_size
    value, at = body[at : at + value_size], at + value_size
    key = None if key_size == _NONE else body[at : at + key_size]
    at += max(0, key_size)
    headers: Headers = {}
    for _ in range(count):
        name_size, size = _LENGTHS.unpack_from(body, at)
        at += _LENGTHS.size
        name, at = body[at : at + name_size].decode(), at + name_size
        headers[name], at = body[at : at + size], at + size
    return Spilled(topic, value, key, timestamp, headers or None)
