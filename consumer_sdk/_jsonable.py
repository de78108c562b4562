"""Decoded values that JSON does not know, in a form that it does."""

from __future__ import annotations

import base64
from datetime import date, datetime, time

__all__ = ["to_jsonable"]


def to_jsonable(value: object) -> object:
    """Moments as ISO text, bytes as base64, anything else as its text."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
