"""Places in a topic, filters, and what a reader writes into the form."""

from __future__ import annotations

from typing import Any

import pytest

from headworks._console.sources.shown_message import ShownMessage
from headworks._console.views.message_filter import read_filter
from headworks._console.views.messages import read_cursor, read_time
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
    assert read_filter("", field, value).keeps(shown(event)) is kept
    assert not read_filter("", field, value).keeps(shown(None))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a=1 b.c=hello*", True),
        ("a=1 b.c=bye*", False),
        ("a>0 a<=1", True),
        ("a>1", False),
        ("a!=2", True),
        ("a!=1", False),
        ("b.c>h", True),
        ("a>x", False),
        ("@key=k*", True),
        ("@header.trace=00*", True),
        ("@header.other=*", False),
        ("@version=3", True),
        ("@version>=4", False),
        ("@problem=*", False),
        ("world", True),
        ('"hello world"', True),
        ("00-ff", True),
        ("elsewhere", False),
        ("", True),
    ],
)
def test_several_conditions_on_all_of_a_message(text: str, kept: bool) -> None:
    event = {"a": 1, "b": {"c": "hello world"}}
    one = ShownMessage(0, 0, 0, "k1", (("trace", "00-ff"),), 1, 1, 3, event, None)
    assert read_filter(text).keeps(one) is kept


def test_a_problem_is_found() -> None:
    bad = ShownMessage(0, 0, 0, None, (), 1, 9999, None, None, "it does not decode")
    assert read_filter("@problem=*").keeps(bad)
    assert read_filter("decode").keeps(bad)
    assert not read_filter("@problem!=*").keeps(bad)


def test_a_filter_that_cannot_be_read_says_how_to_write_one() -> None:
    for wrong in ('"open', "@topic=x", " ".join("abcdefghijk")):
        with pytest.raises(UsageError) as caught:
            read_filter(wrong)
        assert "origin=JFK" in str(caught.value.fix)


def test_times_and_cursors() -> None:
    assert read_time("") is None
    assert read_time("1970-01-01T00:00:01") == 1000
    assert read_time("1970-01-01T01:00:01+01:00") == 1000
    assert read_time("1234") == 1234
    assert read_cursor("0:5,12:7") == {0: 5, 12: 7}
    assert read_cursor("") is None
    for wrong in ("soon", "2026-13-01"):
        with pytest.raises(UsageError, match="is not a time"):
            read_time(wrong)
    for wrong in ("5", "a:b", "1:2,", "1:-2"):
        with pytest.raises(UsageError, match="not a position"):
            read_cursor(wrong)
