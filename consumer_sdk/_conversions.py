"""The conversions of Avro's leaf values into the Python values of typed events.

Rules: the values have the classes that generated code declares: aware datetimes for instants, naive
ones for local timestamps, Decimal, UUID, and so on. A timestamp keeps its instant when its unit
changes. A value that Python cannot hold, such as the year 12000, raises and never wraps.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID, SafeUUID

from headworks._decoding.primitives import BadDatumError
from headworks.schema import Fixed, Primitive

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local timestamp has no zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EXACT = Context(prec=10_000)
_FLOAT = struct.Struct("<f")
_set = object.__setattr__  # a UUID refuses any other way


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


def _uuid(raw: bytes) -> UUID:
    """Return what `UUID` makes of this text, in half the time."""
    digits = raw.replace(b"-", b"")
    if len(digits) != 32:
        return UUID(raw.decode())
    made = UUID.__new__(UUID)
    _set(made, "int", int(digits, 16))
    _set(made, "is_safe", SafeUUID.unknown)
    return made


GIVEN: Final[Mapping[str, Any]] = {
    "EPOCH": _EPOCH,
    "LOCAL_EPOCH": _LOCAL_EPOCH,
    "UUID": UUID,
    "delta": timedelta,
    "date_of": date.fromordinal,
    "decimal": _decimal,
    "float32": _float32,
    "time_of": _time_of_micros,
    "utc": datetime.fromtimestamp,
    "UTC": UTC,
    "uuid_of": _uuid,
}
_UNITS = {"millis": 1_000, "micros": 1}
_SINCE = {
    "millis": "delta(0, v // 1000, v % 1000 * 1000)",
    "micros": "delta(0, v // 1000000, v % 1000000)",
    "nanos": "delta(0, v // 1000000000, v % 1000000000 // 1000)",
}


def expression(writer: Primitive | Fixed, reader: Primitive | Fixed) -> str:
    """Return the Python expression for the value of `v`, which holds the number or bytes read."""
    name = reader.logical.name if reader.logical else ""
    written = writer.logical.name if writer.logical else ""
    if name == "decimal" and reader.logical is not None:
        return f"decimal(v, {reader.logical.precision}, {reader.logical.scale})"
    if name == "uuid":
        return "UUID(bytes=v)" if isinstance(reader, Fixed) else "uuid_of(v)"
    if name == "date":
        return f"date_of({_EPOCH_DAY} + v)"
    kind, _, unit = name.rpartition("-")
    if unit in _UNITS:
        if kind == "time":
            return f"time_of(v * {_UNITS[unit]})"
        if "timestamp" in written:
            unit = written.rpartition("-")[2]
        since = _SINCE[unit]
        if kind.startswith("local"):
            return f"LOCAL_EPOCH + {since}"
        if unit == "nanos":
            return f"EPOCH + {since}"
        second = 1_000_000 // _UNITS[unit]
        # Up to 2106 a double holds the instant to less than half a microsecond.
        return f"utc(v / {second}, UTC) if 0 <= v < {second << 32} else EPOCH + {since}"
    if reader.kind == "string":
        return "v.decode()"
    if writer.kind in ("int", "long"):
        return {"float": "float32(v)", "double": "float(v)"}.get(reader.kind, "v")
    return "v"
