"""The identity of a schema: its canonical text, references, metadata, and rule set.

The guid is the MD5 of that content in a fixed order, as Confluent computes it (for a schema
without references, metadata and rules: the MD5 of its canonical text). The digest, which the
store compares, covers the same bytes with SHA-256, because MD5 collisions can be made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A type used by a schema and defined by another: full name, subject and version."""

    name: str
    subject: str
    version: int

    def as_dict(self) -> dict[str, object]:
        """Return the JSON object of the interface."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class Definition:
    """The content that one schema id stands for; never changed once stored."""

    text: str
    references: tuple[SchemaReference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None

    @cached_property
    def guid(self) -> str:
        """The content's id across contexts and registries."""
        md5 = hashlib.md5(usedforsecurity=False)
        for part in self._parts():
            md5.update(part)
        return str(UUID(bytes=md5.digest()))

    @cached_property
    def digest(self) -> str:
        """The content's fingerprint, by which the store finds it."""
        sha = hashlib.sha256()
        for part in self._parts():
            sha.update(len(part).to_bytes(8, "big") + part)
        return sha.hexdigest()

    def _parts(self) -> Iterator[bytes]:
        yield self.text.encode()
        for reference in self.references:
            yield reference.name.encode()
            yield reference.subject.encode()
            yield reference.version.to_bytes(4, "big", signed=True)
        for content in (self.metadata, self.rule_set):
            if content is not None:
                yield b"\x01"
                yield json.dumps(content, sort_keys=True, ensure_ascii=False).encode()
