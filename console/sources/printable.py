"""Values of messages as JSON, text, and hexadecimal digits.

Rule: nothing is masked here. The caller knows that the value may be shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_MAX_RAW_BYTES = 2_000
_MAX_HEX_BYTES = 4_096
_LINE_BYTES = 16
HexLine = tuple[int, str, str]


def printable(value: Any) -> Any:
    """Return the value as JSON can hold it; other numbers become text."""
    if isinstance(value, Mapping):
        return {str(key): printable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    from consumer_sdk._jsonable import to_jsonable

    return to_jsonable(value)


def raw_value(value: bytes) -> Any:
    """Return an unframed value as JSON if it is JSON, else as text."""
    if len(value) <= _MAX_RAW_BYTES:
        try:
            return printable(json.loads(value))
        except (ValueError, RecursionError):
            pass
    return text_of(value[:_MAX_RAW_BYTES])


def text_of(value: bytes | str | None) -> str | None:
    """Return bytes as text; those that are not UTF-8 are replaced."""
    return value if value is None or isinstance(value, str) else value.decode(errors="replace")


def hex_lines(value: bytes) -> tuple[HexLine, ...]:
    """Return the first 4,096 bytes in lines of 16: position, digits, and ASCII."""
    return tuple(
        (at, value[at : at + _LINE_BYTES].hex(" "), _ascii(value[at : at + _LINE_BYTES]))
        for at in range(0, min(len(value), _MAX_HEX_BYTES), _LINE_BYTES)
    )


def _ascii(part: bytes) -> str:
    return "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in part)
