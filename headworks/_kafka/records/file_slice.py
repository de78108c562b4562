"""Record batches that stay in their file: the bytes of an open file to send."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class OpenFile(Protocol):
    """A file that stays open while a slice refers to it."""

    fd: int


class FileSlice(NamedTuple):
    """Bytes of an open file, to be sent by sendfile; size 0 if there is no data."""

    descriptor: OpenFile
    position: int
    size: int
