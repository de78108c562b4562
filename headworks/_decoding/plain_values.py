"""Data as plain Python values: dicts, lists, and numbers, as fastavro reads them.

Rule: `datum_check` judges every datum first. By itself fastavro takes a count of items without
bytes at its word, and nesting without end ends the process.
"""

from __future__ import annotations

import io
import json
from typing import Any

from fastavro import parse_schema, schemaless_reader

from headworks._decoding.datum_check import DatumCheck
from headworks.schema import parse


class PlainDecoder:
    """Decodes data of the schema text `writer`, as it is or resolved to that of `reader`.

    Raises SchemaError, SchemaParseException, or ValueError for a schema that cannot be read.
    """

    def __init__(self, writer: str, reader: str | None = None) -> None:
        self._check = DatumCheck(parse(writer, strict=False))
        self.named: dict[str, Any] = {}  # the writer's named types, by full name
        self.writer = parse_schema(json.loads(writer), named_schemas=self.named)
        self._reader = None if reader is None else parse_schema(json.loads(reader))

    def decode(self, value: bytes, start: int = 0) -> Any:
        """Return the datum that is all of `value` from `start` on.

        Raises BadDatumError if it is none, and errors of many kinds for what Python or the reader's
        schema cannot hold.
        """
        self._check.require_datum(value, start)
        return schemaless_reader(io.BytesIO(value[start:]), self.writer, self._reader)
