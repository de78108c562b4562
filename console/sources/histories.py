"""The versions of a subject, read from the registry once.

Rule: a version never changes, so a page asks for the numbers and the newest version alone. If the
numbers or the newest version are not those that were read, all are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from headworks.errors import RefusedError
from headworks.registry_client import RegistryClient, SubjectVersion

_MAX_KEPT_VERSIONS = 5_000  # of some KB, of all subjects together


class HistoryReader:
    """Reads the versions of subjects; safe to share between threads."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._lock = Lock()
        self._known: dict[str, Mapping[int, SubjectVersion]] = {}  # by subject and number

    def __call__(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions of a subject, oldest first; with `deleted`, soft-deleted ones too.

        There are none if the registry has no such subject, or has it under another name.
        """
        numbers = self._registry.versions(subject, deleted=deleted)
        if not numbers:
            return []
        known = self._known.get(subject, {})
        if not (known.keys() >= {*numbers} and self._is_newest(subject, known[max(numbers)])):
            known = self._read(subject)
        return [known[number] for number in numbers if number in known]

    def _is_newest(self, subject: str, known: SubjectVersion) -> bool:
        try:
            return self._registry.version(subject, known.version, deleted=True) == known
        except RefusedError:  # deleted since
            return False

    def _read(self, subject: str) -> Mapping[int, SubjectVersion]:
        listed = self._registry.list_versions(subject, deleted=True)
        found = {one.version: one for one in listed if one.subject == subject}
        with self._lock:
            if len(found) + sum(map(len, self._known.values())) > _MAX_KEPT_VERSIONS:
                self._known.clear()
            self._known[subject] = found
        return found
