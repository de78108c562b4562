"""Decoded messages of a topic on their way into files: metadata columns, partitions, order.

Rules:

- Arrow in, Arrow out.
- A row's partition is the day (or hour) of its event time. If the schema declares no event time, it
  is that of the record's timestamp.
- A row whose day is not in the years 1 to 9999 goes back to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hadoop_loader._decode.column_buffers import number_array, numbers_of
from hadoop_loader._decode.column_builders import ArrowArray
from hadoop_loader._fetch.messages import MessageColumns
from hadoop_loader._tables.arrow_types import arrow_schema
from hadoop_loader._tables.columns import FILE_COLUMNS, StructField

Micros = npt.NDArray[np.int64]
DAY_MICROS = 86_400_000_000
HOUR_MICROS = DAY_MICROS // 24
_EPOCH = date(1970, 1, 1).toordinal()
_MAX_NARROW = 1 << 16  # numbers that 16 bits hold
_MAX_CHUNKS = 256  # of a table; finding a row among more costs more than combining them
_CALENDAR_DAYS = (1 - _EPOCH, date(9999, 12, 31).toordinal() - _EPOCH)


def day_name(day: int) -> str:
    """Return days since 1970 as YYYY-MM-DD."""
    return date.fromordinal(_EPOCH + day).isoformat()


def hour_name(hour: int) -> str:
    """Return hours since 1970 as YYYY-MM-DD-HH."""
    return f"{day_name(hour // 24)}-{hour % 24:02d}"


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """The messages that became rows."""

    good: npt.NDArray[np.bool_]  # for each message that was added
    messages: MessageColumns  # the good ones
    events: Micros  # their event times


class TopicBatch:
    """Collects the rows of one topic until they are written."""

    def __init__(
        self,
        columns: tuple[StructField, ...],
        event_time: tuple[str, ...] | None,
        load: int,
        *,
        hourly: bool = False,
        field_ids: Mapping[str, int] | None = None,
        life: int = 1,
    ) -> None:
        # Data and metadata columns, with their Parquet field ids.
        self._schema = arrow_schema((*columns, *FILE_COLUMNS), field_ids or {})
        self._event_time = event_time  # path of the event time; None: the record's timestamp
        self._load = load  # number of the load
        self._life = life  # of the topic
        self._unit = HOUR_MICROS if hourly else DAY_MICROS  # microseconds in a partition
        # Name of a partition from its number.
        self._name: Callable[[int], str] = hour_name if hourly else day_name
        # Rows since the last take, by number of the partition, in the order that they came.
        self._pieces: dict[int, list[pa.RecordBatch]] = {}
        self.rows = 0  # since the last take

    def order(self, events: Micros) -> Micros | None:
        """Return the numbers of rows in the order of their partitions, None if they are in it.

        `events` are their event times. Rows of one partition keep their order. Rows that are added
        in this order need not be copied into it.
        """
        return _order(events // self._unit)

    def add(self, arrays: list[ArrowArray], messages: MessageColumns, version: int) -> AcceptedRows:
        """Add decoded columns and the messages that they came from."""
        n = len(messages)
        stamps = messages.timestamps * 1000
        metadata: list[ArrowArray] = [
            number_array(messages.partitions, pa.int32()),
            number_array(messages.offsets, pa.int64()),
            number_array(stamps, pa.timestamp("us", "UTC")),
            number_array(np.full(n, version, np.int32), pa.int32()),
            (number := number_array(np.full(n, self._load, np.int64), pa.int64())),
            number_array(np.full(n, self._life, np.int32), pa.int32()),
            number,
        ]
        batch = pa.RecordBatch.from_arrays([*arrays, *metadata], schema=self._schema)
        events = self._events(batch, stamps)
        days = events // DAY_MICROS
        good = (days >= _CALENDAR_DAYS[0]) & (days <= _CALENDAR_DAYS[1])
        if not good.all():
            batch = batch.filter(pa.array(good))
            events = events[good]
            messages = messages.where(good)
        if len(messages):
            self._add_sorted(batch, events // self._unit)
            self.rows += len(messages)
        return AcceptedRows(good, messages, events)

    def take(self) -> tuple[pa.Table, list[tuple[str, int, int]]]:
        """Return all rows by partition, and (partition, first row, rows) of each; then empty it."""
        pieces = [piece for partition in sorted(self._pieces) for piece in self._pieces[partition]]
        table = pa.Table.from_batches(pieces, schema=self._schema)
        if len(pieces) > _MAX_CHUNKS:
            table = table.combine_chunks()
        runs, start = [], 0
        for partition, found in sorted(self._pieces.items()):
            count = sum(piece.num_rows for piece in found)
            runs.append((self._name(partition), start, count))
            start += count
        self._pieces, self.rows = {}, 0
        return table, runs

    def _add_sorted(self, batch: pa.RecordBatch, partitions: Micros) -> None:
        """Add rows to their partitions; a batch is sorted while its rows are still in the cache."""
        order = _order(partitions)
        if order is not None:
            batch, partitions = batch.take(number_array(order, pa.int64())), partitions[order]
        found, starts, counts = np.unique(partitions, return_index=True, return_counts=True)
        for partition, start, count in zip(found, starts, counts, strict=True):
            piece = batch.slice(int(start), int(count))
            self._pieces.setdefault(int(partition), []).append(piece)

    def _events(self, batch: pa.RecordBatch, stamps: Micros) -> Micros:
        if self._event_time is None:
            return stamps
        first, *rest = self._event_time
        column = batch.column(batch.schema.get_field_index(first))
        for name in rest:
            column = pc.struct_field(column, name)
        return numbers_of(column)


def _order(partitions: Micros) -> Micros | None:
    """Return the numbers of rows in the order of their partitions, None if they are in it."""
    if (partitions[1:] >= partitions[:-1]).all():
        return None
    first, last = partitions.min(), partitions.max()
    # NumPy sorts narrow numbers by radix, in a fraction of the time.
    narrow = last - first < _MAX_NARROW
    keys = (partitions - first).astype(np.uint16) if narrow else partitions
    return np.argsort(keys, kind="stable")
