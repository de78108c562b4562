"""Defaults as they stand in a schema, to the values that a decoder gives.

fastavro hands a missing field its default as JSON: a timestamp as a number, bytes as text, a record
without the members that have defaults themselves. What a reader of typed events expects is the
value, so leaves are converted here; a value that is decoded already passes through.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from headworks.schema import Fixed, Primitive

__all__ = ["from_json_default"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local timestamp has no zone
_MIDNIGHT = datetime(1970, 1, 1)  # noqa: DTZ001 - only its time of day is used
_UNITS = {"millis": 1_000, "micros": 1}


def from_json_default(node: Primitive | Fixed) -> Callable[[Any], Any] | None:
    """The conversion of a leaf's JSON default, or None where JSON's value is the value."""
    logical = node.logical.name if node.logical else None
    if logical is not None and logical.rpartition("-")[2] in _UNITS:
        return _instant(logical, _UNITS[logical.rpartition("-")[2]])
    if logical == "date":
        return lambda v: date.fromordinal(_EPOCH.toordinal() + v) if isinstance(v, int) else v
    if logical == "decimal":
        assert node.logical is not None
        return _decimal(node.logical.scale)
    if logical == "uuid" and node.kind == "string":
        return lambda v: UUID(v) if isinstance(v, str) else v
    if node.kind in ("bytes", "fixed"):
        return lambda v: v.encode("latin-1") if isinstance(v, str) else v
    return None


def _instant(logical: str, micros: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, int):
            return value
        since = timedelta(microseconds=value * micros)
        if logical.startswith("time-"):
            return (_MIDNIGHT + since).time()
        return (_LOCAL_EPOCH if logical.startswith("local-") else _EPOCH) + since

    return convert


def _decimal(scale: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        unscaled = int.from_bytes(value.encode("latin-1"), "big", signed=True)
        return Decimal(unscaled).scaleb(-scale)

    return convert
