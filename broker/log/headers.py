"""Read the headers of the batches in the file of a segment, in reads of about 4 KB.

Rules:

- Records are not read, and no CRC is verified.
- `find_header` finds what an intact segment holds, at half the cost of `read_headers`. It gives up
  at the first header that is not as expected, and its caller judges that one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from headworks._broker.log.index import INDEX_INTERVAL_BYTES
from headworks._kafka.records.batch import HEADER, HEADER_SIZE, LENGTH_PREFIX, MAGIC, Batch

_READ_AHEAD_BYTES = INDEX_INTERVAL_BYTES + HEADER_SIZE
_PLACE = struct.Struct(">qi4xb6xi")  # base offset, length, magic, and last offset delta
_COUNT = struct.Struct(">i")
_COUNT_AT = 57  # in a header
_LEAST_LENGTH = HEADER_SIZE - LENGTH_PREFIX
_new = tuple.__new__  # half the time of `Batch._make`


def read_headers(fd: int, position: int, end: int) -> Iterator[Batch]:
    """Yield the batch headers of a file between `position` and `end`.

    Stop before the first header that is incomplete or impossible. Offsets are not checked.
    """
    window, window_start = b"", position
    while end - position >= HEADER_SIZE:
        inside = position - window_start
        if inside + HEADER_SIZE > len(window):
            window = os.pread(fd, min(_READ_AHEAD_BYTES, end - position), position)
            window_start, inside = position, 0
            if len(window) < HEADER_SIZE:
                return
        batch = Batch._make((*HEADER.unpack_from(window, inside), position))
        size = LENGTH_PREFIX + batch.length
        if batch.magic != MAGIC or size < HEADER_SIZE or position + size > end:
            return
        yield batch
        position += size


def find_header(
    fd: int, position: int, end: int, offset: int, expected: int | None
) -> tuple[Batch | None, int, int | None]:
    """Skip the batches before `offset`, and return the header of the one that holds it.

    Each must begin at the offset that follows the one before it, the first at `expected` (None:
    anywhere). Otherwise the header is None. The position and the expected offset are those of the
    first batch that was not skipped.
    """
    window, window_start, limit = b"", position, end - HEADER_SIZE
    while position <= limit:
        inside = position - window_start
        if inside + HEADER_SIZE > len(window):
            window = os.pread(fd, min(_READ_AHEAD_BYTES, end - position), position)
            window_start, inside = position, 0
            if len(window) < HEADER_SIZE:
                break
        base, length, magic, delta = _PLACE.unpack_from(window, inside)
        stop = position + LENGTH_PREFIX + length
        if magic != MAGIC or length < _LEAST_LENGTH or stop > end:
            break
        if base != expected and expected is not None:
            break
        following = base + delta + 1
        if following > offset:
            if offset - base >= _COUNT.unpack_from(window, inside + _COUNT_AT)[0]:
                break
            found = _new(Batch, (*HEADER.unpack_from(window, inside), position))
            return found, position, expected
        position, expected = stop, following
    return None, position, expected
