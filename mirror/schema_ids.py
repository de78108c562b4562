"""The schema ids in mirrored messages must mean the same on the target as on the source.

Rules: bytes are never changed. If the target's registry does not have an id, or has another schema
under it, the mirror stops before that message, or copies the schema first. A value that starts with
the magic byte and an id unknown to the source's registry is not governed, and passes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headworks._wire import HEADER_SIZE, MAGIC, unframe
from headworks.errors import FindingsError, RefusedError
from headworks.registry_client import SCHEMA_NOT_FOUND, RegistryClient
from headworks.schema._json_text import json_or_text

_log = logging.getLogger("headworks.mirror")
_MAX_CACHED_PREFIXES = 100_000


class SchemaIdCheck:
    """Compares each id between `source` and `target` once; `copy` copies missing schemas."""

    def __init__(self, source: RegistryClient, target: RegistryClient, *, copy: bool) -> None:
        self._source = source
        self._target = target
        self._copy = copy
        self._checked: set[bytes] = set()  # prefixes of bytes whose id both sides agree on

    def check(self, data: bytes | None, where: Callable[[], str]) -> None:
        """Check the id at the start of a key or a value, if there is one; `where` names its
        position.

        Raises FindingsError if the registries disagree, and UnreachableError if one does not
        answer.
        """
        if not data or data[0] != MAGIC or len(data) < HEADER_SIZE:
            return
        prefix = data[:HEADER_SIZE]
        if prefix in self._checked:
            return
        self._count_mirrored(unframe(data)[0], where())
        if len(self._checked) >= _MAX_CACHED_PREFIXES:
            self._checked.clear()
        self._checked.add(prefix)

    def _count_mirrored(self, schema_id: int, where: str) -> None:
        source_text = _text(self._source, schema_id)
        if source_text is None:
            return
        target_text = _text(self._target, schema_id)
        if target_text is None and self._copy:
            self._copy_uses(schema_id)
            target_text = _text(self._target, schema_id)
        if target_text is None:
            raise FindingsError(
                f"{where} is written in schema {schema_id} of {self._source.url}, "
                f"which {self._target.url} does not have",
                fix="let --registry-mirror copy schemas, or share one registry",
            )
        if json_or_text(source_text) != json_or_text(target_text):
            raise FindingsError(
                f"{where} is written in schema {schema_id}, which is one schema in "
                f"{self._source.url} and another in {self._target.url}: "
                f"{_names(self._source, schema_id)} there, {_names(self._target, schema_id)} here",
                fix="ids must mean the same on both sides: begin with an empty registry on the "
                "target and --registry-mirror, or share one registry",
            )

    def _copy_uses(self, schema_id: int) -> None:
        """Copy all versions of every subject that has the schema."""
        done: set[tuple[str, int]] = set()
        for subject, number in self._source.uses(schema_id):
            for version in sorted({number, *self._source.versions(subject)}):
                self._copy_version(subject, version, done)

    def _copy_version(self, subject: str, number: int, done: set[tuple[str, int]]) -> None:
        """Copy a version after the versions that it references."""
        if (subject, number) in done:
            return
        done.add((subject, number))
        version = self._source.version(subject, number, deleted=True)
        for reference in version.references:
            self._copy_version(reference.subject, reference.version, done)
        if (subject, number) in self._target.uses(version.id):
            return
        self._target.import_version(version)
        about = {"subject": subject, "version": number, "schema_id": version.id}
        _log.info("copied %s version %d, id %d", subject, number, version.id, extra=about)


def _text(registry: RegistryClient, schema_id: int) -> str | None:
    try:
        return registry.schema_text(schema_id)
    except RefusedError as error:
        if error.code == SCHEMA_NOT_FOUND:
            return None
        raise


def _names(registry: RegistryClient, schema_id: int) -> str:
    """Return the subjects that have the schema, for an error text."""
    names = sorted({subject for subject, _ in registry.uses(schema_id)})
    return ", ".join(names[:3]) or "no subject"
