"""A task's work on one message, without a broker and without a file.

A process does some things once: it imports modules late, fills the tables of Arrow's functions, and
prepares for its first Parquet file. Workers that are forked afterwards find all of that done.

Rule: it starts no thread, and leaves nothing behind but memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from hadoop_loader._storage.parquet_encodings import FileSettings, column_encodings
from hadoop_loader._storage.staging import write_parquet
from hadoop_loader._tasks.load_task import TopicLoader, TopicPlan, WriterSchema
from headworks._wire import prefix

_TOPIC = "rehearsal"
# Every value of it is a zero byte, and so is an empty text, an empty array, and the first branch.
_SCHEMA = {
    "type": "record",
    "name": "Rehearsal",
    "headworks": {"topic": _TOPIC, "event_time": "time"},
    "fields": [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "text", "type": "string"},
        {"name": "maybe", "type": ["null", "long"]},
        {"name": "texts", "type": {"type": "array", "items": "string"}},
        {"name": "by_name", "type": {"type": "map", "values": "int"}},
    ],
}


class _MemoryWriter:
    """Writes rows as Parquet to memory, and forgets them."""

    def write(
        self, topic: str, table: str, rows: pa.Table, days: Sequence[tuple[str, int, int]]
    ) -> None:
        del topic, table, days
        with pa.BufferOutputStream() as out:
            write_parquet(rows, out, FileSettings(rows))
        column_encodings(rows)  # as the first larger file needs it


def rehearse() -> None:
    """Decode one message into columns, and write them as Parquet."""
    load_into_memory(json.dumps(_SCHEMA), bytes(len(_SCHEMA["fields"])))


def load_into_memory(schema: str, datum: bytes) -> None:
    """Load one message of a schema, and forget the rows."""
    writer = WriterSchema(1, 1, schema)
    plan = TopicPlan(_TOPIC, _TOPIC, _TOPIC, writer, (writer,))
    loader = TopicLoader(plan, 1, _MemoryWriter())
    value = prefix(writer.schema_id) + datum
    loader.add(MessageColumns.of([FetchedMessage(0, 0, 0, None, value)]))
    loader.flush()
    assert loader.found.rows == 1
