"""Levels, policies, versions, and findings: the values of a compatibility check.

Frozen values without behavior beyond their own form. The rules are in `_rules`, the checks in
`_resolution` and `_hive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from headworks.errors import UsageError
from headworks.schema import topic_of
from headworks.schema._model import Schema


class Level(StrEnum):
    """The registry's compatibility level: which schemas must read which data.

    BACKWARD: consumers on the new schema read the old data. FORWARD: consumers on the old schema
    read the new data. FULL: both. _TRANSITIVE: against every version, not only the latest.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @classmethod
    def read(cls, text: str) -> Level:
        """Return the level of that name, in any case; UsageError if there is none."""
        try:
            return cls(text.upper())
        except ValueError:
            raise UsageError(
                f"{text!r} is not a compatibility level", fix=f"use one of {', '.join(cls)}"
            ) from None

    @property
    def backward(self) -> bool:
        """Whether the new schema must read old data."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether old schemas must read new data."""
        return self.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        """Whether every version counts, not only the latest."""
        return self.endswith("_TRANSITIVE")


class Policy(StrEnum):
    """The changes that count as breaking, from lax to strict; each adds to the one before it."""

    AVRO = "avro"
    STRICT = "strict"
    WAREHOUSE = "warehouse"

    @classmethod
    def read(cls, text: str) -> Policy:
        """Return the policy of that name, in any case; UsageError if there is none."""
        try:
            return cls(text.lower())
        except ValueError:
            raise UsageError(
                f"{text!r} is not a compatibility policy", fix=f"use one of {', '.join(cls)}"
            ) from None

    @classmethod
    def default_of(cls, subject: str) -> Policy:
        """Return the policy of a subject for which nobody chose one, at gate and registry alike.

        The loader makes a table of every topic whose values have a subject, `TOPIC-value` in the
        default context. All other subjects have no table.
        """
        return cls.STRICT if topic_of(subject) is None else cls.WAREHOUSE

    def includes(self, other: Policy) -> bool:
        """Return whether this policy refuses everything that `other` refuses."""
        order = list(Policy)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Version:
    """A registered version of a subject."""

    number: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why one schema cannot follow another.

    `rule` is a stable id, documented in docs/compatibility.md; `kind` is Avro Java's name of the
    incompatibility, or ours where Java has none. The pointers are JSON pointers into the two
    texts; a version of None is the proposed schema. `path` is the dotted path of the field.
    """

    rule: str
    kind: str
    message: str
    fix: str
    path: str
    reader_pointer: str
    writer_pointer: str
    reader_version: int | None = None
    writer_version: int | None = None

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the finding as JSON, as the registry answers and the gate prints it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Finding:
        """Read the result of `as_dict`; unknown members are ignored."""

        found: dict[str, Any] = {}
        for one in fields(cls):
            given = value.get(one.name)
            if one.name.endswith("_version"):
                found[one.name] = given if isinstance(given, int) else None
            else:
                found[one.name] = str(given or "")
        return cls(**found)
