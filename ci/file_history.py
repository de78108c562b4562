"""The history of every schema file up to a commit, from one question to git.

    history = FileHistories(repository, commit)
    history.of("schemas/trips.avsc")  # its changes, the newest first, across renames

Rules: a file continues the one that was renamed to it, whatever its extension was. A new file also
continues a deleted one that held the same type or topic: its copy and its deletion may be two
commits. A file keeps its history if it was deleted and came back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headworks._ci.repository import FileChange, Repository
from headworks.errors import SchemaError
from headworks.schema._json_text import decode

_SCHEMA_FILES = "*.avsc"


class FileHistories:
    """The changes of the .avsc files up to `commit`, and of the files that became one."""

    def __init__(self, repository: Repository, commit: str) -> None:
        self._repository = repository
        self._changes: dict[str, list[FileChange]] = {}  # by path, the newest first
        # The paths before, of files that no change of `_changes` says to be renamed.
        self._sources: dict[tuple[str, str], str] = {}
        self._deleted: dict[str, list[str]] | None = None  # deleted files by what they held
        paths = [_SCHEMA_FILES]
        while True:
            self._changes.clear()
            for one in repository.log(commit, paths):
                self._changes.setdefault(one.path, []).append(one)
            self._sources = self._renames()
            others = set(self._sources.values()) - self._changes.keys()
            if not others:
                break
            paths += [f":(top,literal){path}" for path in sorted(others)]

    def of(self, path: str) -> list[FileChange]:
        """Return the changes of the file that is now at `path`, the newest first."""
        found: list[FileChange] = []
        left: str | None = path
        while left is not None:
            path, left = left, None
            for one in self._changes.get(path, ()):
                if found and one.order <= found[-1].order:
                    continue
                found.append(one)
                left = one.source or self._sources.get((one.commit, one.path))
                if left is not None:
                    break
            else:
                left = self._predecessor(path, found)
        return found

    def _renames(self) -> dict[tuple[str, str], str]:
        """Return the sources of files that seem to be added, from changes of all files."""
        added = {
            (one.commit, one.path)
            for one in chain.from_iterable(self._changes.values())
            if one.added and one.path.endswith(_SCHEMA_FILES[1:])
        }
        if not added:
            return {}
        found = self._repository.renames(sorted({commit for commit, _ in added}))
        return {change: source for change, source in found.items() if change in added}

    def _predecessor(self, path: str, found: list[FileChange]) -> str | None:
        """Return the deleted file that a file continues which is added in its oldest change."""
        if self._deleted is None:
            self._deleted = self._read_deleted()
        if not self._deleted or not found or found[-1].blob is None:
            return None
        text = next(self._repository.objects.texts([found[-1].blob]))
        passed = {one.path for one in found} | {path}
        for key in _held(text):
            for other in self._deleted.get(key, ()):
                if other not in passed and self._changes[other][-1].order > found[-1].order:
                    return other
        return None

    def _read_deleted(self) -> dict[str, list[str]]:
        """Return the files that are deleted and were not renamed, by what they held at last."""
        every = [one for changes in self._changes.values() for one in changes]
        renamed = {one.source for one in every if one.source is not None}
        renamed.update(self._sources.values())
        last: dict[str, str] = {}
        for path, changes in self._changes.items():
            if changes[0].blob is None and path not in renamed:
                blob = next((one.blob for one in changes if one.blob is not None), None)
                if blob is not None:
                    last[path] = blob
        held: dict[str, list[str]] = {}
        texts = self._repository.objects.texts(list(last.values()))
        for path, text in zip(last, texts, strict=True):
            for key in _held(text):
                held.setdefault(key, []).append(path)
        return held


def _held(text: str | None) -> Iterator[str]:
    """Yield the full name of a text's type, and its topic or subject."""
    try:
        value = decode(text or "")
    except SchemaError:
        return
    if not isinstance(value, dict):
        return
    name, space, own = value.get("name"), value.get("namespace"), value.get("headworks")
    if isinstance(name, str):
        yield name if "." in name or not isinstance(space, str) else f"{space}.{name}"
    if isinstance(own, dict):
        for key in ("topic", "subject"):
            if isinstance(own.get(key), str):
                yield f"{key} {own[key]}"
