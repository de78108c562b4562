"""Where in a JSON text each value stands: JSON pointer to line and column.

A finding names a place by JSON pointer; people and review tools need the line. This is a scanner
of its own because the standard decoder forgets positions. Lines and columns count from 1; a
member of an object stands where its key begins, an item of a list where the item begins.

Rules: the text should be JSON with Avro's comments, and other text never fails. An explicit stack
keeps depth off the Python stack. Below MAX_DEPTH, which no schema reaches, every value has the
region of the value at MAX_DEPTH.
"""

from __future__ import annotations

import bisect
import json
import re
from dataclasses import dataclass, field

MAX_DEPTH = 500

# Unterminated tokens extend to the end of the text, so that one pass is enough for any text.
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?(?:\*/|\Z)
    |(?P<string>"(?:[^"\\]|\\.?)*(?:"|\Z))
    |(?P<mark>[{}\[\],:])
    |(?P<word>[^\s{}\[\],:"]+)""",
    re.DOTALL | re.VERBOSE,
)

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Region:
    """The region of a value: first line and column, last line, and the column after its end."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(slots=True)
class _OpenContainer:
    """A container being read: its pointer, where it starts, the next key or index."""

    pointer: str
    start: int
    is_list: bool
    key: str = ""
    key_start: int | None = None
    index: int = 0


@dataclass(slots=True)
class SourceMap:
    """The region of every value of one JSON text."""

    text: str
    # The extent of each value with its key, and where the value alone begins.
    _spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    _values: dict[str, int] = field(default_factory=dict)
    _again: set[str] = field(default_factory=set)
    _lines: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = [0, *(m.end() for m in re.finditer("\n", self.text))]
        self._scan()

    def region(self, pointer: str) -> Region:
        """Return the region of the value at `pointer`, or of the nearest enclosing value."""
        while pointer and pointer not in self._spans:
            pointer = pointer.rpartition("/")[0]
        start, end = self._spans.get(pointer, (0, len(self.text)))
        line, column = self._at(start)
        return Region(line, column, *self._at(end))

    def value(self, pointer: str) -> Region | None:
        """Return the region of the value at `pointer` without its key, or None."""
        if pointer not in self._spans:
            return None
        return Region(*self._at(self._values[pointer]), *self._at(self._spans[pointer][1]))

    def repeated(self) -> list[str]:
        """Return the repeated members of objects as pointers, without members inside them."""
        return sorted(one for one in self._again if not self._around(one) & self._again)

    @staticmethod
    def _around(pointer: str) -> set[str]:
        parts = pointer.split("/")
        return {"/".join(parts[:i]) for i in range(1, len(parts))}

    def at(self, offset: int) -> Region:
        """Return the region of the one character at an offset."""
        return Region(*self._at(offset), *self._at(min(offset + 1, len(self.text))))

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its end and always printable."""
        start = self._lines[number - 1]
        end = self._lines[number] if number < len(self._lines) else len(self.text)
        return _UNPRINTABLE.sub("\ufffd", self.text[start:end].rstrip("\r\n"))

    def _at(self, offset: int) -> tuple[int, int]:
        index = bisect.bisect_right(self._lines, offset) - 1
        return index + 1, offset - self._lines[index] + 1

    def _scan(self) -> None:
        stack: list[_OpenContainer] = []
        expect_key = False
        for token in _TOKEN.finditer(self.text):
            text, start, end = token.group(), token.start(), token.end()
            if token["mark"] in ("{", "["):
                stack.append(_OpenContainer(_pointer(stack), start, text == "["))
                expect_key = text == "{"
            elif token["mark"] in ("}", "]") and stack:
                done = stack.pop()
                self._note(stack, done.pointer, done.start, end)
                expect_key = False
            elif token["mark"] == "," and stack:
                expect_key = not stack[-1].is_list
            elif token["string"] and expect_key and stack:
                stack[-1].key, stack[-1].key_start = _unescaped(text), start
                expect_key = False
            elif token["string"] or token["word"]:
                self._note(stack, _pointer(stack), start, end)

    def _note(self, stack: list[_OpenContainer], pointer: str, start: int, end: int) -> None:
        self._values[pointer] = start
        if stack and stack[-1].is_list:
            stack[-1].index += 1
        elif stack and stack[-1].key_start is not None:
            start = stack[-1].key_start
            if pointer in self._spans and len(stack) <= MAX_DEPTH:
                self._again.add(pointer)
        self._spans[pointer] = (start, end)


def _unescaped(text: str) -> str:
    """Return a key as JSON reads it, or its text if it is not JSON."""
    try:
        return str(json.loads(text))
    except ValueError:
        return text.strip('"')


def _pointer(stack: list[_OpenContainer]) -> str:
    if not stack:
        return ""
    around = stack[-1]
    if len(stack) > MAX_DEPTH:
        return around.pointer
    step = str(around.index) if around.is_list else around.key
    return f"{around.pointer}/{step.replace('~', '~0').replace('/', '~1')}"
