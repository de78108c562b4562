"""Filters of messages: several conditions on fields, key, headers, problem, and any text.

Rules: pure. A filter sees a message as it is shown, after masking, so nobody finds a hidden value
by guessing. Every condition must hold.
"""

from __future__ import annotations

import json
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headworks._console.sources.shown_message import ShownMessage
from headworks.errors import UsageError

_MAX_CONDITIONS = 10
_CONDITION = re.compile(r"(@?[A-Za-z_][\w.-]*)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_FIX = 'write it like: origin=JFK distance>500 @key=ab* @header.trace=00* @problem=* "any text"'


@dataclass(frozen=True, slots=True)
class Condition:
    """A dotted field path or `@name`, an operator, and a value; without a path: any text.

    `*` at an end of the value matches anything. `>` and its like compare numbers as numbers.
    """

    path: str
    operator: str
    value: str

    def holds(self, shown: ShownMessage) -> bool:
        """Return whether a message, as it is shown, meets the condition."""
        found = list(self._found(shown))
        if self.operator == "!=":
            return not any(matches(one, self.value) for one in found)
        if self.operator == "=":
            return any(matches(one, self.value) for one in found)
        return any(_compares(one, self.operator, self.value) for one in found)

    def _found(self, shown: ShownMessage) -> Iterator[Any]:
        if not self.path:
            yield from _texts(shown)
        elif self.path == "@key":
            yield from (() if shown.key is None else (shown.key,))
        elif self.path == "@problem":
            yield from (() if shown.problem is None else (shown.problem,))
        elif self.path == "@version":
            yield from (() if shown.schema_version is None else (shown.schema_version,))
        elif self.path.startswith("@header."):
            name = self.path.removeprefix("@header.")
            yield from (value for header, value in shown.headers if header == name)
        else:
            yield from values_at(shown.event, self.path.split("."))


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """All conditions of a page; one without conditions keeps every message."""

    conditions: tuple[Condition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.conditions)

    def keeps(self, shown: ShownMessage) -> bool:
        """Return whether a message meets every condition."""
        return all(condition.holds(shown) for condition in self.conditions)


def read_filter(text: str, field: str = "", value: str = "") -> MessageFilter:
    """Return the filter of the form: the conditions in `text`, and one on a field if it is given.

    Raises UsageError for a text that is no list of conditions.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the filter {text[:80]!r} cannot be read: {error}", fix=_FIX) from None
    if len(words) > _MAX_CONDITIONS:
        raise UsageError(f"a filter has at most {_MAX_CONDITIONS} conditions", fix=_FIX)
    found = [Condition(field, "=", value)] if field else []
    return MessageFilter((*found, *map(_condition, words)))


def _condition(word: str) -> Condition:
    parts = _CONDITION.fullmatch(word)
    if parts is None:
        return Condition("", "=", f"*{word}*")
    path, sign, value = parts.groups()
    known = path in ("@key", "@problem", "@version") or path.startswith("@header.")
    if path.startswith("@") and not known:
        raise UsageError(
            f"{path!r} is unknown: use @key, @header.NAME, @problem, or @version",
            fix=_FIX,
        )
    return Condition(path, sign, value)


def values_at(value: Any, path: list[str]) -> list[Any]:
    """Return the values at a dotted path, in every item of a list."""
    if isinstance(value, list):
        return [found for item in value for found in values_at(item, path)]
    if not path:
        return [value]
    if isinstance(value, Mapping) and path[0] in value:
        return values_at(value[path[0]], path[1:])
    return []


def matches(value: Any, wanted: str) -> bool:
    """Return whether a value is the wanted text; `*` at an end matches anything."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    if wanted.startswith("*") and wanted.endswith("*") and len(wanted) > 1:
        return wanted[1:-1] in text
    if wanted.startswith("*"):
        return text.endswith(wanted[1:])
    return text.startswith(wanted[:-1]) if wanted.endswith("*") else text == wanted


def _compares(value: Any, sign: str, wanted: str) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _ORDERED[sign](value, float(wanted))
        except ValueError:
            return False
    return isinstance(value, str) and _ORDERED[sign](value, wanted)


def _texts(shown: ShownMessage) -> Iterator[str]:
    yield json.dumps(shown.event, ensure_ascii=False, default=str)
    yield from (text for text in (shown.key, shown.problem) if text is not None)
    yield from (text for header in shown.headers for text in header if text is not None)
