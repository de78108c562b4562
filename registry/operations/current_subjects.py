"""Remembers the settings and the latest version of subjects for as long as they are current.

Rules:

- Every change of the store raises its revision. A subject that was read at a revision is current
  while the store has that revision, which one short query tells.
- Nothing is decided from memory in a transaction that writes.
- The last MAX_SUBJECTS subjects are remembered, and none of more than MAX_CHARACTERS: its text,
  references, metadata, and rules together with its settings.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Final

from sqlalchemy import Connection

from headworks._registry.operations.scopes import ResolvedSubject, resolve
from headworks._registry.store import RegistryStore, schemas
from headworks._registry.store.schemas import StoredVersion
from headworks._subject import Subject

MAX_SUBJECTS: Final = 1000
MAX_CHARACTERS: Final = 50_000
_NONE: Final = -1  # no revision: a subject that is asked for once needs no query for it


@dataclass(frozen=True, slots=True)
class CurrentSubject:
    """The actual subject behind a name, its settings, and its latest version."""

    resolved: ResolvedSubject
    latest: StoredVersion | None


class CurrentSubjects:
    """Reads subjects of a store; safe to share between threads."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store
        self._known: OrderedDict[Subject, tuple[int, CurrentSubject]] = OrderedDict()  # by revision
        self._lock = Lock()

    def find(self, connection: Connection, name: Subject) -> CurrentSubject:
        """Return the subject of that name, from memory, or else by the connection of a read."""
        known = self._known.get(name)
        # Read before the subject, so what is read is at least as new.
        revision = _NONE if known is None else self._store.revision(connection)
        if known is not None and known[0] == revision:
            return known[1]
        resolved, state = resolve(connection, name)
        latest = schemas.latest_version(connection, resolved.subject) if state.is_live else None
        found = CurrentSubject(resolved, latest)
        if latest is not None and _characters(resolved, latest) <= MAX_CHARACTERS:
            self._remember(name, revision, found)
        return found

    def at(self, name: Subject, revision: int | None) -> CurrentSubject | None:
        """Return the subject of that name, if it was remembered at this revision of the store.

        None: at any revision, so it may have changed since.
        """
        known = self._known.get(name)
        return None if known is None or revision not in (None, known[0]) else known[1]

    def remembers(self, name: Subject) -> bool:
        """Return whether the subject of that name is remembered, as it is or was."""
        return name in self._known

    def _remember(self, name: Subject, revision: int, found: CurrentSubject) -> None:
        with self._lock:
            self._known[name] = revision, found
            self._known.move_to_end(name)
            if len(self._known) > MAX_SUBJECTS:
                self._known.popitem(last=False)


def _characters(resolved: ResolvedSubject, latest: StoredVersion) -> int:
    definition = latest.schema.definition
    found = len(definition.text) + len(json.dumps(resolved.config.content))
    for part in (definition.metadata, definition.rule_set):
        found += len(json.dumps(part)) if part else 0
    return found + sum(len(one.name) + len(one.subject) for one in definition.references)
