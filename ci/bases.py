"""What a change is held against: the merge base of a branch, or a live registry.

Both answer the same two questions: which subjects exist, and which versions a subject has. The
verdict itself is `headworks.compatibility`'s, whoever asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ci.catalogue import Catalogue, SchemaFile
from ci.governance import Demand, Governance
from ci.repository import Repository
from headworks.compatibility import Version
from headworks.errors import SchemaError, UsageError
from headworks.registry_client import RegistryClient, SubjectVersion
from headworks.schema import Schema, parse
from headworks.schema.canonical import canonical_text
from headworks.schema.model import Named, named_types

__all__ = ["Base", "GitBase", "Past", "RegistryBase", "open_base"]


@dataclass(frozen=True, slots=True)
class Past:
    """The versions of a subject, oldest first, what it is held to, and where the file was."""

    versions: tuple[Version, ...]
    demand: Demand
    labels: tuple[str, ...]
    path: str | None = None

    def label(self, number: int | None) -> str | None:
        """How people find that version: a commit, or a number in the registry."""
        for version, label in zip(self.versions, self.labels, strict=True):
            if version.number == number:
                return label
        return None


class Base(Protocol):
    """One thing that a change is held against."""

    @property
    def name(self) -> str:
        """How the base is called on the command line."""

    def subjects(self) -> dict[str, str | None]:
        """The subjects that exist there, with the file of each where there is one."""

    def past(self, subject: str) -> Past | None:
        """The versions of a subject, or None if it is new."""


def open_base(text: str, schemas: Path, governance: Governance) -> Base:
    """The base that `git:REF` or `registry:URL` names; UsageError for anything else."""
    kind, _, rest = text.partition(":")
    if kind == "git" and rest:
        return GitBase(rest, schemas, governance)
    if kind == "registry" and rest:
        return RegistryBase(rest)
    raise UsageError(
        f"{text!r} is nothing to check against",
        fix="use git:REF (git:origin/main) or registry:URL (registry:http://127.0.0.1:8081)",
    )


@dataclass(slots=True)
class GitBase:
    """The commit where HEAD left `ref`, and the history of each file up to it."""

    ref: str
    schemas: Path
    governance: Governance
    _repository: Repository = field(init=False)
    _commit: str = field(init=False)
    _files: dict[str, SchemaFile] = field(init=False)

    def __post_init__(self) -> None:
        self._repository = Repository.around(self.schemas)
        self._commit = self._repository.merge_base(self.ref)
        self._files = Catalogue(self._texts(self._commit)).subjects()

    @property
    def name(self) -> str:
        """How the base is called on the command line."""
        return f"git:{self.ref}"

    def subjects(self) -> dict[str, str | None]:
        """The subjects of the merge base, with their files."""
        return {subject: one.path for subject, one in self._files.items()}

    def past(self, subject: str) -> Past | None:
        """The distinct versions in the history of the subject's file."""
        found = self._files.get(subject)
        if found is None:
            return None
        demand = self.governance.of(subject)
        if self._repository.is_shallow() and demand.level.transitive:
            raise UsageError(
                f"the clone is shallow, and {demand.level} needs every version of {found.path}",
                fix="git fetch --unshallow (in CI: fetch-depth: 0)",
            )
        versions, labels = self._history(subject, found.path)
        return Past(versions, demand, labels, found.path)

    def _history(self, subject: str, path: str) -> tuple[tuple[Version, ...], tuple[str, ...]]:
        """The distinct texts the file had, oldest first; readable ones of this subject only."""
        versions: list[Version] = []
        labels: list[str] = []
        last = None
        for change in reversed(list(self._repository.changes(self._commit, path))):
            one = self._at(change.commit, change.path)
            if one is None or one.schema is None or one.subject != subject:
                continue
            text = canonical_text(one.schema)
            if text != last:
                versions.append(Version(len(versions) + 1, one.schema))
                labels.append(f"commit {change.commit[:9]} of {change.day}")
                last = text
        return tuple(versions), tuple(labels)

    def _at(self, commit: str, path: str) -> SchemaFile | None:
        """The file in a commit, with the types that it took from others then; None if deleted."""
        text = self._repository.text(commit, path)
        if text is None:
            return None
        alone = Catalogue({path: text}).file(path)
        if alone.error is None or alone.error.rule != "undefined-type":
            return alone
        texts = self._texts(commit) | self._repository.texts(commit, path.rpartition("/")[0])
        return Catalogue(texts).file(path)

    def _texts(self, commit: str) -> dict[str, str]:
        folder = self.schemas if self.schemas.is_dir() else self.schemas.parent
        return self._repository.texts(commit, self._repository.relative(folder))


@dataclass(slots=True)
class RegistryBase:
    """A live registry: all its live versions, its own levels and policies."""

    url: str
    _client: RegistryClient = field(init=False)
    _subjects: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self._client = RegistryClient(self.url)

    @property
    def name(self) -> str:
        """How the base is called on the command line."""
        return f"registry:{self.url}"

    def subjects(self) -> dict[str, str | None]:
        """The live subjects of the registry."""
        if self._subjects is None:
            self._subjects = self._client.subjects()
        return dict.fromkeys(self._subjects)

    def past(self, subject: str) -> Past | None:
        """The live versions of the subject, at its level and policy in the registry."""
        if subject not in self.subjects():
            return None
        history = self._client.history(subject)
        held = self._client.compatibility(subject)
        versions = [Version(one.version, self._parse(one)) for one in history]
        labels = tuple(f"version {one.version}, id {one.id}" for one in history)
        return Past(tuple(versions), Demand(held.level, held.policy), labels)

    def _parse(self, one: SubjectVersion) -> Schema:
        """A registered version, with the types that it takes from others by reference."""
        types: dict[str, Named] = {}
        for reference in one.references:
            other = self._parse(self._client.version(reference.subject, reference.version))
            types |= {node.name: node for node in named_types(other)}
        try:
            return parse(one.text, references=types, strict=False)
        except SchemaError as error:
            raise UsageError(
                f"version {one.version} of {one.subject} in {self.url} cannot be read: {error}"
            ) from None
