"""Fields of messages as columns: which ones a reader chose, their texts, and a page as CSV.

Rule: pure. A column is a path in a message as it is shown, after masking.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from headworks._console.sources.shown_message import ShownMessage
from headworks._console.views.message_filter import values_at
from headworks.errors import UsageError

_MAX_COLUMNS = 30
_MAX_PATH_CHARACTERS = 300
_FIXED = ("time", "partition", "offset", "version", "key")


def read_columns(given: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of a form, each once. Raises UsageError for too many or too long ones."""
    names = [name.strip() for text in given for name in text.split(",")]
    found = tuple(dict.fromkeys(name for name in names if name))
    if len(found) > _MAX_COLUMNS or any(len(name) > _MAX_PATH_CHARACTERS for name in found):
        raise UsageError(
            f"a page shows at most {_MAX_COLUMNS} columns, of {_MAX_PATH_CHARACTERS} characters",
            fix="choose fewer columns",
        )
    return found


def column_text(event: Any, path: str) -> str:
    """Return the value at a dotted path as text, or "" if there is none."""
    return ", ".join(_text(value) for value in values_at(event, path.split(".")))


def csv_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns of a page as CSV."""
    return (*_FIXED, *(columns or ("event",)), "headers", "problem")


def csv_rows(
    rows: Iterable[ShownMessage], columns: Sequence[str]
) -> list[tuple[str | int | None, ...]]:
    """Return the messages of a page as rows of CSV."""
    return [
        (
            _time(one.timestamp_ms),
            one.partition,
            one.offset,
            one.schema_version,
            one.key,
            *(
                (column_text(one.event, path) for path in columns)
                if columns
                else (_json(one.event),)
            ),
            _json(dict(one.headers)) if one.headers else None,
            one.problem,
        )
        for one in rows
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _time(millis: int) -> str:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(millis)
