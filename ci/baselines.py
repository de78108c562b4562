"""The baseline of a check: the merge base of a branch, or a live registry.

A baseline has subjects, and each subject has versions. Rule: `headworks.compatibility` alone
decides on compatibility.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headworks._ci.catalog import SchemaCatalog, SchemaFile, SharedSchemas, belongs
from headworks._ci.file_history import FileHistories
from headworks._ci.governance import GovernanceFile, SubjectGovernance
from headworks._ci.repository import FileChange, Repository
from headworks.compatibility import Version
from headworks.errors import RefusedError, SchemaError, UsageError
from headworks.schema import Schema, parse
from headworks.schema._canonical import canonical_text, is_same
from headworks.schema._model import Named, named_types

if TYPE_CHECKING:
    from headworks.registry_client import RegistryClient, SubjectVersion

# Statuses by which a registry refuses the schema itself, and not the client.
_REFUSAL_STATUSES = (409, 422)
_SHOWN_DIGITS = 12  # of a commit
# The one mode in which a registry accepts a schema without an id.
_READWRITE = "READWRITE"


@dataclass(frozen=True, slots=True)
class SubjectHistory:
    """The versions of a subject in a baseline, and the rules for new ones."""

    versions: tuple[Version, ...]  # oldest first
    governance: SubjectGovernance
    labels: tuple[str, ...]  # of the versions: a commit, or a number in the registry
    path: str | None = None  # of the file
    # Canonical texts that are registered already, even if other versions followed.
    registered: frozenset[str] = frozenset()

    def has_registered(self, schema: Schema) -> bool:
        """Return whether the registry has the schema already."""
        return bool(self.registered) and canonical_text(schema) in self.registered

    def label(self, number: int | None) -> str | None:
        """Return the label of that version, or None."""
        for version, label in zip(self.versions, self.labels, strict=True):
            if version.number == number:
                return label
        return None


@dataclass(frozen=True, slots=True)
class CommittedFiles:
    """The files of a baseline in git; their paths are relative to the root of the repository."""

    root: Path
    commit: str

    def restore(self, path: str) -> str:
        """Return the command that restores a file, in any folder of the repository."""
        return shlex.join(["git", "checkout", self.commit[:_SHOWN_DIGITS], "--", f":/{path}"])


class Baseline(Protocol):
    """One baseline of a check."""

    @property
    def name(self) -> str:
        """The name of the baseline on the command line."""

    @property
    def files(self) -> CommittedFiles | None:
        """Its files, if it has any."""

    def subjects(self) -> dict[str, str | None]:
        """Return the subjects, each with its file if it has one."""

    def history(self, subject: str) -> SubjectHistory | None:
        """Return the versions of a subject, or None if it is new."""

    def refusal(self, subject: str, schema: Schema, wanted: SubjectGovernance) -> str | None:
        """Return why the baseline would refuse the schema, beyond compatibility, or None.

        `wanted` is the governance of the catalog, which a deploy gives to a new subject.
        """


def open_baseline(
    text: str, schemas: Path, governance: GovernanceFile, shared: SharedSchemas | None = None
) -> Baseline:
    """Return the baseline for `git:REF` or `registry:URL`; otherwise UsageError.

    With the `shared` fields of the checked catalog, a git baseline is read and compared fast.
    """
    kind, _, rest = text.partition(":")
    if kind == "git" and rest:
        return GitBaseline(rest, schemas, governance, shared or SharedSchemas())
    if kind == "registry" and rest:
        from headworks.registry_client import RegistryClient  # a check against git needs no HTTP

        return RegistryBaseline(RegistryClient(rest))
    raise UsageError(
        f"{text!r} is not a baseline",
        fix="use git:REF (git:origin/main) or registry:URL (registry:http://127.0.0.1:8081)",
    )


@dataclass(slots=True)
class GitBaseline:
    """The merge base of HEAD and `ref`, and the history of each file up to it."""

    ref: str
    schemas: Path
    governance: GovernanceFile
    shared: SharedSchemas
    _folder: str = field(init=False)  # of the catalog, in git
    _roots: tuple[str, str] = field(
        init=False
    )  # the start of its files' paths: in git, in the catalog
    _repository: Repository = field(init=False)
    _commit: str = field(init=False)
    _shallow: bool = field(init=False)  # asked once: a question to git is a process
    _files_before: FileHistories = field(init=False)
    _now: SchemaCatalog = field(init=False)
    _files: dict[str, SchemaFile] = field(init=False)
    _read: tuple[str, Mapping[str, str]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._repository = Repository.around(self.schemas)
        root = self.schemas if self.schemas.is_dir() else self.schemas.parent
        self._folder = self._repository.relative(root)
        inside = ["" if one == "." else f"{one}/" for one in (self._folder, root.as_posix())]
        self._roots = inside[0], inside[1]
        self._commit = self._repository.merge_base(self.ref)
        self._shallow = self._repository.is_shallow()
        with ThreadPoolExecutor(1) as thread:  # while git reads the log, the files are parsed
            files_before = thread.submit(FileHistories, self._repository, self._commit)
            self._read_files()
            self._files_before = files_before.result()

    def _read_files(self) -> None:
        here = self._texts(self._commit)
        moved = self._moved_here()
        mapped = self._mapped()
        shown = {path: self._shown(path) for path in here}
        only_here = SchemaCatalog(here, mapped, self.shared, shown)
        self._files = only_here.subjects()
        both = {**moved, **here}
        self._now = SchemaCatalog(both, mapped, self.shared, shown) if moved else only_here
        for one in map(self._now.file, moved):
            if one.subject is not None:
                self._files.setdefault(one.subject, one)

    @property
    def name(self) -> str:
        """The name of the baseline on the command line."""
        return f"git:{self.ref}"

    def subjects(self) -> dict[str, str | None]:
        """Return the subjects of the merge base, with their files."""
        return {subject: one.path for subject, one in self._files.items()}

    @property
    def files(self) -> CommittedFiles:
        """The files of the merge base."""
        return CommittedFiles(self._repository.root, self._commit)

    def history(self, subject: str) -> SubjectHistory | None:
        """Return the distinct versions in the history of the subject's file."""
        found = self._files.get(subject)
        if found is None:
            return None
        governance = self.governance.of(subject)
        if self._shallow and governance.level.transitive:
            raise UsageError(
                f"the clone is shallow, and {governance.level} needs every version of {found.path}",
                fix="git fetch --unshallow (in CI: fetch-depth: 0)",
            )
        versions, labels = self._history(subject, found.path)
        return SubjectHistory(versions, governance, labels, found.path)

    def refusal(self, subject: str, schema: Schema, wanted: SubjectGovernance) -> None:
        """Return None: a commit accepts every schema."""

    def _history(self, subject: str, path: str) -> tuple[tuple[Version, ...], tuple[str, ...]]:
        """Return the distinct schemas of the file, oldest first; only readable ones of the subject.

        A schema also changes if a file changes from which it uses types.
        """
        # governance.toml of today gives the file its subject, at whatever path it once was.
        mapped = self.governance.has_file(subject)
        states = list(self._states(path, subject if mapped else None))
        # A mapped file may be the successor of another schema, whose type had another name.
        own = next((_type_name(one) for one, _ in reversed(states)), None) if mapped else None
        versions: list[Version] = []
        labels: list[str] = []
        for one, change in states:
            if one.schema is None or one.subject != subject:
                continue
            if own is not None and _type_name(one) != own:
                continue
            if not versions or not is_same(versions[-1].schema, one.schema):
                versions.append(Version(len(versions) + 1, one.schema))
                labels.append(f"commit {change.commit[:9]} of {change.day}")
        return tuple(versions), tuple(labels)

    def _states(self, path: str, subject: str | None) -> Iterator[tuple[SchemaFile, FileChange]]:
        """Yield the file after each commit that changed it or a file that it uses, oldest first.

        If `subject` is not None, it is the subject of the file. The last state is that of the merge
        base, also if a merge discarded the last change.
        """
        files = [path, *self._now.sources(path)]
        changes = {file: self._files_before.of(file) for file in files}
        at = {file: found[-1].path if found else file for file, found in changes.items()}
        by_commit: dict[str, dict[str, FileChange]] = {}
        every = [(one.order, file, one) for file, found in changes.items() for one in found]
        for _, file, one in sorted(every, key=lambda each: -each[0]):
            by_commit.setdefault(one.commit, {})[file] = one
        names: list[str | None] = []
        states: list[tuple[FileChange, tuple[str, ...]]] = []
        for commit, changed in by_commit.items():
            at |= {file: one.path for file, one in changed.items()}
            states.append((next(iter(changed.values())), tuple(at[file] for file in files)))
            for file in files:
                own = changed.get(file)
                names.append(f"{commit}:{at[file]}" if own is None else own.blob)
        found = iter(self._repository.objects.texts(names))
        known: dict[str, str] = {}
        for change, paths in states:
            texts = dict(zip(files, [next(found) for _ in files], strict=True))
            known = {file: text for file, text in texts.items() if text is not None}
            if path in known:
                yield self._in(change.commit, path, known, paths, subject), change
        now = {file: text for file in files if (text := self._now.texts.get(file)) is not None}
        if known != now and path in now:
            base = FileChange(self._commit, self._repository.day(self._commit), path, None, -1)
            yield self._in(self._commit, path, now, files, subject), base

    def _in(
        self,
        commit: str,
        path: str,
        known: Mapping[str, str],
        paths: Sequence[str],
        subject: str | None,
    ) -> SchemaFile:
        """Return a file as of a commit, in which it may have used other files than now.

        `known` has the texts of the file and of those that it uses now, by their paths now, and
        `paths` are their paths as of the commit.
        """
        mapped = {} if subject is None else {path: subject}
        shown = {file: self._shown(file) for file in known}
        one = SchemaCatalog(known, mapped, self.shared, shown).file(path)
        if one.error is None or one.error.rule != "undefined-type":
            return one
        beside = self._repository.texts(commit, paths[0].rpartition("/")[0])
        others = {**self._texts(commit), **beside}
        others = {file: text for file, text in others.items() if file not in paths}
        return SchemaCatalog({**others, **known}, mapped, self.shared, shown).file(path)

    def _shown(self, path: str) -> str:
        """Return the path by which the checked catalog names a file of the repository."""
        before, after = self._roots
        return after + path.removeprefix(before) if path.startswith(before) else path

    def _texts(self, commit: str) -> Mapping[str, str]:
        """Return the catalog of a commit; the last one is cached."""
        if self._read is None or self._read[0] != commit:
            texts = self._repository.texts(commit, self._folder)
            root = "" if self._folder == "." else f"{self._folder}/"
            kept = {path: text for path, text in texts.items() if belongs(path.removeprefix(root))}
            self._read = commit, kept
        return self._read[1]

    def _mapped(self) -> dict[str, str]:
        """Return the subjects of mapped files, by their paths now and at the merge base."""
        now = self.governance.mapped(self._folder)
        moves = self._repository.moves(self._commit) if now else {}
        before = {moves[path]: subject for path, subject in now.items() if path in moves}
        return {**before, **now}

    def _moved_here(self) -> dict[str, str]:
        """Return files of the merge base from the folder that the catalog had before a rename."""
        moves = self._repository.moves(self._commit).items()
        old = [was for now, was in moves if now.startswith(f"{self._folder}/")]
        texts = self._repository.objects.texts([f"{self._commit}:{path}" for path in old])
        return {path: text for path, text in zip(old, texts, strict=True) if text is not None}


def _type_name(one: SchemaFile) -> str | None:
    """Return the full name of a file's type, or its kind if it has no name; None without one."""
    if one.schema is None:
        return None
    return one.schema.name if isinstance(one.schema, Named) else one.schema.kind


@dataclass(slots=True)
class RegistryBaseline:
    """A live registry, with its live versions, levels, and policies."""

    client: RegistryClient
    _subjects: Sequence[str] | None = None

    @property
    def name(self) -> str:
        """The name of the baseline on the command line."""
        return f"registry:{self.client.url}"

    @property
    def files(self) -> None:
        """A registry has none."""

    def subjects(self) -> dict[str, str | None]:
        """Return the live subjects of the registry."""
        if self._subjects is None:
            self._subjects = self.client.subjects()
        return dict.fromkeys(self._subjects)

    def history(self, subject: str) -> SubjectHistory | None:
        """Return the live versions that the registry compares with, at its level and policy."""
        if subject not in self.subjects():
            return None
        history = self.client.history(subject)
        held = self.client.compatibility(subject)
        parsed = [Version(one.version, self._parse(one)) for one in history]
        texts = frozenset(canonical_text(one.schema) for one in parsed)
        compared = history if held.group is None else held.group.members(history)
        numbers = {one.version for one in compared}
        versions = tuple(one for one in parsed if one.number in numbers)
        labels = tuple(f"version {one.version}, id {one.id}" for one in compared)
        governance = SubjectGovernance(held.level, held.policy)
        return SubjectHistory(versions, governance, labels, registered=texts)

    def schemas(self, subject: str) -> list[Schema]:
        """Return the schemas of the live versions of a subject, oldest first."""
        return [self._parse(one) for one in self.client.history(subject)]

    def closed(self, subject: str) -> str | None:
        """Return why the registry's mode forbids registration in the subject now, or None."""
        mode = self.client.mode(subject)
        return None if mode == _READWRITE else f"{self.name} is in mode {mode} for {subject}"

    def refusal(self, subject: str, schema: Schema, wanted: SubjectGovernance) -> str | None:
        """Return the registry's mode or its own refusal, or None.

        The registry checks at its own level and policy. Its findings on a new subject do not count
        if a deploy will first set other ones.
        """
        closed = self.closed(subject)
        if closed is not None:
            return closed
        try:
            found = self.client.check(subject, canonical_text(schema))
        except RefusedError as error:
            if error.status not in _REFUSAL_STATUSES:
                raise
            return error.message
        if not found or self._will_change(subject, wanted):
            return None
        return found[0].message

    def _will_change(self, subject: str, wanted: SubjectGovernance) -> bool:
        """Return whether a deploy gives a new subject another level or policy."""
        if subject in self.subjects():
            return False
        held = self.client.compatibility(subject)
        return (held.level, held.policy) != (wanted.level, wanted.policy)

    def _parse(self, one: SubjectVersion) -> Schema:
        """Parse a registered version, with the types that it references."""
        types: dict[str, Named] = {}
        for reference in one.references:
            other = self._parse(self.client.version(reference.subject, reference.version))
            types |= {node.name: node for node in named_types(other)}
        try:
            return parse(one.text, references=types, strict=False)
        except SchemaError as error:
            raise UsageError(
                f"version {one.version} of {one.subject} in {self.client.url} is no schema: {error}"
            ) from None
