"""Decoded messages of a topic on their way into files: metadata columns, partitions, order.

Rules:

- Arrow in, Arrow out.
- A row's partition is the day (or hour) of its event time. If the schema declares no event time, it
  is that of the record's timestamp.
- A row whose day is not in the years 1 to 9999 goes back to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hadoop_loader._decode.column_builders import ArrowArray
from hadoop_loader._fetch.messages import MessageColumns
from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import METADATA_COLUMNS, StructField

__all__ = ["AcceptedRows", "Micros", "TopicBatch", "day_name", "hour_name"]

Micros = npt.NDArray[np.int64]
DAY_MICROS = 86_400_000_000
HOUR_MICROS = DAY_MICROS // 24
_EPOCH = date(1970, 1, 1).toordinal()
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
    ) -> None:
        # Data and metadata columns.
        self._schema = pa.schema(
            [(c.name, arrow_type(c.type)) for c in (*columns, *METADATA_COLUMNS)]
        )
        self._event_time = event_time  # path of the event time; None: the record's timestamp
        self._load = load  # number of the load
        self._unit = HOUR_MICROS if hourly else DAY_MICROS  # microseconds in a partition
        # Name of a partition from its number.
        self._name: Callable[[int], str] = hour_name if hourly else day_name
        self._batches: list[pa.RecordBatch] = []  # rows since the last take
        self._partitions: list[Micros] = []  # number of each row's partition
        self.rows = 0  # since the last take

    def add(self, arrays: list[ArrowArray], messages: MessageColumns, version: int) -> AcceptedRows:
        """Add decoded columns and the messages that they came from."""
        n = len(messages)
        stamps = messages.timestamps * 1000
        metadata: list[ArrowArray] = [
            pa.array(messages.partitions),
            pa.array(messages.offsets),
            pa.array(stamps).cast(pa.timestamp("us", "UTC")),
            pa.array(np.full(n, version, np.int32)),
            pa.array(np.full(n, self._load, np.int64)),
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
            self._batches.append(batch)
            self._partitions.append(events // self._unit)
            self.rows += len(messages)
        return AcceptedRows(good, messages, events)

    def take(self) -> tuple[pa.Table, list[tuple[str, int, int]]]:
        """Return all rows by partition, and (partition, first row, rows) of each; then empty it."""
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        partitions = np.concatenate(self._partitions)
        self._batches, self._partitions, self.rows = [], [], 0
        if len(partitions) and (np.diff(partitions) < 0).any():
            order = np.argsort(partitions, kind="stable")
            # Combined before it is sorted: taking from many chunks is slower by a third.
            table, partitions = table.combine_chunks().take(order), partitions[order]
        found, starts, counts = np.unique(partitions, return_index=True, return_counts=True)
        return table, [
            (self._name(int(partition)), int(s), int(c))
            for partition, s, c in zip(found, starts, counts, strict=True)
        ]

    def _events(self, batch: pa.RecordBatch, stamps: Micros) -> Micros:
        if self._event_time is None:
            return stamps
        first, *rest = self._event_time
        column = batch.column(batch.schema.get_field_index(first))
        for name in rest:
            column = pc.struct_field(column, name)
        values: Micros = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return values
