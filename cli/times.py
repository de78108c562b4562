"""Times and durations as options give them: ISO 8601 (UTC by default), and 30s, 10m, 2h, or 14d."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from headworks.errors import UsageError

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_instant(text: str, what: str) -> int:
    """Return an ISO 8601 date or time in milliseconds since 1970. Raises UsageError."""
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
    """Return a time in UTC, to the second."""
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def parse_duration_ms(option: str, text: str, *, zero: bool = True) -> int:
    """Return 30s, 10m, 2h, or 14d in milliseconds. Raises UsageError, also for 0 unless `zero`."""
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None or not (zero or int(found[1])):
        raise UsageError(f"{option} {text!r} is not a duration", fix="give 30s, 10m, 2h, or 14d")
    return int(found[1]) * _UNIT_MS[found[2]]
