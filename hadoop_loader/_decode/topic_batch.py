"""Decoded messages of a topic on their way into files: metadata columns, partitions, order.

Rules:

- Arrow in, Arrow out.
- A row's partition is the day (or hour) of its event time. If the schema declares no event time, it
  is that of the record's timestamp.
- A row whose day is not in the years 1 to 9999 goes back to the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from hadoop_loader._decode.column_builders import ArrowArray
from hadoop_loader._fetch.messages import MessageColumns
from hadoop_loader._fetch.row_numbers import (
    Numbers,
    as_int64s,
    number_array,
    order_rows,
    rows_where,
    scalar,
)
from hadoop_loader._tables.arrow_types import arrow_schema
from hadoop_loader._tables.columns import FILE_COLUMNS, StructField

Micros = Numbers
DAY_MICROS = 86_400_000_000
HOUR_MICROS = DAY_MICROS // 24
_EPOCH = date(1970, 1, 1).toordinal()
_MAX_CHUNKS = 256  # of a table; finding a row among more costs more than combining them
# The first microsecond of the year 1, and the one after the last of the year 9999.
_FIRST_MICROS = (1 - _EPOCH) * DAY_MICROS
_END_MICROS = (date(9999, 12, 31).toordinal() + 1 - _EPOCH) * DAY_MICROS
_INT, _LONG = struct.Struct("=i"), struct.Struct("=q")


def day_name(day: int) -> str:
    """Return days since 1970 as YYYY-MM-DD."""
    return date.fromordinal(_EPOCH + day).isoformat()


def hour_name(hour: int) -> str:
    """Return hours since 1970 as YYYY-MM-DD-HH."""
    return f"{day_name(hour // 24)}-{hour % 24:02d}"


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """The messages that became rows."""

    bad: Sequence[int]  # the numbers of the other messages that were added
    messages: MessageColumns  # those that became rows
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
        return order_rows(events, self._unit)[0]

    def add(self, arrays: list[ArrowArray], messages: MessageColumns, version: int) -> AcceptedRows:
        """Add decoded columns and the messages that they came from."""
        n = len(messages)
        stamps = pc.multiply(messages.timestamps, scalar(1000))
        metadata: list[ArrowArray] = [
            messages.partitions,
            messages.offsets,
            stamps.view(pa.timestamp("us", "UTC")),
            number_array(_INT.pack(version) * n, pa.int32()),
            (number := number_array(_LONG.pack(self._load) * n, pa.int64())),
            number_array(_INT.pack(self._life) * n, pa.int32()),
            number,
        ]
        batch = pa.RecordBatch.from_arrays([*arrays, *metadata], schema=self._schema)
        events = self._events(batch, stamps)
        bad: Sequence[int] = ()
        if not _in_calendar(events):
            good = pc.and_(
                pc.greater_equal(events, scalar(_FIRST_MICROS)),
                pc.less(events, scalar(_END_MICROS)),
            )
            bad = rows_where(pc.invert(good)).to_pylist()
            batch, events, messages = batch.filter(good), events.filter(good), messages.without(bad)
        if len(messages):
            self._add_sorted(batch, events)
            self.rows += len(messages)
        return AcceptedRows(bad, messages, events)

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

    def _add_sorted(self, batch: pa.RecordBatch, events: Micros) -> None:
        """Add rows to their partitions; a batch is sorted while its rows are still in the cache."""
        order, runs = order_rows(events, self._unit)
        if order is not None:
            batch = batch.take(order)
        for partition, start, count in runs:
            self._pieces.setdefault(partition, []).append(batch.slice(start, count))

    def _events(self, batch: pa.RecordBatch, stamps: Micros) -> Micros:
        if self._event_time is None:
            return stamps
        first, *rest = self._event_time
        column = batch.column(batch.schema.get_field_index(first))
        for name in rest:
            column = pc.struct_field(column, name)
        return as_int64s(column)


def _in_calendar(events: Micros) -> bool:
    """Return whether all times are in the years 1 to 9999."""
    ends = pc.min_max(events)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is None or (least >= _FIRST_MICROS and most < _END_MICROS)
