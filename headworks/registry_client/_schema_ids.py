"""The registry's id of each event schema: looked up, cached on disk, or locked.

Rules: nothing is registered at run time, unless the application asks for it. An id never changes.
A disk that takes no cache is logged, and changes nothing else.
If the registry does not answer, an id that an earlier process has cached is used, or the one in a
committed `schemas.lock`. A registry that did not answer is not asked again for some seconds, so
that a service which sends without an id waits once, and not at every event.
The timeout of a socket bounds neither the resolution of a name nor an answer that drips. So a
caller that cannot wait lets a thread ask. If that gets the id late, the next caller finds it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headworks.codec import EventType, event_type
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from headworks.registry_client._schema_lock import lock_beside

_log = logging.getLogger("headworks.registry")
_REFRESH_TIMEOUT_SECONDS = 1.0  # a known id is refreshed with one short request
_HAND_OVER_SECONDS = 0.05  # in which the thread says what the client's own timeout said
_SILENT_SECONDS = 10.0  # how long a registry that did not answer is not asked again


class EventSchemaIds:
    """Finds schema ids at `registry`, and caches them in a file in `folder`.

    A caller that cannot wait waits `timeout` seconds for the registry.
    """

    def __init__(
        self, registry: str, folder: Path, timeout: float = 0.5, *, auto_register: bool = False
    ) -> None:
        self._client = RegistryClient(registry)
        self._refresh_client = RegistryClient(
            registry, timeout=_REFRESH_TIMEOUT_SECONDS, attempts=1
        )
        self._quick_client = RegistryClient(registry, timeout=timeout, attempts=1)
        self._timeout = timeout
        self._silent: tuple[float, UnreachableError] | None = None  # when, in monotonic seconds
        self._path = folder / "schema-ids.json"
        self._auto_register = auto_register
        self._is_told = False  # whether the log names a lock of another registry

    def find(self, cls: type, *, patient: bool = False) -> int:
        """Return the id of the schema of an event class.

        `patient` callers wait for the registry as long as any client of it does. Raises UsageError
        if the registry does not have it. Raises UnreachableError if no registry answers, and
        neither the cache nor a lock beside the class has it.
        """
        kind: EventType[object] = event_type(cls)
        key = f"{self._client.url} {kind.subject} {kind.fingerprint}"
        known = self._known(cls, kind)
        client = self._refresh_client if known is not None else self._quick_client
        client = self._client if patient and known is None else client
        seconds = self._timeout if known is None else _REFRESH_TIMEOUT_SECONDS
        try:
            self._check_silence(patient=patient)
            ask = partial(self._ask, client, kind, key)
            found = ask() if patient and known is None else self._within(seconds, ask)
        except UnreachableError as error:
            self._silent = self._silent or (time.monotonic(), error)
            if known is None:
                self._explain_lock(cls)
                raise
            return known
        self._silent = None
        return found

    def _ask(self, client: RegistryClient, kind: EventType[object], key: str) -> int:
        """Return the id that the registry has, and cache it."""
        if self._auto_register:
            found = client.register(kind.subject, kind.schema)
        else:
            looked_up = client.lookup(kind.subject, kind.schema)
            if looked_up is None:
                raise UsageError(
                    f"the schema of {kind.name} is not registered in {kind.subject} "
                    f"at {self._client.url}",
                    fix=_way_to_register(kind.name),
                )
            found = looked_up
        self._remember(key, found.id)
        return found.id

    def _within(self, seconds: float, ask: Callable[[], int]) -> int:
        """Return what `ask` returns in a thread; UnreachableError if it takes longer."""
        outcome: list[int | BaseException] = []
        done = threading.Event()

        def work() -> None:
            try:
                outcome.append(ask())
            except BaseException as error:
                outcome.append(error)
            done.set()

        threading.Thread(target=work, name="headworks-schema-id", daemon=True).start()
        if not done.wait(seconds + _HAND_OVER_SECONDS):
            raise UnreachableError(
                f"no schema registry answers at {self._client.url} within {seconds:g} s",
                fix="check the registry, the setting `registry`, and the resolution of its name",
            )
        [found] = outcome
        if isinstance(found, BaseException):
            raise found
        return found

    def _check_silence(self, *, patient: bool) -> None:
        """Raise the last error of the registry again, if it is recent."""
        if self._silent is None:
            return
        since, error = self._silent
        if not patient and time.monotonic() - since < _SILENT_SECONDS:
            raise UnreachableError(error.message, fix=error.fix)
        self._silent = None

    def _explain_lock(self, cls: type) -> None:
        """Log that a lock does not help, because it is another registry's."""
        lock = lock_beside(cls)
        known = {self._client.url, *self._client.urls}
        if lock is not None and known.isdisjoint(lock.registries) and not self._is_told:
            self._is_told = True
            _log.warning(
                "schemas.lock has no ids of %s, only of %s: add them with `headworks gen --lock"
                " --registry %s`",
                *(self._client.url, ", ".join(sorted(lock.registries)), self._client.url),
            )

    def _known(self, cls: type, kind: EventType[object]) -> int | None:
        """Return the cached id, or the id in the lock beside the class, or None.

        The registries of a list share their store, so an id of one of them is an id of all.
        """
        remembered, lock = self._remembered(), lock_beside(cls)
        for url in dict.fromkeys((self._client.url, *self._client.urls)):
            found = remembered.get(f"{url} {kind.subject} {kind.fingerprint}")
            if found is None and lock is not None:
                found = lock.id_of(kind, url)
            if found is not None:
                return found
        return None

    def _remembered(self) -> dict[str, int]:
        try:
            return {str(k): int(v) for k, v in json.loads(self._path.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # the file is only a cache

    def _remember(self, key: str, schema_id: int) -> None:
        known = self._remembered()
        if known.get(key) == schema_id:
            return
        # Other processes and threads may write at once, each to a file of its own.
        new = self._path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps({**known, key: schema_id}, indent=1))
            new.replace(self._path)
        except OSError as error:
            _log.warning("%s: the schema id %d is not cached: %s", self._path, schema_id, error)


def _way_to_register(name: str) -> str:
    if name.startswith("headworks."):
        return "run `headworks schema register --bundled` once, which registers our own schemas"
    return (
        "register it with `headworks schema register` (the deploy step), or generate the classes"
        " again from the registered schema"
    )
