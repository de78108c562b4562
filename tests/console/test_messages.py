"""Places in a topic, filters, and what a reader writes into the form."""

from __future__ import annotations

from typing import Any

import pytest

from headworks._console.sources.messages import ShownMessage
from headworks._console.views.messages import FieldFilter, read_cursor, read_time
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


def shown(event: Any) -> ShownMessage:
    return ShownMessage(0, 0, 0, None, (), 1, 1, 1, event, None)


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("a", "1", True),
        ("a", "12", False),
        ("b.c", "hello world", True),
        ("b.c", "hello*", True),
        ("b.c", "*world", True),
        ("b.c", "*lo wo*", True),
        ("b.c", "*xyz*", False),
        ("b.c", "*", True),
        ("l.x", "2", True),
        ("n", "null", True),
        ("t", "true", True),
        ("gone", "*", False),
        ("a.b", "*", False),
    ],
)
def test_a_filter(field: str, value: str, kept: bool) -> None:
    event = {"a": 1, "b": {"c": "hello world"}, "l": [{"x": 1}, {"x": 2}], "n": None, "t": True}
    assert FieldFilter(field, value).keeps(shown(event)) is kept
    assert not FieldFilter(field, value).keeps(shown(None))


def test_times_and_cursors() -> None:
    assert read_time("") is None
    assert read_time("1970-01-01T00:00:01") == 1000
    assert read_time("1970-01-01T01:00:01+01:00") == 1000
    assert read_time("1234") == 1234
    assert read_cursor("0:5,12:7") == {0: 5, 12: 7}
    assert read_cursor("") is None
    for wrong in ("soon", "2026-13-01"):
        with pytest.raises(UsageError, match="is no time"):
            read_time(wrong)
    for wrong in ("5", "a:b", "1:2,", "1:-2"):
        with pytest.raises(UsageError, match="no place"):
            read_cursor(wrong)
