"""`schemas.lock`: the registered schema of each generated event class, committed beside them.

    {"registry": "https://registry.internal",
     "schemas": {"orders-value": {"fingerprint": "8c1f..", "version": 3, "id": 17}}}

Rules: ids belong to one registry, so a lock is used for its own registry only. If the fingerprint
differs from the class's, the class is newer than the lock, and the lock is not used for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headworks.codec import EventType
from headworks.errors import FindingsError, UsageError
from headworks.registry_client._client import RegistryClient

__all__ = ["FILE_NAME", "LockedSchema", "SchemaLock", "lock_beside", "lock_of", "read_lock"]

FILE_NAME = "schemas.lock"


@dataclass(frozen=True, slots=True)
class LockedSchema:
    """A registered schema."""

    fingerprint: str
    version: int
    id: int


@dataclass(frozen=True, slots=True)
class SchemaLock:
    """Registered schemas by subject, and the URL of their registry."""

    registry: str
    schemas: Mapping[str, LockedSchema]

    def id_of(self, kind: EventType[Any], registry: str) -> int | None:
        """Return the id of an event type's schema at `registry`, or None if the lock has none."""
        found = self.schemas.get(kind.subject)
        if found is None or found.fingerprint != kind.fingerprint or registry != self.registry:
            return None
        return found.id

    def covers(self, events: Iterable[tuple[str, str, str]]) -> bool:
        """Return whether it has exactly these events: (subject, text, fingerprint) each."""
        return {s: e.fingerprint for s, e in self.schemas.items()} == {
            subject: fingerprint for subject, _, fingerprint in events
        }

    def text(self) -> str:
        """Return the text of the file."""
        schemas = {
            subject: {"fingerprint": each.fingerprint, "version": each.version, "id": each.id}
            for subject, each in sorted(self.schemas.items())
        }
        return json.dumps({"registry": self.registry, "schemas": schemas}, indent=2) + "\n"


def read_lock(path: Path) -> SchemaLock | None:
    """Return the lock in a file, or None if there is no file; UsageError if it is invalid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return SchemaLock(
            str(content["registry"]),
            {
                str(subject): LockedSchema(str(e["fingerprint"]), int(e["version"]), int(e["id"]))
                for subject, e in content["schemas"].items()
            },
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not a lock of schemas: {error!r}",
            fix="rewrite it with `headworks gen --lock`",
        ) from None


def lock_beside(cls: type) -> SchemaLock | None:
    """Return the lock beside the module of a generated class, or None."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return None if file is None else read_lock(Path(file).parent / FILE_NAME)


def lock_of(events: Iterable[tuple[str, str, str]], client: RegistryClient) -> SchemaLock:
    """Return the lock of events, (subject, text, fingerprint) each, from the registry.

    Raises FindingsError if some are not registered.
    """
    found: dict[str, LockedSchema] = {}
    missing: list[str] = []
    for subject, text, fingerprint in events:
        known = client.lookup(subject, text)
        if known is None:
            missing.append(subject)
        else:
            found[subject] = LockedSchema(fingerprint, known.version, known.id)
    if missing:
        raise FindingsError(
            f"not registered at {client.url}: {', '.join(sorted(missing))}",
            fix="register them with `headworks schema register`, then write the lock",
        )
    return SchemaLock(client.url, found)
