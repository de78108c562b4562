"""The values that a registry returns: frozen, without I/O.

Rule: a function reads an answer by the names of Confluent's interface, and any web server may be at
the address. So every error of such a function means that no registry has answered (`reading`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headworks._version_lines import VersionLines
from headworks.compatibility import Finding, Level, Policy
from headworks.errors import HeadworksError, IncompatibleError, RefusedError

JsonBody = Any  # decoded JSON; of a list of versions, perhaps VersionLines
SUBJECT_NOT_FOUND, VERSION_NOT_FOUND = 40401, 40402
SCHEMA_NOT_FOUND = 40403  # the registry's own code: a proxy's 404 says nothing
CHECK_THE_SETTING = "check the setting `registry` (`headworks config show`)"


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Inside the block, an answer of the server at `url` is read: RefusedError if it is none."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RefusedError(
            f"{url} does not answer as a schema registry does ({type(error).__name__}: {error})",
            fix=CHECK_THE_SETTING,
        ) from error


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
        return [subject_version(one) for one in _list(as_json(answer))]
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
        _text(found["schema"]),
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


def _text(found: JsonBody) -> str:
    if not isinstance(found, str):
        raise TypeError(f"the schema is no text: {found!r:.80}")
    return found


def schema_text(found: JsonBody) -> tuple[str, bool]:
    """Return the text of a schema, and whether it refers to others."""
    return _text(found["schema"]), bool(found.get("references"))


def registered(found: JsonBody) -> Registered:
    """Return the id and version of a schema."""
    return Registered(int(found["id"]), int(found["version"]))


def names(found: JsonBody) -> list[str]:
    """Return a list of names."""
    return [str(name) for name in _list(found)]


def numbers(found: JsonBody) -> list[int]:
    """Return a list of numbers."""
    return [int(number) for number in _list(found)]


def _list(found: JsonBody) -> list[JsonBody]:
    if not isinstance(found, list):
        raise TypeError(f"it is no list: {found!r:.80}")
    return found


def numbers_by_subject(found: JsonBody) -> dict[str, list[int]] | None:
    """Return the numbers of the versions of each subject, or None if these are only names."""
    if not all(isinstance(one, dict) and "versions" in one for one in _list(found)):
        return None
    return {str(one["subject"]): numbers(one["versions"]) for one in found}


def places(found: JsonBody) -> list[tuple[str, int]]:
    """Return (subject, version) pairs."""
    return [(str(at["subject"]), int(at["version"])) for at in _list(found)]


def mode(found: JsonBody) -> str:
    """Return the mode that settings name."""
    return str(found["mode"])


def compatibility(found: JsonBody, subject: str) -> Compatibility:
    """Return the requirements that settings name for a subject ("": the default)."""
    policy = found.get("policy")
    return Compatibility(
        Level(found["compatibilityLevel"]),
        Policy.default_of(subject) if policy is None else Policy(policy),
        _group(found),
    )


def _group(settings: JsonBody) -> CompatibilityGroup | None:
    name = settings.get("compatibilityGroup")
    if not name:
        return None
    default, override = (
        properties_of(settings.get(key)).get(name)
        for key in ("defaultMetadata", "overrideMetadata")
    )
    return CompatibilityGroup(name, default, override)


def deprecated_versions(found: JsonBody) -> dict[int, str]:
    """Return the deprecated versions that settings name, each with the reason."""
    reasons = found.get("deprecatedVersions") or {}
    return {int(number): str(reason) for number, reason in reasons.items()}


def verdict(found: JsonBody) -> tuple[bool, list[Finding], list[str]]:
    """Return whether a schema is compatible, what would break, and the registry's words."""
    told = [str(message) for message in found.get("messages") or ()]
    return bool(found["is_compatible"]), findings(found), told


def findings(found: JsonBody) -> list[Finding]:
    """Return what would break, as far as the registry says it."""
    return [Finding.from_dict(finding) for finding in found.get("findings") or ()]


def refusal(url: str, status: int, answer: JsonBody, login_fix: str | None) -> HeadworksError:
    """Return the error for an answer with an error status; `login_fix` is the way out of a 401."""
    body = answer if isinstance(answer, dict) else {}
    given = body.get("error_code")
    code = given if isinstance(given, int) else status  # that of a gateway may be a word
    message = str(body.get("message", f"status {status}"))
    if status == 409 and code in (409, 40901):
        with reading(url):
            broken = findings(body)
        if broken:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            message = f"incompatible schema: {broken[0].message}{more}"
        fix = broken[0].fix if broken else None
        return IncompatibleSchemaError(f"{url}: {message}", broken, fix=fix)
    fix = None
    if status == 401:
        fix = login_fix
    elif status == 403:
        fix = "ask the owner of the registry's file of grants (`--access`) for that role"
    elif code in (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND):
        fix = "`headworks schema list` shows the subjects and their versions"
    return RefusedError(f"{url} refused ({code}): {message}", status=status, code=code, fix=fix)
