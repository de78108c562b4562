"""What a leaf of a resolution program becomes in a typed event: the consumer's own conversions.

Rules: the values are those that generated classes declare (aware datetimes for instants, naive
ones for local timestamps, Decimal, UUID, ...). A timestamp keeps its instant: the writer's unit
says what the number means. What Python cannot hold (the year 12000) raises, and never wraps.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

from headworks.decoding.reading import BadDatumError
from headworks.schema import Fixed, Primitive

__all__ = ["GIVEN", "expression"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local timestamp has no zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EXACT = Context(prec=10_000)
_FLOAT = struct.Struct("<f")


def _time_of_micros(micros: int) -> time:
    seconds, micros = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, micros)


def _decimal(raw: bytes, precision: int, scale: int) -> Decimal:
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**precision:
        raise BadDatumError(f"decimal has more than {precision} digits")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _float32(value: int) -> float:
    found: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return found


GIVEN: Final[Mapping[str, Any]] = {
    "EPOCH": _EPOCH,
    "LOCAL_EPOCH": _LOCAL_EPOCH,
    "UUID": UUID,
    "delta": timedelta,
    "date_of": date.fromordinal,
    "decimal": _decimal,
    "float32": _float32,
    "time_of": _time_of_micros,
}
_UNITS = {"millis": 1_000, "micros": 1}


def expression(writer: Primitive | Fixed, reader: Primitive | Fixed) -> str:
    """The Python expression that makes the value of what was read as `v`."""
    name = reader.logical.name if reader.logical else ""
    written = writer.logical.name if writer.logical else ""
    if name == "decimal" and reader.logical is not None:
        return f"decimal(v, {reader.logical.precision}, {reader.logical.scale})"
    if name == "uuid":
        return "UUID(bytes=v)" if isinstance(reader, Fixed) else "UUID(v.decode())"
    if name == "date":
        return f"date_of({_EPOCH_DAY} + v)"
    kind, _, unit = name.rpartition("-")
    if unit in _UNITS:
        if kind == "time":
            return f"time_of(v * {_UNITS[unit]})"
        if "timestamp" in written:
            unit = written.rpartition("-")[2]
        since = {
            "millis": "delta(0, v // 1000, v % 1000 * 1000)",
            "micros": "delta(0, v // 1000000, v % 1000000)",
            "nanos": "delta(0, v // 1000000000, v % 1000000000 // 1000)",
        }[unit]
        return f"{'LOCAL_EPOCH' if kind.startswith('local') else 'EPOCH'} + {since}"
    if reader.kind == "string":
        return "v.decode()"
    if writer.kind in ("int", "long"):
        return {"float": "float32(v)", "double": "float(v)"}.get(reader.kind, "v")
    return "v"
