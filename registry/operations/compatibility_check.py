"""The compatibility of a new schema with the versions of its subject.

Rule: `headworks.compatibility` decides, as it does for the gate. This module chooses the versions
to compare with, and writes Confluent's list of strings beside our findings. The strings describe
the newest version that fails, as Confluent's do. The findings describe all versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headworks._registry.model.config import Config
from headworks._registry.model.definition import JsonObject
from headworks._registry.model.metadata_and_rules import property_of
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks.compatibility import Finding, Level, Version, check_level
from headworks.schema import Record, Schema

_MAX_SCHEMA_CHARACTERS = 2_000
_RESERVED = "confluent:reserved"


@dataclass(frozen=True, slots=True)
class CompatibilityResult:
    """The findings against a new schema, and Confluent's strings.

    A conflict with reserved field names has a string and no finding, because it is a rule of the
    metadata.
    """

    findings: tuple[Finding, ...] = ()
    messages: tuple[str, ...] = ()

    @property
    def is_compatible(self) -> bool:
        """Whether the schema is compatible."""
        return not self.messages


def check_compatibility(
    schema: Schema,
    metadata: JsonObject | None,
    history: Sequence[StoredVersion],
    config: Config,
    load: Callable[[StoredSchema], Schema],
    *,
    most_steps: int | None = None,
) -> CompatibilityResult:
    """Compare a new schema with live versions, oldest first, by the settings.

    UsageError if that takes more steps than `check_level` allows, or than `most_steps`.
    """
    reserved = []
    if config.flag("validateFields", default=False):
        reserved = _reserved_fields(schema, metadata, history)
    if config.level is Level.NONE:
        return CompatibilityResult(messages=tuple(reserved))
    compared = _same_group(metadata, history, config.group)
    found = check_level(
        schema,
        [Version(one.number, load(one.schema)) for one in compared],
        config.level,
        config.policy,
        most_steps=most_steps,
    )
    return CompatibilityResult(tuple(found), (*reserved, *_messages(found, compared, config)))


def _reserved_fields(
    schema: Schema, metadata: JsonObject | None, history: Sequence[StoredVersion]
) -> list[str]:
    """Return Confluent's strings for fields with a reserved name, and for removed reservations."""
    now = _reservations(metadata)
    before = _reservations(history[-1].schema.definition.metadata) if history else set()
    used = {one.name for one in schema.fields} if isinstance(schema, Record) else set()
    taken = [
        f"{{errorType:'FIELD_CONFLICTS_WITH_RESERVED_FIELD', description:'The new schema has the "
        f"field {name}, a name that its metadata reserves'}}"
        for name in sorted(used & now)
    ]
    dropped = [
        f"{{errorType:'RESERVED_FIELD_REMOVED', description:'The new schema no longer reserves "
        f"the name {name}'}}"
        for name in sorted(before - now)
    ]
    return taken + dropped


def _reservations(metadata: JsonObject | None) -> set[str]:
    names = (property_of(metadata, _RESERVED) or "").split(",")
    return {name.strip() for name in names if name.strip()}


def _same_group(
    metadata: JsonObject | None, history: Sequence[StoredVersion], group: str | None
) -> list[StoredVersion]:
    if group is None:
        return list(history)
    wanted = property_of(metadata, group)
    return [one for one in history if property_of(one.schema.definition.metadata, group) == wanted]


def _messages(
    findings: Sequence[Finding], history: Sequence[StoredVersion], config: Config
) -> list[str]:
    """Return a string per finding on the newest failing version, then that version and settings."""
    if not findings:
        return []
    newest = max(_old_version(one) for one in findings)
    messages = [
        f"{{errorType:'{one.kind}', description:'{one.message}', additionalInfo:'{one.path}'}}"
        for one in findings
        if _old_version(one) == newest
    ]
    if not history:  # no table can have a column of the first version
        return messages
    text = next(one.schema.definition.text for one in history if one.number == newest)
    cut = text if len(text) <= _MAX_SCHEMA_CHARACTERS else text[:_MAX_SCHEMA_CHARACTERS] + "..."
    messages.append(f"{{oldSchemaVersion: {newest}}}")
    messages.append(f"{{oldSchema: '{cut}'}}")
    validates = str(config.flag("validateFields", default=False)).lower()
    messages.append(f"{{validateFields: '{validates}', compatibility: '{config.level.value}'}}")
    return messages


def _old_version(finding: Finding) -> int:
    return finding.reader_version or finding.writer_version or 0
