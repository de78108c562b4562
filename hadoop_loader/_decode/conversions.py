"""The conversion that turns a leaf into a column value: the loader's own conversions.

Rules: a timestamp keeps its instant, in microseconds; the writer's unit says what the number means.
A decimal that is too wide for Hive is text.
"""

from __future__ import annotations

from typing import Final

from headworks._decoding.resolution import LeafAction
from headworks._hive_types import MAX_DECIMAL_PRECISION
from headworks.schema import Fixed

READER_NAME: Final = "the latest schema"  # in the reasons of bad datums


def conversion(leaf: LeafAction) -> str:
    """Return the name of the conversion; empty if the value that was read is the column's."""
    writer, reader = leaf.writer, leaf.reader
    written = writer.logical.name if writer.logical else ""
    name = reader.logical.name if reader.logical else ""
    if name == "decimal" and reader.logical is not None:
        wide = reader.logical.precision > MAX_DECIMAL_PRECISION
        return "decimal_text" if wide else "decimal"
    if isinstance(reader, Fixed):
        return {"uuid": "uuid", "duration": "duration"}.get(name, "bytes")
    if "timestamp" in name and not name.endswith("nanos"):
        unit = written if "timestamp" in written else name
        if unit.endswith("micros"):
            return ""
        return "millis_to_micros" if unit.endswith("millis") else "nanos_to_micros"
    if writer.kind in ("int", "long"):
        return {"float": "float32", "double": "double"}.get(reader.kind, "")
    if reader.kind in ("bytes", "string"):
        return "bytes" if reader.kind == "bytes" else "text"
    return ""
