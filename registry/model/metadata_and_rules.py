"""Metadata and rule sets: validating, merging, and the number of a version.

Rules:

- The precedence, from weak to strong: the defaults of the settings, the request, the overrides of
  the settings. A request without metadata or rules takes those of the previous version.
- An empty object counts as given, and removes the content of the previous version.
- Rules are stored and returned, and never executed.
- The metadata property `confluent:version` holds the number of the version, once a request asks
  for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headworks._registry.model import refusals
from headworks._registry.model.definition import JsonObject

_NUMBER = "confluent:version"
_KINDS = ("TRANSFORM", "CONDITION")
_ON_MESSAGES = ("WRITE", "READ", "WRITEREAD")
_MODES = {
    "migrationRules": ("UPGRADE", "DOWNGRADE", "UPDOWN"),
    "domainRules": _ON_MESSAGES,
    "encodingRules": _ON_MESSAGES,
}
_RULE_LISTS = tuple(_MODES)
_MODES_OF_TWO = ("WRITEREAD", "UPDOWN")  # with one action for each direction
_MAX_NAME_LENGTH = 64
_NAME = re.compile(r"[^\W\d][\w-]*")


def read_metadata(value: object) -> JsonObject | None:
    """Metadata of a request: tags {path: [tag]}, properties {name: text}, sensitive [name]."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise refusals.invalid_schema("`metadata` must be an object")
    tags, properties = value.get("tags") or {}, value.get("properties") or {}
    sensitive = value.get("sensitive") or []
    if not _maps(tags, lambda found: _is_texts(found)):
        raise refusals.invalid_schema("`metadata.tags` must map names to lists of strings")
    if not _maps(properties, lambda found: isinstance(found, str)):
        raise refusals.invalid_schema("`metadata.properties` must map names to strings")
    if not _is_texts(sensitive):
        raise refusals.invalid_schema("`metadata.sensitive` must be a list of strings")
    parts = {"tags": tags, "properties": properties, "sensitive": sensitive}
    return {name: part for name, part in parts.items() if part}


def read_rules(value: object, *, validate: bool = True) -> JsonObject | None:
    """A rule set of a request: lists of rules, each named once in its list."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise refusals.invalid_rule_set("it must be an object")
    lists = {name: value[name] for name in _RULE_LISTS if value.get(name)}
    for name, rules in lists.items():
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise refusals.invalid_rule_set(f"`{name}` must be a list of rules")
        if validate:
            _validate(name, rules)
    enable_at = value.get("enableAt")
    if enable_at is not None:
        if not isinstance(enable_at, str):
            raise refusals.invalid_rule_set("`enableAt` must be a string")
        lists["enableAt"] = enable_at
    return lists


def merged_metadata(
    default: JsonObject | None, given: JsonObject | None, override: JsonObject | None
) -> JsonObject | None:
    """Merge metadata; entries of the stronger one win."""
    layers = [layer for layer in (default, given, override) if layer]
    merged: dict[str, Any] = {}
    for part in ("tags", "properties"):
        entries = {key: v for layer in layers for key, v in (layer.get(part) or {}).items()}
        if entries:
            merged[part] = entries
    sensitive = sorted({name for layer in layers for name in layer.get("sensitive") or ()})
    if sensitive:
        merged["sensitive"] = sensitive
    return merged or None


def merged_rules(
    default: JsonObject | None, given: JsonObject | None, override: JsonObject | None
) -> JsonObject | None:
    """Merge rule sets; a rule of the stronger set replaces the rule with its name."""
    merged: dict[str, Any] = {}
    for part in _RULE_LISTS:
        rules: dict[str, Any] = {}
        for layer in (default, given, override):
            for rule in (layer or {}).get(part) or ():
                rules.pop(rule.get("name"), None)
                rules[rule.get("name")] = rule
        if rules:
            merged[part] = list(rules.values())
    for layer in (default, given, override):
        if layer and "enableAt" in layer:
            merged["enableAt"] = layer["enableAt"]
    return merged or None


def rules_without(rules: JsonObject | None, names: Sequence[str]) -> JsonObject:
    """Return a rule set without the rules of these names."""
    kept = dict(rules or {})
    for part in _RULE_LISTS:
        kept[part] = [rule for rule in kept.get(part) or () if rule.get("name") not in names]
    return {name: part for name, part in kept.items() if part}


def has_number(metadata: JsonObject | None) -> bool:
    """Return whether the metadata holds the number of its version."""
    return property_of(metadata, _NUMBER) is not None


def numbered(metadata: JsonObject | None, number: int) -> JsonObject:
    """Return the metadata with the number of its version."""
    properties = {**((metadata or {}).get("properties") or {}), _NUMBER: str(number)}
    return {**(metadata or {}), "properties": properties}


def unnumbered(metadata: JsonObject | None) -> JsonObject | None:
    """Return the metadata without the number of its version."""
    if not has_number(metadata):
        return metadata or None
    rest = dict((metadata or {})["properties"])
    del rest[_NUMBER]
    kept = {**(metadata or {}), "properties": rest}
    return {name: part for name, part in kept.items() if part} or None


def property_of(metadata: JsonObject | None, name: str) -> str | None:
    """Return a metadata property, or None."""
    return ((metadata or {}).get("properties") or {}).get(name)


def _validate(name: str, rules: Sequence[Mapping[str, Any]]) -> None:
    seen: set[str] = set()
    for rule in rules:
        title = rule.get("name")
        if not isinstance(title, str) or not title:
            raise refusals.invalid_rule_set(f"a rule of `{name}` has no name")
        if title in seen:
            raise refusals.invalid_rule_set(f"rule '{title}' occurs twice in `{name}`")
        seen.add(title)
        problem = _problem(rule, title, _MODES[name])
        if problem is not None:
            raise refusals.invalid_rule_set(f"rule '{title}' of `{name}` {problem}")


def _problem(rule: Mapping[str, Any], title: str, modes: tuple[str, ...]) -> str | None:
    """Return what is wrong with a rule, as a predicate."""
    if len(title) > _MAX_NAME_LENGTH or _NAME.fullmatch(title) is None:
        return (
            f"needs another name: a letter or underscore, then letters, digits, underscores, and"
            f" hyphens, at most {_MAX_NAME_LENGTH}"
        )
    if rule.get("kind") not in (None, *_KINDS):
        return f"has an unknown kind; use {', '.join(_KINDS)}"
    mode = "WRITEREAD" if rule.get("mode") is None else rule["mode"]
    if mode not in modes:
        return f"has the mode {mode}; use {', '.join(modes)}"
    if not isinstance(rule.get("type"), str):
        return "has no type, so no client could run it; for example CEL or ENCRYPT"
    for key in ("onSuccess", "onFailure"):
        action = rule.get(key)
        if action is not None and not isinstance(action, str):
            return f"has an {key} that is not a string"
        if action is not None and "," in action and mode not in _MODES_OF_TWO:
            return f"has two actions in {key}; only {' and '.join(_MODES_OF_TWO)} run twice"
    return None


def _maps(value: object, is_entry: Any) -> bool:
    return isinstance(value, dict) and all(is_entry(entry) for entry in value.values())


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
