"""A JSON value as an error message quotes it: short and printable, for any value.

Rule: the text is bounded, and so is the work to make it, because a schema may hold anything.
"""

from __future__ import annotations

from reprlib import Repr

_MAX_CHARACTERS = 80


class _ShortRepr(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxother = self.maxlong = _MAX_CHARACTERS


def quote(value: object) -> str:
    """Return the value as Python writes it, with dots where it is too long or too deep."""
    return _ShortRepr().repr(value)
