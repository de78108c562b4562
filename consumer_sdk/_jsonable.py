"""Decoded values that JSON has no type for, as JSON values."""

from __future__ import annotations

import base64
from datetime import date, datetime, time


def to_jsonable(value: object) -> object:
    """Return dates and times as ISO text, bytes as base64, and other values as their text."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
