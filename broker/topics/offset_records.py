"""The records of `__consumer_offsets`: a committed offset as a key and a value, in Kafka's format.

Rules: it only encodes and decodes, and reads no store. The formats are OffsetCommitKey 1 and
OffsetCommitValue 3 of Apache Kafka: two bytes of version, numbers big-endian, and strings after two
bytes of length. A null value says that the offset was deleted.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headworks._broker.coordination import CommittedOffset
from headworks._kafka.records import Record

_KEY_VERSION, _VALUE_VERSION = 1, 3
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_VALUE_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch


class OffsetKey(NamedTuple):
    """The place of a committed offset."""

    group: str
    topic: str
    partition: int


def encode_offset(key: OffsetKey, offset: CommittedOffset | None, now_ms: int) -> Record:
    """Return the record of an offset that was committed at `now_ms`; None: it was deleted.

    The broker's limits keep every string far below the 32,767 bytes of the format.
    """
    coded = b"".join(
        (_SHORT.pack(_KEY_VERSION), _text(key.group), _text(key.topic), _INT.pack(key.partition))
    )
    if offset is None:
        return Record(0, now_ms, coded, None, ())
    head = _VALUE_HEAD.pack(_VALUE_VERSION, offset.offset, offset.leader_epoch)
    value = head + _text(offset.metadata) + struct.pack(">q", now_ms)
    return Record(0, now_ms, coded, value, ())


def decode_key(data: bytes) -> OffsetKey:
    """Return the key of a record. Raises ValueError, or struct.error, for another format."""
    if _SHORT.unpack_from(data)[0] != _KEY_VERSION:
        raise ValueError("the key is not an OffsetCommitKey of version 1")
    group, position = _read_text(data, 2)
    topic, position = _read_text(data, position)
    return OffsetKey(group, topic, _INT.unpack_from(data, position)[0])


def decode_value(data: bytes) -> CommittedOffset:
    """Return the value of a record. Raises ValueError, or struct.error, for another format."""
    version, offset, leader_epoch = _VALUE_HEAD.unpack_from(data)
    if version != _VALUE_VERSION:
        raise ValueError("the value is not an OffsetCommitValue of version 3")
    return CommittedOffset(offset, leader_epoch, _read_text(data, _VALUE_HEAD.size)[0])


def _text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    start = position + _SHORT.size
    end = start + _SHORT.unpack_from(data, position)[0]
    return data[start:end].decode(), end
