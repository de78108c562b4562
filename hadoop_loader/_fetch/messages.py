"""Messages of a topic as columns: the positions of each key and value in one buffer.

Rules: a message becomes an object only when it is asked for by number, which only the quarantine
does. A selection of the messages shares the columns of all, and copies what is asked of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, overload

import pyarrow as pa
import pyarrow.compute as pc

from hadoop_loader._fetch.row_numbers import (
    Buffer,
    Numbers,
    int64s,
    memory_of,
    number_array,
    of_ints,
    rows_where,
    scalar,
)
from headworks._native import COMPILED, decoder
from headworks._wire import HEADER_SIZE, MAGIC

NO_SCHEMA = -1
MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999
_IN_ORDER = slice(None)


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


class RecordColumns(NamedTuple):
    """Records in the order of the log, by partition; a row each. A null begins at -1."""

    partitions: Any  # 32-bit numbers
    offsets: Numbers
    timestamps: Numbers  # in ms
    key_starts: Numbers
    key_ends: Numbers
    value_starts: Numbers
    value_ends: Numbers


class MessageColumns(Sequence[FetchedMessage]):
    """Chosen rows of records, whose keys and values are in `data`."""

    __slots__ = ("_all", "_chosen", "_made", "data")

    def __init__(
        self, data: Buffer, records: RecordColumns, chosen: Numbers | slice = _IN_ORDER
    ) -> None:
        self.data = data  # the buffer that keys and values lie in
        self._all = records
        self._chosen = chosen  # rows of the records: their numbers, or a slice
        self._made: dict[str, Any] = {}  # columns of the chosen rows, by name

    @classmethod
    def of(cls, messages: Iterable[FetchedMessage]) -> MessageColumns:
        """Return the columns of messages that are objects."""
        rows = list(messages)
        spans: tuple[array[int], ...] = tuple(array("q") for _ in range(4))
        data = bytearray()
        for m in rows:
            for j, piece in enumerate((m.key, m.value)):
                spans[2 * j].append(-1 if piece is None else len(data))
                data += piece or b""
                spans[2 * j + 1].append(-1 if piece is None else len(data))
        partitions = number_array(array("i", [m.partition for m in rows]), pa.int32())
        offsets, timestamps = of_ints(m.offset for m in rows), of_ints(m.timestamp for m in rows)
        columns = RecordColumns(partitions, offsets, timestamps, *map(int64s, spans))
        return cls(bytes(data), columns)

    def __len__(self) -> int:
        chosen, count = self._chosen, len(self._all.offsets)
        return len(range(count)[chosen]) if isinstance(chosen, slice) else len(chosen)

    @overload
    def __getitem__(self, index: int) -> FetchedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> MessageColumns: ...

    def __getitem__(self, index: int | slice) -> FetchedMessage | MessageColumns:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1 and isinstance(self._chosen, slice):
                first = self._chosen.start or 0
                chosen: Any = slice(first + start, first + max(start, stop))
            else:
                chosen = self._rows(of_ints(range(start, stop, step)))
            return MessageColumns(self.data, self._all, chosen)
        row = range(len(self))[index]
        chosen = self._chosen
        row = row + (chosen.start or 0) if isinstance(chosen, slice) else chosen[row].as_py()
        partition, offset, timestamp, *spans = (column[row].as_py() for column in self._all)
        key, value = (self._piece(*spans[:2]), self._piece(*spans[2:]))
        return FetchedMessage(partition, offset, timestamp, key, value)

    def where(self, chosen: Numbers) -> MessageColumns:
        """Return the messages that their numbers select, in that order."""
        return MessageColumns(self.data, self._all, self._rows(chosen))

    def without(self, numbers: Iterable[int]) -> MessageColumns:
        """Return the messages but those with some numbers."""
        gone = set(numbers)
        return self.where(of_ints(at for at in range(len(self)) if at not in gone))

    def with_schema(self, schema_id: int, ids: Numbers) -> MessageColumns:
        """Return the messages whose schema id, of `ids`, is this one."""
        return self.where(rows_where(pc.equal(ids, scalar(schema_id))))

    @property
    def partitions(self) -> Any:
        """The partition of each message."""
        return self._column("partitions")

    @property
    def offsets(self) -> Numbers:
        """The offset of each message."""
        return self._column("offsets")

    @property
    def timestamps(self) -> Numbers:
        """The timestamp of each message, in ms."""
        return self._column("timestamps")

    @property
    def starts(self) -> Numbers:
        """Where each value begins in `data`; -1 for a null."""
        return self._column("value_starts")

    @property
    def ends(self) -> Numbers:
        """Where each value ends in `data`; -1 for a null."""
        return self._column("value_ends")

    def schema_ids(self) -> Numbers:
        """Return the schema id before each value; NO_SCHEMA if there is none."""
        spans = memory_of(self.starts), memory_of(self.ends)
        if COMPILED:
            return int64s(decoder.find_ids(self.data, *spans))
        data, pairs = memoryview(self.data), zip(*(s.cast("q") for s in spans), strict=True)
        return of_ints(_schema_id(data[start:end] if start >= 0 else None) for start, end in pairs)

    def _column(self, name: str) -> Any:
        if name not in self._made:
            column, chosen = getattr(self._all, name), self._chosen
            if isinstance(chosen, slice):
                start = chosen.start or 0
                made = column if chosen == _IN_ORDER else column.slice(start, len(self))
            else:
                made = column.take(chosen)
            self._made[name] = made
        return self._made[name]

    def _rows(self, numbers: Numbers) -> Numbers:
        """Return the rows of all records that messages are, by their numbers here."""
        chosen = self._chosen
        if not isinstance(chosen, slice):
            return chosen.take(numbers)
        return pc.add(numbers, scalar(chosen.start)) if chosen.start else numbers

    def _piece(self, start: int, end: int) -> bytes | None:
        return None if start < 0 else bytes(memoryview(self.data)[start:end])


def _schema_id(value: Buffer | None) -> int:
    if value is None or len(value) < HEADER_SIZE or value[0] != MAGIC:
        return NO_SCHEMA
    return int.from_bytes(value[1:HEADER_SIZE], "big")
