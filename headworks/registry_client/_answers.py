"""The values that a registry returns: frozen, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headworks._version_lines import VersionLines
from headworks.compatibility import Finding, Level, Policy
from headworks.errors import IncompatibleError

JsonBody = Any  # decoded JSON; of a list of versions, perhaps VersionLines


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


def as_json(answer: JsonBody) -> JsonBody:
    """Return an answer as the JSON that it stands for."""
    return answer.objects() if isinstance(answer, VersionLines) else answer


def subject_versions(answer: JsonBody) -> list[SubjectVersion]:
    """Return the versions of a list, at once if they have no further members."""
    if not isinstance(answer, VersionLines) or answer.more:
        return [subject_version(one) for one in as_json(answer)]
    return [
        SubjectVersion(subject, version, schema_id, text, (), {}, at_ms)
        for subject, version, schema_id, _guid, at_ms, text in zip(
            *answer.columns, answer.texts, strict=True
        )
    ]


def subject_version(found: JsonBody) -> SubjectVersion:
    """Return a version from the object of it."""
    get = found.get
    references, metadata, aliases = get("references"), get("metadata"), get("aliases")
    return SubjectVersion(
        str(found["subject"]),
        int(found["version"]),
        int(found["id"]),
        str(found["schema"]),
        tuple(map(_reference, references)) if references else (),
        properties_of(metadata) if metadata else {},
        get("ts"),
        tuple(map(str, aliases)) if aliases else (),
    )


def _reference(found: JsonBody) -> Reference:
    return Reference(str(found["name"]), str(found["subject"]), int(found["version"]))


def properties_of(metadata: JsonBody) -> dict[str, str]:
    """Return the properties of a version's metadata, if it has some."""
    return dict((metadata or {}).get("properties") or {})
