"""An argument that is one of a few words, such as a policy, or any text that C code can take.

Rules:

- A member of the enumeration and its value mean the same; anything else is refused, because a word
  that nobody compares would silently select another policy.
- confluent_kafka ends the process at text with a lone surrogate, and cuts text at a NUL.
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


def check_text(given: str, argument: str) -> str:
    """Return text that C code can take; UsageError for a lone surrogate or a NUL."""
    try:
        given.encode()
    except UnicodeEncodeError:
        problem = "is not valid Unicode: it has a lone surrogate"
    else:
        if "\0" not in given:
            return given
        problem = "has a NUL in it"
    raise UsageError(f"{argument} {given!r} {problem}", fix="correct the text")
