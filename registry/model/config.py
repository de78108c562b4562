"""The settings of a subject, a context, or the registry, and which value is in force.

Rules:

- The nearest scope that sets a field wins: the subject, then its context, then the global one,
  then DEFAULTS. This applies to each field separately.
- An update changes only the fields that it names. A null removes a field, and so does
  an empty alias.
- `compatibility` is the field's name in an update, `compatibilityLevel` in every other answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headworks._registry.model import metadata_and_rules, refusals
from headworks._registry.model.definition import JsonObject
from headworks._registry.model.names import valid_subject
from headworks.compatibility import Level, Policy

DEFAULT_LEVEL = Level.BACKWARD_TRANSITIVE
_LEVEL = "compatibilityLevel"


def _level(value: object) -> str:
    try:
        return Level(str(value).upper()).value
    except ValueError:
        raise refusals.invalid_level(
            f"Invalid compatibility level {value!r}. Valid values are {', '.join(Level)}"
        ) from None


def _policy(value: object) -> str:
    try:
        return Policy(str(value).lower()).value
    except ValueError:
        raise refusals.invalid_level(
            f"Invalid policy {value!r}. Valid values are {', '.join(Policy)}"
        ) from None


def _confluent_policy(value: object) -> str:
    name = str(value).upper()
    if name not in ("STRICT", "LENIENT"):
        raise refusals.invalid_level(
            f"Invalid compatibilityPolicy {value!r}. Valid values are STRICT and LENIENT"
        )
    return name


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise refusals.invalid_level(f"{value!r} is neither true nor false")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise refusals.invalid_level(f"{value!r} is not a string")
    return value


def _alias(value: object) -> str | None:
    text = _text(value)
    if not text:
        return None
    valid_subject(text)
    return text


def _deprecated(value: object) -> dict[str, str] | None:
    """Return the reasons by version number, as text; None without any."""
    if not isinstance(value, dict) or not all(
        number.isascii() and number.isdigit() and isinstance(reason, str) and reason.strip()
        for number, reason in value.items()
    ):
        raise refusals.invalid_level(
            'deprecatedVersions must be an object with a reason for each version: {"1": "..."}'
        )
    return {str(int(number)): reason for number, reason in value.items()} or None


_FIELDS: Mapping[str, Callable[[object], object]] = {
    _LEVEL: _level,
    "policy": _policy,
    "compatibilityPolicy": _confluent_policy,
    "compatibilityGroup": _text,
    "normalize": _flag,
    "alias": _alias,
    "validateFields": _flag,
    "validateNewSchemas": _flag,
    "validateRules": _flag,
    "defaultMetadata": metadata_and_rules.read_metadata,
    "overrideMetadata": metadata_and_rules.read_metadata,
    "defaultRuleSet": metadata_and_rules.read_rules,
    "overrideRuleSet": metadata_and_rules.read_rules,
    "deprecatedVersions": _deprecated,
}


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force for a subject."""

    content: JsonObject
    subject: str

    @property
    def level(self) -> Level:
        """The level: the versions that a new one is compared with, and the direction."""
        return Level(self.content[_LEVEL])

    @property
    def policy(self) -> Policy:
        """The policy: the rules of the comparison."""
        stated = self.content.get("policy")
        return Policy.default_of(self.subject) if stated is None else Policy(stated)

    @property
    def group(self) -> str | None:
        """The metadata property that splits a subject's versions into groups."""
        return self.content.get("compatibilityGroup")

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a setting that is true or false."""
        return bool(self.content.get(name, default))

    def part(self, name: str) -> JsonObject | None:
        """Return a setting that is metadata or a rule set."""
        found: JsonObject | None = self.content.get(name)
        return found


def read_update(body: JsonObject) -> dict[str, Any]:
    """Return the changes of a request by field; None removes a field.

    Unknown fields are ignored, as clients newer than the server expect.
    """
    named = dict(body)
    if "compatibility" in named:
        named[_LEVEL] = named.pop("compatibility")
    return {
        name: None if named[name] is None else read(named[name])
        for name, read in _FIELDS.items()
        if name in named
    }


def updated(before: JsonObject | None, changes: JsonObject) -> dict[str, Any]:
    """Return the settings of one scope after an update."""
    merged = {**(before or {}), **changes}
    return {name: value for name, value in merged.items() if value is not None}


def in_force(subject: str, *scopes: JsonObject | None) -> Config:
    """Return the settings in force for a subject, from those of its scopes, nearest first.

    The name "" stands for the whole registry.
    """
    content: dict[str, Any] = {_LEVEL: DEFAULT_LEVEL.value}
    for scope in reversed(scopes):
        content.update(scope or {})
    return Config(content, subject)
