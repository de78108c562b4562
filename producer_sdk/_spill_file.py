"""One file of a spill: records in order, and the position up to which they are delivered.

The file holds a magic number and the position (8 bytes each), the cluster that the records are for
(PACKED_BYTES bytes), and then records. A record is the length and the CRC-32 of its body, and the
body. Files of an earlier release, which have another magic number, name no cluster.

Rules:

- The file is locked while its process lives.
- The page cache keeps the records: a killed process loses none, a power cut may lose some.
- A truncated or damaged record ends the file: the process died while it wrote that record.
- The caller holds the lock of the spill.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from pathlib import Path

from headworks._kafka.cluster_identity import PACKED_BYTES, ClusterIdentity, unpacked
from headworks.errors import CorruptError
from producer_sdk._outgoing_message import OutgoingMessage

_MAGIC = b"HWSPILL2"
_MAGIC_WITHOUT_CLUSTER = b"HWSPILL1"
_POSITION_AT = 8
_CLUSTER_AT = 16
HEADER_BYTES = _CLUSTER_AT + PACKED_BYTES
_RECORD_PREFIX = struct.Struct("<II")
_FIXED_FIELDS = struct.Struct("<qiiiH")
_HEADER_LENGTHS = struct.Struct("<ii")
_NULL_LENGTH = -1


class SpillFile:
    """A new file at `path` for messages to `cluster`, or (`found`) one that a dead process left.

    With `cluster` None, they are for the cluster of whichever process sends them. BlockingIOError
    if the process of a found file lives, FileNotFoundError if the file is gone, CorruptError if it
    is not a spill file.
    """

    def __init__(
        self, path: Path, *, cluster: ClusterIdentity | None = None, found: bool = False
    ) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | (0 if found else os.O_CREAT), 0o600)
        try:
            # A process that looks for leftovers may hold a new file for a moment.
            fcntl.flock(self._file, fcntl.LOCK_EX | (fcntl.LOCK_NB if found else 0))
            if not found:
                packed = bytes(PACKED_BYTES) if cluster is None else cluster.packed()
                os.pwrite(self._file, _MAGIC + HEADER_BYTES.to_bytes(8, "little") + packed, 0)
            head = os.pread(self._file, HEADER_BYTES, 0)
            first = _first_record(head)
            if first is None:
                raise CorruptError(f"{path} is not a spill of a producer", fix="remove it")
        except BaseException:
            os.close(self._file)
            raise
        # The offset of the first record, behind the header.
        self._first = first
        # The offsets of the first record that is not delivered, and of the next one to read.
        self._position = self._read = int.from_bytes(head[_POSITION_AT:_CLUSTER_AT], "little")
        # The end of the last whole record.
        self.size = max(first, os.fstat(self._file).st_size)
        # The cluster that the messages are for; None if the file names none.
        self.cluster = unpacked(head[_CLUSTER_AT:]) if first == HEADER_BYTES else None

    @property
    def delivered(self) -> bool:
        """Whether every record is delivered."""
        return self._position >= self.size

    def name_cluster(self, cluster: ClusterIdentity) -> None:
        """Name the cluster that the messages are for, unless an earlier release made the file."""
        if self._first == HEADER_BYTES:
            self.cluster = cluster
            with contextlib.suppress(OSError):  # the file keeps the addresses
                os.pwrite(self._file, cluster.packed(), _CLUSTER_AT)

    def append(self, record: bytes) -> bool:
        """Append a record; if the disk does not take it, return False or raise OSError.

        No part of the record remains then.
        """
        if os.pwrite(self._file, record, self.size) != len(record):
            os.ftruncate(self._file, self.size)
            return False
        self.size += len(record)
        return True

    def read(self, max_messages: int, max_bytes: int) -> list[OutgoingMessage]:
        """Return the next messages; they stay in the file until `acknowledge`."""
        found: list[OutgoingMessage] = []
        stop = self._read + max_bytes
        while len(found) < max_messages and self._read < min(self.size, stop):
            message, size = self._record_at(self._read)
            if message is None:
                self.size = self._read
                break
            found.append(message)
            self._read += size
        return found

    def acknowledge(self) -> None:
        """Mark the messages read so far as delivered, and truncate a file that has no others."""
        if self._position != self._read:
            self._position = self._read
            if self.delivered:
                os.ftruncate(self._file, self._first)
                self._position = self._read = self.size = self._first
            os.pwrite(self._file, self._position.to_bytes(8, "little"), _POSITION_AT)

    def close(self) -> None:
        """Release the file, and remove it if every record is delivered."""
        if self.delivered:
            self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Release the file as it is."""
        os.close(self._file)

    def _record_at(self, offset: int) -> tuple[OutgoingMessage | None, int]:
        head = os.pread(self._file, _RECORD_PREFIX.size, offset)
        if len(head) < _RECORD_PREFIX.size:
            return None, 0
        size, checksum = _RECORD_PREFIX.unpack(head)
        if not _FIXED_FIELDS.size <= size <= self.size - offset:  # a hole reads as zeros
            return None, 0
        body = os.pread(self._file, size, offset + _RECORD_PREFIX.size)
        if len(body) < size or zlib.crc32(body) != checksum:
            return None, 0
        return _unpack(body), _RECORD_PREFIX.size + size


def _first_record(head: bytes) -> int | None:
    """Return the offset of the first record; None if this is not the header of a spill file."""
    magic = head[:_POSITION_AT]
    if magic == _MAGIC and len(head) == HEADER_BYTES:
        return HEADER_BYTES
    if magic == _MAGIC_WITHOUT_CLUSTER and len(head) >= _CLUSTER_AT:
        return _CLUSTER_AT
    return None


def record_of(message: OutgoingMessage) -> bytes:
    """Return the record of a message."""
    body = _pack(message)
    return _RECORD_PREFIX.pack(len(body), zlib.crc32(body)) + body


def _pack(message: OutgoingMessage) -> bytes:
    topic, headers = message.topic.encode(), message.headers or {}
    parts = [
        _FIXED_FIELDS.pack(
            message.timestamp,
            len(topic),
            _NULL_LENGTH if message.value is None else len(message.value),
            _NULL_LENGTH if message.key is None else len(message.key),
            len(headers),
        ),
        topic,
        message.value or b"",
        message.key or b"",
    ]
    for name, value in headers.items():
        raw = value if isinstance(value, bytes) else value.encode()
        parts += [_HEADER_LENGTHS.pack(len(name.encode()), len(raw)), name.encode(), raw]
    return b"".join(parts)


def _unpack(body: bytes) -> OutgoingMessage:
    timestamp, topic_size, value_size, key_size, count = _FIXED_FIELDS.unpack_from(body)
    at = _FIXED_FIELDS.size
    topic, at = body[at : at + topic_size].decode(), at + topic_size
    value = None if value_size == _NULL_LENGTH else body[at : at + value_size]
    at += max(0, value_size)
    key = None if key_size == _NULL_LENGTH else body[at : at + key_size]
    at += max(0, key_size)
    headers: dict[str, bytes | str] = {}
    for _ in range(count):
        name_size, size = _HEADER_LENGTHS.unpack_from(body, at)
        at += _HEADER_LENGTHS.size
        name, at = body[at : at + name_size].decode(), at + name_size
        headers[name], at = body[at : at + size], at + size
    return OutgoingMessage(topic, value, key, timestamp, headers or None)
