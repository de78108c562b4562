"""Compression codecs of record batches: their numbers, and how to undo them.

Rules:

- gzip needs nothing. snappy, lz4 and zstd are undone with pyarrow, which is imported only when
  such a batch is really decoded; without it `CodecUnavailableError` says what to install.
- The broker never decompresses on the way of a message. This module serves readers: the loader,
  `headworks log dump`, and the search by timestamp inside a batch.
- Output is bounded by `limit`, so that a small batch cannot fill the memory.
"""

from __future__ import annotations

import io
import zlib
from enum import IntEnum
from typing import Any

from broker.records.batch import Buffer, InvalidBatchError
from broker.records.varint import read_unsigned
from headworks.errors import UsageError

__all__ = ["DEFAULT_LIMIT", "Codec", "CodecUnavailableError", "decompress"]

DEFAULT_LIMIT = 1 << 30
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


class Codec(IntEnum):
    """Numbers of the codecs in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CodecUnavailableError(UsageError):
    """A batch is compressed with a codec whose library is not installed."""


def decompress(codec: int, data: Buffer, *, limit: int = DEFAULT_LIMIT) -> bytes:
    """The bytes that were compressed. InvalidBatchError for damage or more than `limit` bytes."""
    try:
        if codec == Codec.NONE:
            return bytes(data)
        if codec == Codec.GZIP:
            return _gunzip(data, limit)
        if codec == Codec.SNAPPY:
            return _unsnappy(bytes(data), limit)
        return _stream(Codec(codec).name.lower(), data, limit)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise InvalidBatchError("compression", f"records do not decompress: {error}") from None


def _gunzip(data: Buffer, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    out = stream.decompress(data, limit)
    if not stream.eof:
        raise InvalidBatchError("compression", f"gzip is cut short or exceeds {limit} bytes")
    return out


def _stream(name: str, data: Buffer, limit: int) -> bytes:
    arrow = _arrow(name)
    with arrow.CompressedInputStream(io.BytesIO(data), name) as stream:
        out: bytes = stream.read(limit + 1)
    return _bounded(out, limit)


def _unsnappy(data: bytes, limit: int) -> bytes:
    """Raw snappy, or the framing of Java's snappy stream around raw blocks."""
    if not data.startswith(_XERIAL):
        return _snappy_block(data, limit)
    out = bytearray()
    position = _XERIAL_HEADER
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        out += _snappy_block(data[position : position + size], limit - len(out))
        position += size
    return bytes(out)


def _snappy_block(block: bytes, limit: int) -> bytes:
    size, _ = read_unsigned(block, 0)
    if size > limit:
        raise InvalidBatchError("compression", f"records exceed {limit} bytes")
    out: bytes = _arrow("snappy").decompress(block, size, "snappy", asbytes=True)
    return out


def _bounded(out: bytes, limit: int) -> bytes:
    if len(out) > limit:
        raise InvalidBatchError("compression", f"records exceed {limit} bytes")
    return out


def _arrow(codec: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise CodecUnavailableError(
            f"records are compressed with {codec}, and nothing installed can undo that",
            fix="pip install pyarrow",
        ) from None
    return pyarrow
