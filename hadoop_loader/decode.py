"""Datums of one writer schema to Arrow columns of the reader schema; bad datums set aside.

Rules: knows schemas and bytes, not topics, files or Spark. One Decoder per (writer, reader) pair,
kept for the life of a task; `decode` costs bad datums nothing but themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from hadoop_loader.codegen import generate
from hadoop_loader.columns import table_columns
from hadoop_loader.slots import ArrowArray, Columns
from headworks.decoding.resolution import resolve
from headworks.schema import Schema
from headworks.wire import HEADER_SIZE

__all__ = ["Decoder"]


class Decoder:
    """Reads data of `writer` into the table columns of `reader`."""

    def __init__(self, writer: Schema, reader: Schema, *, start: int = HEADER_SIZE) -> None:
        self.columns = table_columns(reader)
        self._columns = Columns(self.columns)
        self._decode = generate(resolve(writer, reader), self._columns)
        self._start = start

    def decode(self, values: Sequence[bytes]) -> tuple[list[ArrowArray], list[tuple[int, str]]]:
        """The columns of the good values, and (index, reason) of the others.

        A value's datum begins after its schema id (`start` bytes).
        """
        errors: list[tuple[int, str]] = []
        self._decode(values, self._start, errors)
        return self._columns.take(), errors
