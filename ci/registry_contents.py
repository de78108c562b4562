"""Everything that a registry holds, read over its REST interface, and how two of them differ.

It reads ours and any registry with Confluent's interface: versions of all contexts, soft-deleted
ones too, and the settings and modes of the registry, of contexts, and of subjects. `:.__GLOBAL:`
has those of all contexts. Settings of a subject without versions are found only if the subject is
an alias, because no request lists them.

Rules: nothing is written. Two texts are equal if they are one schema in canonical form, since
registries print a schema in different ways. The global mode is no content: an import changes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from headworks._subject import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Subject
from headworks.errors import RefusedError, SchemaError
from headworks.registry_client import Reference, RegistryClient
from headworks.registry_client._answers import reading
from headworks.schema import Schema, parse
from headworks.schema._canonical import canonical_text
from headworks.schema._model import Named, named_types

GLOBAL = ""  # the scope of the registry's own settings
EVERY_CONTEXT = str(Subject(GLOBAL_CONTEXT, ""))  # the scope of settings for all contexts
_ALL_CONTEXTS = ":*:"
_OURS = "policy"  # a setting that only our registry has
Settings = Mapping[str, Any]
Key = tuple[str, int]  # subject and version


@dataclass(frozen=True, slots=True)
class RegistryVersion:
    """One version of a subject, with all that an import keeps."""

    subject: Subject
    number: int
    id: int
    kind: str  # AVRO, JSON, or PROTOBUF
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Settings | None = None
    rule_set: Settings | None = None
    deleted: bool = False

    @property
    def key(self) -> Key:
        """The subject, as written with its context, and the number."""
        return str(self.subject), self.number

    @property
    def referenced(self) -> tuple[Key, ...]:
        """The versions that define types of this one."""
        within = self.subject.context
        return tuple(
            (str(Subject.parse(one.subject, within=within)), one.version) for one in self.references
        )

    def __str__(self) -> str:
        return f"{self.subject} version {self.number}"


@dataclass(frozen=True)
class RegistryContents:
    """All that a registry holds. A scope is a subject, `:.context:`, EVERY_CONTEXT, or GLOBAL."""

    versions: Mapping[Key, RegistryVersion] = field(default_factory=dict)
    configs: Mapping[str, Settings] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)

    @property
    def subjects(self) -> list[str]:
        """The subjects with versions, sorted."""
        return sorted({subject for subject, _ in self.versions})

    @property
    def scopes(self) -> set[str]:
        """All scopes that may have settings: those that have any, and those of the versions."""
        named = {EVERY_CONTEXT, *self.subjects, *_contexts(self.subjects)}
        return named | self.configs.keys() | self.modes.keys()

    def types_of(self, version: RegistryVersion) -> dict[str, Named]:
        """Return the named types that the references of a version define, by full name."""
        types: dict[str, Named] = {}
        for key in version.referenced:
            target = self.versions.get(key)
            if target is not None:
                for node in named_types(self._parsed(target)):
                    types.setdefault(node.name, node)
        return types

    def canonical(self, version: RegistryVersion) -> str:
        """Return the canonical text with references written out; the text itself if not Avro."""
        try:
            return canonical_text(self._parsed(version))
        except (SchemaError, RecursionError):
            return version.text

    def _parsed(self, version: RegistryVersion) -> Schema:
        return parse(version.text, references=self.types_of(version), strict=False)


class Kind(StrEnum):
    """How two registries differ in one place."""

    MISSING = "is missing"
    CONTENT = "has other content"
    NOT_DELETED = "is not soft-deleted"
    NOT_LIVE = "is soft-deleted"
    EXTRA = "is not in the source"
    CONFIG = "has other settings"
    MODE = "has another mode"


@dataclass(frozen=True, slots=True)
class ContentDifference:
    """A place where a registry differs from the one that it is a copy of."""

    kind: Kind
    subject: str  # or another scope
    number: int = 0  # of the version; 0: no version
    detail: str = ""

    def __str__(self) -> str:
        place = self.subject or "the registry"
        version = f" version {self.number}" if self.number else ""
        return f"{place}{version} {self.kind}{self.detail and ': '}{self.detail}"


def read_contents(client: RegistryClient, also: Iterable[str] = ()) -> RegistryContents:
    """Read a whole registry: one request for 1,000 versions, and two for each subject.

    A registry without a list of versions gets one request for each of them.
    Settings and modes are also read of the scopes in `also`, which may have no version there.
    """
    with reading(client.url):
        found = client.list_objects(_ALL_CONTEXTS, deleted=True)
        live = {
            (str(Subject.parse(one["subject"])), int(one["version"]))
            for one in client.list_objects(_ALL_CONTEXTS)
        }
        versions = {one.key: one for one in (_version(each, live) for each in found)}
        aliases = {str(name) for each in found for name in each.get("aliases") or ()}
        subjects = {subject for subject, _ in versions}
        scopes = sorted(
            {*subjects, *aliases, *also, *_contexts(subjects)} - {GLOBAL, EVERY_CONTEXT}
        )
        scopes.append(EVERY_CONTEXT)
        configs = {scope: _own(client, f"/config/{quote(scope, safe='')}") for scope in scopes}
        modes = {scope: _own(client, f"/mode/{quote(scope, safe='')}") for scope in scopes}
        every: Settings = client.ask("GET", "/config")
        return RegistryContents(
            versions,
            {GLOBAL: _settings(every)} | {at: _settings(one) for at, one in configs.items() if one},
            {at: str(one["mode"]) for at, one in modes.items() if one},
        )


def differences(source: RegistryContents, copy: RegistryContents) -> Iterator[ContentDifference]:
    """Yield the places where a copy differs: versions, then settings, then modes.

    Subjects that only the copy has are its own business.
    """
    for key, theirs in source.versions.items():
        ours = copy.versions.get(key)
        if ours is None:
            yield ContentDifference(Kind.MISSING, *key)
        elif changed := _changed(source, theirs, copy, ours):
            yield ContentDifference(Kind.CONTENT, *key, changed)
        elif theirs.deleted != ours.deleted:
            yield ContentDifference(Kind.NOT_LIVE if ours.deleted else Kind.NOT_DELETED, *key)
    known = set(source.subjects)
    for key in copy.versions:
        if key[0] in known and key not in source.versions:
            yield ContentDifference(Kind.EXTRA, *key)
    scopes = {GLOBAL, *source.scopes}
    for scope in sorted(scopes):
        wanted, held = source.configs.get(scope, {}), copy.configs.get(scope, {})
        if changed := ", ".join(sorted(settings_to_change(wanted, held))):
            yield ContentDifference(Kind.CONFIG, scope, detail=changed)
    for scope in sorted(scopes - {GLOBAL}):
        mode = copy.modes.get(scope)
        if source.modes.get(scope) != mode:
            yield ContentDifference(Kind.MODE, scope, detail=mode or "none of its own")


def _contexts(subjects: Iterable[str]) -> set[str]:
    """Return the scopes of the contexts of subjects, but for the default context."""
    found = {Subject.parse(one).whole_context for one in subjects}
    return {str(one) for one in found if one.context != DEFAULT_CONTEXT}


def settings_to_change(wanted: Settings, held: Settings) -> dict[str, Any]:
    """Return the update that makes settings equal; None removes a field."""
    names = {*wanted, *held} - ({_OURS} - wanted.keys())
    return {name: wanted.get(name) for name in names if wanted.get(name) != held.get(name)}


def _changed(
    source: RegistryContents, theirs: RegistryVersion, copy: RegistryContents, ours: RegistryVersion
) -> str:
    """Return the names of what differs in the content of one version."""
    pairs = {
        "id": (theirs.id, ours.id),
        "references": (_references(theirs), _references(ours)),
        "metadata": (theirs.metadata, ours.metadata),
        "rule set": (_rules(theirs.rule_set), _rules(ours.rule_set)),
    }
    names = [name for name, (left, right) in pairs.items() if left != right]
    if theirs.text != ours.text and source.canonical(theirs) != copy.canonical(ours):
        names.append("text")
    return ", ".join(names)


def _references(version: RegistryVersion) -> list[tuple[str, Key]]:
    names = (one.name for one in version.references)
    return sorted(zip(names, version.referenced, strict=True))


def _rules(rule_set: Settings | None) -> object:
    """Return a rule set without members that have no value; some registries print them."""
    return json.loads(json.dumps(rule_set), object_hook=_filled)


def _filled(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if one not in (None, [], {}, False)}


def _version(found: Settings, live: set[Key]) -> RegistryVersion:
    subject, number = Subject.parse(str(found["subject"])), int(found["version"])
    return RegistryVersion(
        subject,
        number,
        int(found["id"]),
        str(found.get("schemaType") or "AVRO"),
        str(found["schema"]),
        tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in found.get("references") or ()
        ),
        _part(found.get("metadata")),
        _part(found.get("ruleSet")),
        (str(subject), number) not in live,
    )


def _part(found: Settings | None) -> Settings | None:
    """Return metadata or a rule set without empty members; None if nothing is left."""
    filled = {name: one for name, one in (found or {}).items() if one not in (None, [], {})}
    return filled or None


def _settings(found: Settings) -> dict[str, Any]:
    named = {name: value for name, value in found.items() if value is not None}
    if "compatibility" in named:  # some registries answer with the name of an update
        named["compatibilityLevel"] = named.pop("compatibility")
    return named


def _own(client: RegistryClient, path: str) -> Settings | None:
    """Return the settings or the mode of exactly this scope, or None."""
    try:
        found: Settings = client.ask("GET", path)
    except RefusedError as error:
        if error.status == 404:
            return None
        raise
    return found
