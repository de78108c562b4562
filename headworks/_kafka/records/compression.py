"""Compression codecs of record batches: their numbers, compression, and decompression.

Rules:

- The broker decompresses no batch on its way. Readers do (`headworks log dump`, the search by
  timestamp), and so do validation, log compaction, and topics with a `compression.type`.
- `limit` bounds the output, so that a small batch cannot fill the memory.
- Every client can read the compressed form. Java's client requires lz4 frames of independent blocks
  and the framing of Java's snappy stream.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import cramjam

from headworks._kafka.records.batch import Buffer, InvalidBatchError

DEFAULT_LIMIT_BYTES = 1 << 30
_FIRST_GUESS_BYTES = 1 << 16
_GROWTH_FACTOR = 8
_OUTPUT_IS_FULL = "failed to write whole buffer"
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_INT = struct.Struct(">i")


class Codec(IntEnum):
    """The numbers of the codecs in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class _TooLargeError(InvalidBatchError):
    """The decompressed bytes exceed a limit."""


_STREAMS = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def decompress(codec: int, data: Buffer, *, limit: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Return the decompressed bytes. InvalidBatchError for damage, or above `limit` bytes."""
    if codec == Codec.NONE:
        return bytes(data)
    try:
        known = Codec(codec)
    except ValueError:
        raise InvalidBatchError("compression", f"codec {codec} is unknown") from None
    try:
        if known == Codec.SNAPPY:
            return _unsnappy(bytes(data), limit)
        return _stream(known, bytes(data), limit)
    except (cramjam.DecompressionError, struct.error) as error:
        raise InvalidBatchError("compression", f"records do not decompress: {error}") from None


def decompress_into(codec: int, data: Buffer, out: memoryview) -> int | None:
    """Write the decompressed bytes to `out`; return how many, None if they do not fit into it."""
    if codec not in _STREAMS:
        try:
            found = decompress(codec, data, limit=len(out))
        except _TooLargeError:
            return None
        out[: len(found)] = found
        return len(found)
    try:
        return int(_STREAMS[Codec(codec)](data, out))
    except cramjam.DecompressionError as error:
        if _OUTPUT_IS_FULL in str(error):
            return None
        raise InvalidBatchError("compression", f"records do not decompress: {error}") from None


def compress(codec: int, data: bytes) -> bytes:
    """Return `data` compressed, in a form that every client can read."""
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == Codec.SNAPPY:
        return _snappy(data)
    if codec == Codec.LZ4:
        stream = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
        stream.compress(data)
        return bytes(stream.finish())
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def _stream(codec: Codec, data: bytes, limit: int) -> bytes:
    size = min(limit, max(_FIRST_GUESS_BYTES, len(data) * _GROWTH_FACTOR))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: _STREAMS[codec](data, out)])
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise
        if size == limit:
            raise _too_large(limit)
        size = min(limit, size * _GROWTH_FACTOR)


def _unsnappy(data: bytes, limit: int) -> bytes:
    """Decompress raw snappy, or Java's snappy stream around raw blocks."""
    if not data.startswith(_XERIAL):
        return _snappy_block(data, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (size,) = _INT.unpack_from(data, position)
        position += _INT.size
        if not 0 < size <= len(data) - position:
            raise InvalidBatchError("compression", f"a snappy block of {size} bytes is cut short")
        out += _snappy_block(data[position : position + size], limit - len(out))
        position += size
    return bytes(out)


def _snappy_block(block: bytes, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise _too_large(limit)
    out = bytearray(size)
    return bytes(memoryview(out)[: cramjam.snappy.decompress_raw_into(block, out)])


def _snappy(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT.pack(len(block)) + block
    return bytes(out)


def _too_large(limit: int) -> _TooLargeError:
    return _TooLargeError("compression", f"decompressed, the records exceed {limit} bytes")
