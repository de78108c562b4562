"""Subjects and their contexts, as Confluent writes them.

The forms are `name`, `:.context:name`, `:.context:`, and `:*:`. A context is a separate space of
subjects and ids. The default context is `.` and is omitted when a subject is written. An empty name
stands for the context itself (settings, prefixes).
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_CONTEXT = "."
ANY_CONTEXT = "*"
GLOBAL_CONTEXT = ".__GLOBAL"  # holds settings and a mode for all contexts, and no subjects


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A subject's context and name; `str()` returns the canonical form."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str, *, within: str = DEFAULT_CONTEXT) -> Subject:
        """Parse a subject; without a context it is in the context `within`."""
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
