"""Instants as people write and read them: ISO 8601, UTC unless they say otherwise."""

from __future__ import annotations

from datetime import UTC, datetime

from headworks.errors import UsageError

__all__ = ["instant", "shown"]


def instant(text: str, what: str) -> int:
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


def shown(millis: int) -> str:
    """An instant in UTC, to the second."""
    return datetime.fromtimestamp(millis // 1000, UTC).isoformat().replace("+00:00", "Z")
