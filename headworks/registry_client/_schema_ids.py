"""The registry's id of each event schema: looked up, cached on disk, or locked.

Rules: nothing is registered at run time, unless the application asks for it. An id never changes.
If the registry does not answer, an id that an earlier process has cached is used, or the one in a
committed `schemas.lock`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from headworks.codec import EventType, event_type
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from headworks.registry_client._schema_lock import lock_beside

__all__ = ["EventSchemaIds"]

_REFRESH_TIMEOUT_SECONDS = 1.0  # a known id is refreshed with one short request


class EventSchemaIds:
    """Finds schema ids at `registry`, and caches them in a file in `folder`."""

    def __init__(self, registry: str, folder: Path, *, auto_register: bool = False) -> None:
        self._client = RegistryClient(registry)
        self._refresh_client = RegistryClient(
            registry, timeout=_REFRESH_TIMEOUT_SECONDS, attempts=1
        )
        self._path = folder / "schema-ids.json"
        self._auto_register = auto_register

    def find(self, cls: type) -> int:
        """Return the id of the schema of an event class.

        Raises UsageError if the registry does not have it. Raises UnreachableError if no registry
        answers, and neither the cache nor a lock beside the class has it.
        """
        kind: EventType[object] = event_type(cls)
        key = f"{self._client.url} {kind.subject} {kind.fingerprint}"
        known = self._known(cls, kind, key)
        client = self._client if known is None else self._refresh_client
        try:
            if self._auto_register:
                found = client.register(kind.subject, kind.schema)
            else:
                looked_up = client.lookup(kind.subject, kind.schema)
                if looked_up is None:
                    raise UsageError(
                        f"the schema of {kind.name} is not registered in {kind.subject} "
                        f"at {self._client.url}",
                        fix="register it with `headworks schema register` (the deploy step), "
                        "or generate the classes again from the registered schema",
                    )
                found = looked_up
        except UnreachableError:
            if known is None:
                raise
            return known
        self._remember(key, found.id)
        return found.id

    def _known(self, cls: type, kind: EventType[object], key: str) -> int | None:
        """Return the cached id, or the id in the lock beside the class, or None."""
        remembered = self._remembered().get(key)
        if remembered is not None:
            return remembered
        lock = lock_beside(cls)
        return None if lock is None else lock.id_of(kind, self._client.url)

    def _remembered(self) -> dict[str, int]:
        try:
            return {str(k): int(v) for k, v in json.loads(self._path.read_text()).items()}
        except (FileNotFoundError, ValueError):
            return {}

    def _remember(self, key: str, schema_id: int) -> None:
        known = self._remembered()
        if known.get(key) == schema_id:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(f".{os.getpid()}.tmp")
        new.write_text(json.dumps({**known, key: schema_id}, indent=1))
        new.replace(self._path)
