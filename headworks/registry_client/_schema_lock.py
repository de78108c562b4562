"""`schemas.lock`: the registered schema of each generated event class, committed beside them.

    {"registry": "https://registry.internal",
     "schemas": {"orders-value": {"fingerprint": "8c1f..", "version": 3, "id": 17}}}

With several registries, such as those of staging and production, it is `{"registries": {URL:
SCHEMAS, ..}}`.

Rules: ids belong to one registry, so each is used for its own registry only. If the fingerprint
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

FILE_NAME = "schemas.lock"


@dataclass(frozen=True, slots=True)
class LockedSchema:
    """A registered schema."""

    fingerprint: str
    version: int
    id: int


Schemas = Mapping[str, LockedSchema]
"""Registered schemas by subject."""


@dataclass(frozen=True, slots=True)
class SchemaLock:
    """Registered schemas by the URL of their registry."""

    registries: Mapping[str, Schemas]

    def id_of(self, kind: EventType[Any], registry: str) -> int | None:
        """Return the id of an event type's schema at `registry`, or None if the lock has none."""
        found = self.registries.get(registry, {}).get(kind.subject)
        if found is None or found.fingerprint != kind.fingerprint:
            return None
        return found.id

    def covers(self, events: Iterable[tuple[str, str, str]]) -> bool:
        """Return whether each registry has exactly these events: (subject, text, fingerprint)."""
        wanted = {subject: fingerprint for subject, _, fingerprint in events}
        return all(
            {subject: each.fingerprint for subject, each in schemas.items()} == wanted
            for schemas in self.registries.values()
        )

    def with_registry_of(self, other: SchemaLock) -> SchemaLock:
        """Return a lock with the registries of both; those of `other` win."""
        return SchemaLock({**self.registries, **other.registries})

    def text(self) -> str:
        """Return the text of the file."""
        registries = {url: _dumped(schemas) for url, schemas in sorted(self.registries.items())}
        if len(registries) == 1:
            [(url, schemas)] = registries.items()
            return json.dumps({"registry": url, "schemas": schemas}, indent=2) + "\n"
        return json.dumps({"registries": registries}, indent=2) + "\n"


def _dumped(schemas: Schemas) -> dict[str, dict[str, str | int]]:
    return {
        subject: {"fingerprint": each.fingerprint, "version": each.version, "id": each.id}
        for subject, each in sorted(schemas.items())
    }


def _loaded(content: Mapping[str, Any]) -> Schemas:
    return {
        str(subject): LockedSchema(str(e["fingerprint"]), int(e["version"]), int(e["id"]))
        for subject, e in content.items()
    }


def read_lock(path: Path) -> SchemaLock | None:
    """Return the lock in a file, or None if there is no file; UsageError if it is invalid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        registries = content.get("registries")
        if registries is None:
            registries = {content["registry"]: content["schemas"]}
        return SchemaLock({str(url): _loaded(schemas) for url, schemas in registries.items()})
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
    return SchemaLock({client.url: found})
