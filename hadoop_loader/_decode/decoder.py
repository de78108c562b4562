"""Datums of one writer schema to Arrow columns of the reader schema; bad datums are set aside.

Rules:

- It knows schemas and bytes, not topics, files, or Spark.
- There is one ColumnDecoder per (writer, reader) pair, for the life of a task.
- The compiled decoder reads everything if it was built; otherwise the generated Python does, with
  the same rows.
- A bad datum costs nothing but itself. If the schemas are the cause, its reason comes from their
  resolution, and otherwise from the generated Python. So it reads the same whichever found it.
- Each of them is made when it is first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from hadoop_loader._decode.column_builders import ArrowArray, ColumnBuilders
from hadoop_loader._decode.generated_decoder import DatumErrors, Decode, generate
from hadoop_loader._fetch.row_numbers import Buffer, Numbers, of_ints, scalar
from hadoop_loader._tables.columns import StructField, table_columns
from headworks._decoding.resolution import resolve
from headworks._native import COMPILED
from headworks._wire import HEADER_SIZE
from headworks.errors import SchemaError
from headworks.schema import Schema

if TYPE_CHECKING:
    from hadoop_loader._decode.column_program import ColumnProgram

_NO_REASON = "the datum is nested too deeply"
_UNKNOWN_REASON = "the bytes are no datum of the schema, which is nested too deeply to say more"


class ColumnDecoder:
    """Reads data of `writer` into the table columns of `reader`."""

    def __init__(
        self,
        writer: Schema,
        reader: Schema,
        *,
        columns: tuple[StructField, ...] | None = None,
        start: int = HEADER_SIZE,
        compiled: bool = COMPILED,
    ) -> None:
        self.columns = table_columns(reader) if columns is None else columns
        self._read = resolve(writer, reader, expand=True)  # the resolved action of the schema pair
        self._start = start  # where a datum begins in a value
        self._compiled = compiled  # whether the program decodes
        # Generated Python, and where it appends; made when first needed.
        self._generated: tuple[Decode, ColumnBuilders] | None = None
        self._program: ColumnProgram | None = None  # made when first needed

    def decode(self, values: Sequence[bytes]) -> tuple[list[ArrowArray], DatumErrors]:
        """Return the columns of the good values, and (index, reason) of the others.

        Runs generated Python. A datum begins after the schema id (`start` bytes) of its value.
        """
        if self._generated is None:
            columns = ColumnBuilders(self.columns)
            self._generated = generate(self._read, columns), columns
        decode, columns = self._generated
        errors: DatumErrors = []
        decode(values, self._start, errors)
        return columns.take(), errors

    def decode_spans(
        self, data: Buffer, starts: Numbers, ends: Numbers
    ) -> tuple[list[ArrowArray], DatumErrors]:
        """Do the same for the values at `starts`..`ends` of `data`, compiled if that was built."""
        if not self._compiled:
            return self.decode(_pieces(data, starts, ends))
        if self._program is None:
            from hadoop_loader._decode.column_program import ColumnProgram

            self._program = ColumnProgram(self._read, self.columns)
        first = pc.add(starts, scalar(self._start)) if self._start else starts
        arrays, bad = self._program.decode(data, first, ends)
        unknown = [at for at, reason in bad if reason is None]
        found: dict[int, str] = {}
        if unknown:
            chosen = of_ints(unknown)
            reasons = self._reasons(_pieces(data, starts.take(chosen), ends.take(chosen)))
            found = {at: reasons.get(i, _NO_REASON) for i, at in enumerate(unknown)}
        return arrays, [(at, found[at] if reason is None else reason) for at, reason in bad]

    def _reasons(self, values: list[bytes]) -> dict[int, str]:
        """Return the reasons of bad values, as far as generated Python finds them bad."""
        try:
            return dict(self.decode(values)[1])
        except SchemaError:
            return dict.fromkeys(range(len(values)), _UNKNOWN_REASON)


def _pieces(data: Buffer, starts: Numbers, ends: Numbers) -> list[bytes]:
    whole = memoryview(data)
    each = zip(starts.to_pylist(), ends.to_pylist(), strict=True)
    return [bytes(whole[start:end]) for start, end in each]
