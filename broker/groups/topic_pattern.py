"""Regular expressions over topic names, in time that is linear in the name.

Members of a group may subscribe to all topics that an expression matches (KIP-848). Kafka uses RE2.
Python's `re` backtracks, so one hostile expression could stop the event loop. This is RE2's core:
literals, `.`, classes, `\\d \\w \\s`, groups, `|`, and `* + ? {m,n}`, matched by sets of states.

Rules:

- A pattern matches a whole name. `^` and `$` are allowed at the ends of a branch.
- An expression is refused if RE2 refuses it, as references to groups and looking around. So is one
  that would take too many states.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass, field

_MAX_CHARACTERS = 1000
_MAX_STATES = 1000
_MAX_REPEATS = 1000  # as RE2
_MAX_STEPS_KEPT = 20_000
_MAX_NESTING = 50
_ALL = frozenset(map(chr, range(128)))  # a topic name is ASCII
_DIGITS, _SPACES = frozenset(string.digits), frozenset(" \t\n\r\f\v")
_WORDS = frozenset(string.ascii_letters + string.digits + "_")
_SHORT = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}

Repeats = tuple[int, int | None]


class InvalidPatternError(ValueError):
    """Why an expression is not taken."""


@dataclass(slots=True)
class _State:
    """A state: it takes one of `characters` to `after`, or goes on to `free` without any."""

    characters: frozenset[str] = frozenset()
    after: int = -1
    free: list[int] = field(default_factory=list)


# A part of a parsed expression: characters, or a list of branches, each a list of parts
_Part = frozenset[str] | tuple["_Part", Repeats] | list[list["_Part"]]


class TopicPattern:
    """A compiled expression. Raises InvalidPatternError."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _MAX_CHARACTERS:
            raise InvalidPatternError(f"it has more than {_MAX_CHARACTERS} characters")
        self._states: list[_State] = []
        start, end = self._add(_Parser(text).parsed())
        self._end = end
        self._start = self._closure({start})
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}  # a cache

    def matches(self, name: str) -> bool:
        """Return whether it matches the whole name."""
        now = self._start
        for character in name:
            key = now, character
            after = self._steps.get(key)
            if after is None:
                states = self._states
                after = self._closure(
                    {states[at].after for at in now if character in states[at].characters}
                )
                if len(self._steps) >= _MAX_STEPS_KEPT:
                    self._steps.clear()
                self._steps[key] = after
            if not after:
                return False
            now = after
        return self._end in now

    def _closure(self, found: set[int]) -> frozenset[int]:
        waiting = list(found)
        while waiting:
            for after in self._states[waiting.pop()].free:
                if after not in found:
                    found.add(after)
                    waiting.append(after)
        return frozenset(found)

    def _state(self) -> int:
        if len(self._states) >= _MAX_STATES:
            raise InvalidPatternError("it repeats too much")
        self._states.append(_State())
        return len(self._states) - 1

    def _add(self, part: _Part) -> tuple[int, int]:
        """Add the states of a part, and return its first and its last one."""
        if isinstance(part, frozenset):
            first, last = self._state(), self._state()
            self._states[first].characters, self._states[first].after = part, last
            return first, last
        if isinstance(part, tuple):
            return self._repeat(*part)
        first, last = self._state(), self._state()
        for branch in part:
            at = first
            for one in branch:
                start, end = self._add(one)
                self._states[at].free.append(start)
                at = end
            self._states[at].free.append(last)
        return first, last

    def _repeat(self, part: _Part, repeats: Repeats) -> tuple[int, int]:
        least, most = repeats
        first = at = self._state()
        last = self._state()
        for _ in range(least):
            start, end = self._add(part)
            self._states[at].free.append(start)
            at = end
        self._states[at].free.append(last)
        if most is None:
            start, end = self._add(part)
            self._states[at].free.append(start)
            self._states[end].free += (start, last)
        for _ in range(least, most or 0):
            start, end = self._add(part)
            self._states[at].free.append(start)
            self._states[end].free.append(last)
            at = end
        return first, last


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._folds = False  # whether case is ignored

    def parsed(self) -> _Part:
        """Return the whole expression as a part."""
        if self._takes("(?i)"):
            self._folds = True
        found = self._branches()
        if self._at < len(self._text):
            raise InvalidPatternError(f"')' at {self._at} closes nothing")
        return found

    def _branches(self) -> list[list[_Part]]:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise InvalidPatternError(f"it nests more than {_MAX_NESTING} groups")
        found = [list(self._branch())]
        while self._takes("|"):
            found.append(list(self._branch()))
        self._depth -= 1
        return found

    def _branch(self) -> Iterator[_Part]:
        while self._takes("^") or self._takes("\\A"):
            pass
        while (character := self._peek()) and character not in "|)":
            if self._takes("$") or self._takes("\\z"):
                if self._peek() not in ("", "|", ")", "$"):
                    raise InvalidPatternError(f"nothing can follow '$' at {self._at - 1}")
                continue
            yield self._repeated(self._one())

    def _repeated(self, part: _Part) -> _Part:
        while True:
            repeats = self._repeats()
            if repeats is None:
                return part
            self._takes("?")  # a lazy one matches the same whole names
            part = (part, repeats)

    def _repeats(self) -> Repeats | None:
        for sign, repeats in _QUANTIFIERS.items():
            if self._takes(sign):
                return repeats
        if self._peek() != "{":
            return None
        inner, closed, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = inner.partition(",")
        if not closed or not low.isdecimal() or (high and not high.isdecimal()):
            return None  # a literal brace, as in RE2
        self._at += len(inner) + 2
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > _MAX_REPEATS or (most is not None and most < least):
            raise InvalidPatternError(f"{{{inner}}} is not a valid number of repeats")
        return least, most

    def _one(self) -> _Part:
        character = self._next()
        if character == ".":
            return _ALL
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character in "*+?^":
            raise InvalidPatternError(f"{character!r} at {self._at - 1} has nothing to act on")
        if character != "(":
            return self._literal(character)
        if self._takes("?") and not self._takes(":"):
            raise InvalidPatternError(f"the group '(?' at {self._at - 2} is not supported")
        found = self._branches()
        if not self._takes(")"):
            raise InvalidPatternError("a '(' is not closed")
        return found

    def _literal(self, character: str) -> frozenset[str]:
        if self._folds:
            return frozenset((character.lower(), character.upper()))
        return frozenset((character,))

    def _escape(self) -> frozenset[str]:
        character = self._next()
        if character.lower() in _SHORT:
            found = _SHORT[character.lower()]
            return found if character.islower() else _ALL - found
        if character in _ESCAPED:
            return frozenset(_ESCAPED[character])
        if character.isalnum():
            raise InvalidPatternError(f"'\\{character}' is not supported")
        return frozenset((character,))

    def _class(self) -> frozenset[str]:
        negated = self._takes("^")
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._member()
            if len(low) == 1 and self._peek() == "-" and self._peek(1) not in ("]", ""):
                self._next()
                high = self._member()
                start, end = min(low), min(high)
                if len(high) != 1 or end < start:
                    raise InvalidPatternError(f"the range at {self._at} runs backwards")
                found.update(map(chr, range(ord(start), min(ord(end), 127) + 1)))
            else:
                found |= low
        self._next()
        if self._folds:
            found |= {one.lower() for one in found} | {one.upper() for one in found}
        return _ALL - found if negated else frozenset(found)

    def _member(self) -> frozenset[str]:
        character = self._next()
        if character == "[" and self._peek() in (":", ".", "="):
            raise InvalidPatternError("named classes are not supported")
        return self._escape() if character == "\\" else frozenset((character,))

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._text[at] if at < len(self._text) else ""

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise InvalidPatternError("it ends too early")
        self._at += 1
        return character

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True
