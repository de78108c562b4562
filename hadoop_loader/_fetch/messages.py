"""Messages of a topic as columns: the positions of each key and value in one buffer.

Rules: a message becomes an object only when it is asked for by number, which only the quarantine
does. A selection of the messages shares the buffer of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from headworks._native import COMPILED, decoder
from headworks._wire import HEADER_SIZE, MAGIC

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NO_SCHEMA = -1
MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999


def clamp_timestamp(timestamp: int) -> int:
    """Return a record timestamp, which may be any number, cut to the years 1970 to 9999."""
    return min(max(timestamp, 0), MAX_TIMESTAMP_MS)


class FetchedMessage(NamedTuple):
    """A record as it is in the log; `timestamp` in ms, from 1970 to 9999."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class MessageColumns(Sequence[FetchedMessage]):
    """Records in the order of the log, by partition.

    `keys` and `values` have a row per message: where it begins and ends in `data`. A null begins
    at -1.
    """

    __slots__ = ("data", "keys", "offsets", "partitions", "timestamps", "values")

    def __init__(
        self,
        data: Bytes,
        partitions: npt.NDArray[np.int32],
        offsets: Numbers,
        timestamps: Numbers,
        keys: Numbers,
        values: Numbers,
    ) -> None:
        self.data = data  # the buffer that keys and values lie in
        self.partitions = partitions
        self.offsets = offsets
        self.timestamps = timestamps  # in ms
        self.keys = keys  # (begin, end) of each key
        self.values = values  # (begin, end) of each value

    @classmethod
    def of(cls, messages: Iterable[FetchedMessage]) -> MessageColumns:
        """Return the columns of messages that are objects."""
        rows = list(messages)
        spans = np.full((len(rows), 2, 2), -1, np.int64)
        pieces: list[bytes] = []
        at = 0
        for i, m in enumerate(rows):
            for j, piece in enumerate((m.key, m.value)):
                if piece is not None:
                    spans[i, j] = (at, at + len(piece))
                    at += len(piece)
                    pieces.append(piece)
        return cls(
            np.frombuffer(b"".join(pieces), np.uint8),
            np.array([m.partition for m in rows], np.int32),
            np.array([m.offset for m in rows], np.int64),
            np.array([m.timestamp for m in rows], np.int64),
            spans[:, 0],
            spans[:, 1],
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> FetchedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> MessageColumns: ...

    def __getitem__(self, index: int | slice) -> FetchedMessage | MessageColumns:
        if isinstance(index, slice):
            return self.where(index)
        return FetchedMessage(
            int(self.partitions[index]),
            int(self.offsets[index]),
            int(self.timestamps[index]),
            self._piece(self.keys[index]),
            self._piece(self.values[index]),
        )

    def where(self, chosen: Any) -> MessageColumns:
        """Return the messages that a mask, a slice, or numbers select."""
        return MessageColumns(
            self.data,
            self.partitions[chosen],
            self.offsets[chosen],
            self.timestamps[chosen],
            self.keys[chosen],
            self.values[chosen],
        )

    @property
    def sizes(self) -> Numbers:
        """Bytes of each value; 0 for a null."""
        sizes: Numbers = self.values[:, 1] - self.values[:, 0]
        return sizes

    def schema_ids(self) -> Numbers:
        """Return the schema id before each value; NO_SCHEMA if there is none."""
        if COMPILED:
            spans = np.ascontiguousarray(self.values)
            return np.frombuffer(decoder.find_ids(self.data, spans), np.int64)
        ids = np.full(len(self), NO_SCHEMA, np.int64)
        framed = np.flatnonzero(self.sizes >= HEADER_SIZE)
        starts = self.values[framed, 0]
        framed = framed[self.data[starts] == MAGIC]
        head = self.data[self.values[framed, 0][:, None] + np.arange(1, HEADER_SIZE)]
        ids[framed] = np.ascontiguousarray(head).view(">u4")[:, 0]
        return ids

    def _piece(self, span: Numbers) -> bytes | None:
        start, end = span
        return None if start < 0 else self.data[start:end].tobytes()
