"""Messages that could not become rows: a table keeps them unchanged, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hadoop_loader._decode.topic_batch import DAY_MICROS, day_name
from hadoop_loader._fetch.kafka_log import FetchedMessage
from hadoop_loader._fetch.row_numbers import of_ints, order_rows
from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import BIGINT, BINARY, INT, STRING, TIMESTAMP, StructField

QUARANTINE_TABLE = "headworks_quarantine"
QUARANTINE_COLUMNS: tuple[StructField, ...] = (
    StructField("topic", STRING, "topic of the message"),
    StructField("reason", STRING, "why it is no row of the topic's table"),
    StructField("schema_id", BIGINT, "schema id in the message, null if it has none"),
    StructField("key", BINARY, "key of the message"),
    StructField("value", BINARY, "value of the message, as it was sent"),
    StructField("_partition", INT, "partition of the topic"),
    StructField("_offset", BIGINT, "offset in the partition"),
    StructField("_timestamp", TIMESTAMP, "timestamp of the record in the log"),
    StructField("_load", BIGINT, "number of the load that set it aside"),
    StructField("_topic_life", INT, "1, and one more when the topic was made again, or moved"),
)


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """A message, and the reason why it is no row."""

    topic: str
    message: FetchedMessage
    schema_id: int | None
    reason: str


def quarantine_table(
    bad: Sequence[QuarantinedMessage], load: int, life: int
) -> tuple[pa.Table, list[tuple[str, int, int]]]:
    """Return the rows in order of their records' days, and (day, first row, rows) of each day.

    `life`: of the topic.
    """
    rows = sorted(bad, key=_day)
    columns: list[list[Any]] = [
        [b.topic for b in rows],
        [b.reason for b in rows],
        [b.schema_id for b in rows],
        [b.message.key for b in rows],
        [b.message.value for b in rows],
        [b.message.partition for b in rows],
        [b.message.offset for b in rows],
        [b.message.timestamp * 1000 for b in rows],
        [load] * len(rows),
        [life] * len(rows),
    ]
    table = pa.Table.from_arrays(
        [
            pa.array(values, arrow_type(column.type))
            for values, column in zip(columns, QUARANTINE_COLUMNS, strict=True)
        ],
        names=[column.name for column in QUARANTINE_COLUMNS],
    )
    _, runs = order_rows(of_ints(b.message.timestamp * 1000 for b in rows), DAY_MICROS)
    return table, [(day_name(day), start, count) for day, start, count in runs]


def _day(bad: QuarantinedMessage) -> int:
    return bad.message.timestamp * 1000 // DAY_MICROS
