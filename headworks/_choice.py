"""An argument that is one of a few words, such as a policy.

Rule: a member of the enumeration and its value mean the same; anything else is refused, because a
word that nobody compares would silently select another policy.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from headworks.errors import UsageError

E = TypeVar("E", bound=StrEnum)


def choice(kind: type[E], given: object, argument: str) -> E:
    """Return the member of `kind` that `given` is or names; UsageError for anything else."""
    for each in kind:
        if each == given:
            return each
    words = ", ".join(repr(str(each)) for each in kind)
    raise UsageError(f"{argument} is {given!r}, and none of {words}", fix=f"use {kind.__name__}")
