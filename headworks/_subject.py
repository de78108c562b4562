"""Subjects and the contexts they live in: `name`, `:.context:name`, `:.context:`, `:*:`.

A context is a separate space of subjects and ids; the default one is called `.` and is left out
when a subject is written. An empty name stands for the context itself (settings, prefixes).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANY_CONTEXT", "DEFAULT_CONTEXT", "Subject"]

DEFAULT_CONTEXT = "."
ANY_CONTEXT = "*"


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A subject's context and name; `str()` gives the form in which it is written."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str, *, within: str = DEFAULT_CONTEXT) -> Subject:
        """Read a subject; one that names no context is in the context `within`."""
        if text.startswith((":.", ":*")):
            context, colon, name = text[1:].partition(":")
            if colon or context == ANY_CONTEXT:
                return cls(context, name)
            return cls(context, "")
        return cls(within, text)

    @property
    def whole_context(self) -> Subject:
        """The context of this subject, as a scope of settings."""
        return Subject(self.context, "")

    def __str__(self) -> str:
        if self.context == DEFAULT_CONTEXT:
            return self.name
        return f":{self.context}:{self.name}"
