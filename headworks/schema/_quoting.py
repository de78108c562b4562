"""A JSON value as an error message quotes it: short and printable, whatever it is.

Rule: what comes out is bounded, in length and in the work it takes; a schema may hold anything.
"""

from __future__ import annotations

from reprlib import Repr

__all__ = ["quote"]

_MAX_CHARACTERS = 80


class _ShortRepr(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxother = self.maxlong = _MAX_CHARACTERS


def quote(value: object) -> str:
    """The value as Python writes it, with dots for what is too long or too deep."""
    return _ShortRepr().repr(value)
