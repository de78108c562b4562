"""The values that a registry returns: frozen, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headworks.compatibility import Finding, Level, Policy
from headworks.errors import IncompatibleError


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses: the full name of its type, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The id of a schema, and its version in the subject asked for."""

    id: int
    version: int


class SubjectVersion(NamedTuple):
    """One version of a subject; a tuple, because a registry lists 40,000 of them."""

    subject: str
    version: int
    id: int  # of the schema, in its context
    text: str  # the registry's canonical text
    references: tuple[Reference, ...] = ()
    properties: Mapping[str, str] = {}  # of its metadata
    registered_ms: int | None = None  # milliseconds since 1970 UTC, if the registry reports it
    aliases: tuple[str, ...] = ()  # of the subject, if they were requested


@dataclass(frozen=True, slots=True)
class CompatibilityGroup:
    """A registry's `compatibilityGroup`: only versions with one value of `property` are compared.

    `default` and `override` are the values that the registry's settings give that property.
    """

    property: str
    default: str | None = None
    override: str | None = None

    def members(self, history: Sequence[SubjectVersion]) -> list[SubjectVersion]:
        """Return the versions that a schema without metadata is compared with, oldest first.

        Such a schema takes the metadata of the newest version, and the registry's overrides.
        """
        wanted = self.default
        if history:
            wanted = history[-1].properties.get(self.property, self.default)
        if self.override is not None:
            wanted = self.override
        return [one for one in history if one.properties.get(self.property) == wanted]


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The requirements on a new version of a subject: the level, the policy, and the group."""

    level: Level
    policy: Policy
    group: CompatibilityGroup | None = field(default=None, compare=False)


class IncompatibleSchemaError(IncompatibleError):
    """A schema that a registry refused (409): each finding names the failing reader and the fix.

    `findings` is empty if the registry is not Headworks' own. The message is then the registry's.
    """

    def __init__(
        self, message: str, findings: Sequence[Finding], *, fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.findings = tuple(findings)
