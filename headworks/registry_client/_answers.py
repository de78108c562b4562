"""What a registry answers, as frozen values; no behaviour, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headworks.compatibility import Finding, Level, Policy
from headworks.errors import IncompatibleError

__all__ = [
    "Compatibility",
    "CompatibilityGroup",
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
    """One version of a subject: `id` is global, `text` is the registry's canonical text.

    `properties` are those of its metadata.
    `registered_ms` is when it was registered, milliseconds since 1970 UTC, if the registry says so.
    `aliases` are other names of the subject, if they were asked for.
    """

    subject: str
    version: int
    id: int
    text: str
    references: tuple[Reference, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    registered_ms: int | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompatibilityGroup:
    """A registry's `compatibilityGroup`: only versions with one value of `property` are compared.

    `default` and `override` are what the registry's own metadata make of that property.
    """

    property: str
    default: str | None = None
    override: str | None = None

    def members(self, history: Sequence[SubjectVersion]) -> list[SubjectVersion]:
        """The versions that a schema sent without metadata is compared with; `history` by age.

        It takes over the metadata of the newest version, under the registry's overrides.
        """
        wanted = self.default
        if history:
            wanted = history[-1].properties.get(self.property, self.default)
        if self.override is not None:
            wanted = self.override
        return [one for one in history if one.properties.get(self.property) == wanted]


@dataclass(frozen=True, slots=True)
class Compatibility:
    """What a subject asks of a new version: against which ones, and by which rules."""

    level: Level
    policy: Policy
    group: CompatibilityGroup | None = field(default=None, compare=False)


class IncompatibleSchemaError(IncompatibleError):
    """A registry's 409: `findings` say which reader fails on which data, and the fix.

    `findings` is empty when the registry is not Headworks' own; the message then has its words.
    """

    def __init__(
        self, message: str, findings: Sequence[Finding], *, fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.findings = tuple(findings)
