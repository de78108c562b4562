"""Instants and spans as people write them: ISO 8601 (UTC unless it says otherwise); 30s, 10m."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from headworks.errors import UsageError

__all__ = ["format_instant", "parse_duration_ms", "parse_instant"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_instant(text: str, what: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 date or time; UsageError naming `what`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{what} {text!r} is not a time", fix="write 2026-05-01 or 2026-05-01T13:20Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def format_instant(ms: int) -> str:
    """An instant in UTC, to the second."""
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def parse_duration_ms(option: str, text: str) -> int:
    """Milliseconds of 30s, 10m, 2h or 14d; UsageError naming the option."""
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise UsageError(f"{option} {text!r} is not a time", fix="give 30s, 10m, 2h or 14d")
    return int(found[1]) * _UNITS[found[2]] * 1000
