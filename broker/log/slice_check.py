"""Checks the CRCs of the record batches in a slice of a segment file.

Rules: it reads windows, never a whole slice. It only reads, so any thread may call it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from headworks._kafka.records.batch import (
    HEADER_SIZE,
    InvalidBatchError,
    check_batch,
    read_header,
)
from headworks._kafka.records.file_slice import FileSlice

READ_BYTES = 1 << 16


def damaged_batches_in(piece: FileSlice) -> Iterator[tuple[int, str]]:
    """Yield the position in the file, and the reason, of each damaged batch.

    The slice begins at a batch. It may end within one, which is not checked. Where no batch begins,
    or the file ends too early, it ends. Raises OSError.
    """
    position, end, wanted = piece.position, piece.position + piece.size, READ_BYTES
    while end - position >= HEADER_SIZE:
        data, done = os.pread(piece.descriptor.fd, min(wanted, end - position), position), 0
        while size := whole_batch_size(data, done):
            try:
                check_batch(data, done, done + size)
            except InvalidBatchError as error:
                yield position + done, str(error)
            done += size
        if not done:
            claimed = read_header(data).size if len(data) >= HEADER_SIZE else 0
            if wanted < claimed <= end - position:
                wanted = claimed  # one batch that is larger than the window
                continue
            if claimed <= end - position:
                yield position, "no whole batch starts here"
            return
        position, wanted = position + done, READ_BYTES


def whole_batch_size(data: bytes, position: int) -> int:
    """Return the size of the batch at `position`, 0 if it is not whole in `data`."""
    if len(data) - position < HEADER_SIZE:
        return 0
    size = read_header(data, position).size
    return size if HEADER_SIZE <= size <= len(data) - position else 0
