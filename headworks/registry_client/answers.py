"""What a registry answers, as frozen values; no behaviour, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headworks.compatibility import Finding, Level, Policy
from headworks.errors import IncompatibleError

__all__ = [
    "Compatibility",
    "IncompatibleSchemaError",
    "Reference",
    "Registered",
    "SubjectVersion",
]


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses: the type's full name, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The id of a schema, and its version in the subject asked for."""

    id: int
    version: int


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject: `id` is global, `text` is the registry's canonical text."""

    subject: str
    version: int
    id: int
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Compatibility:
    """What a subject asks of a new version: against which ones, and by which rules."""

    level: Level
    policy: Policy


class IncompatibleSchemaError(IncompatibleError):
    """A registry's 409: `findings` say which reader fails on which data, and the fix.

    `findings` is empty when the registry is not Headworks' own; the message then has its words.
    """

    def __init__(
        self, message: str, findings: Sequence[Finding], *, fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.findings = tuple(findings)
