"""Event times of messages that are not decoded yet, so that rows are decoded in the files' order.

Rules:

- It spares a copy of all columns and decides nothing. The partition of a row comes from its decoded
  event time (`topic_batch`), so a bad datum may get any time here.
- Nothing behind the event time is read.
- It needs the C extension: see `headworks._native`.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc

from hadoop_loader._decode.column_program import ColumnProgram
from hadoop_loader._fetch.messages import MessageColumns
from hadoop_loader._fetch.row_numbers import Numbers, scalar
from hadoop_loader._tables.columns import table_columns
from headworks._decoding.resolution import Action, LeafAction, RecordAction, resolve
from headworks._wire import HEADER_SIZE
from headworks.schema import Schema
from headworks.schema._model import Record


class EventTimes:
    """Reads event times with the program of one schema pair."""

    def __init__(self, program: ColumnProgram, start: int) -> None:
        self._program = program
        self._start = start  # where a datum begins in a value

    @classmethod
    def of(
        cls, writer: Schema, reader: Schema, path: tuple[str, ...], start: int = HEADER_SIZE
    ) -> EventTimes | None:
        """Return the reader of the times at a path of `reader`; None if `writer` has no such field.

        A datum begins after the schema id (`start` bytes) of its value.
        """
        if not isinstance(reader, Record):
            return None
        only_time = _with_one_field(reader, path)
        action = _without_what_follows(resolve(writer, only_time, expand=True))
        if not _reads_leaf(action):
            return None
        return cls(ColumnProgram(action, table_columns(only_time)), start)

    def read(self, messages: MessageColumns) -> Numbers:
        """Return the event times in microseconds; those of bad datums may be any."""
        starts = pc.add(messages.starts, scalar(self._start))
        return self._program.peek(messages.data, starts, messages.ends)


def _with_one_field(record: Record, path: tuple[str, ...]) -> Record:
    """Return a record with nothing but the field at a path, which leads through records."""
    field = next(each for each in record.fields if each.name == path[0])
    if len(path) > 1:
        assert isinstance(field.type, Record)
        field = replace(field, type=_with_one_field(field.type, path[1:]))
    return replace(record, fields=(field,))


def _without_what_follows(action: Action) -> Action:
    """Return the action without the steps after the one that fills a field."""
    if not isinstance(action, RecordAction):
        return action
    at = next(i for i, (field, _) in enumerate(action.steps) if field is not None)
    field, step = action.steps[at]
    return replace(action, steps=(*action.steps[:at], (field, _without_what_follows(step))))


def _reads_leaf(action: Action) -> bool:
    """Return whether the last step of the last step of an action reads a value."""
    while isinstance(action, RecordAction):
        action = action.steps[-1][1]
    return isinstance(action, LeafAction)
