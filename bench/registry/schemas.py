"""The schemas of the benchmark: records like those of events, of any width, in any number."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

_TYPES: tuple[Any, ...] = (
    "long",
    "string",
    "double",
    ["null", "string"],
    {"type": "array", "items": "string"},
    {"type": "long", "logicalType": "timestamp-millis"},
)

_NUMBER = b"987654321"  # stands for the number in a template


def event(width: int, number: int) -> str:
    """The text of a record with `width` fields, unlike that of any other `number`."""
    fields: list[dict[str, Any]] = [
        {"name": f"field_{i}", "type": _TYPES[i % len(_TYPES)], "doc": f"The field number {i}"}
        for i in range(width - 1)
    ]
    fields.append({"name": f"added_{number}", "type": "long", "default": number})
    return json.dumps(
        {"type": "record", "name": "Event", "namespace": "bench.events", "fields": fields}
    )


def proposal(width: int, number: int) -> bytes:
    """The body of a request that proposes it; quickly, because the client shares the machine."""
    return _template(width).replace(_NUMBER, str(number).encode())


@cache
def _template(width: int) -> bytes:
    return json.dumps({"schema": event(width, int(_NUMBER))}).encode()
