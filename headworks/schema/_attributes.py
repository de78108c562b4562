"""Attributes of the JSON objects of a schema: text, lists, properties, and logical types.

Rule: as in Avro Java 1.12.1, an attribute of the wrong kind counts as absent or is refused with a
SchemaError; an invalid logical type is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from headworks.errors import SchemaError
from headworks.schema._model import Json, Logical
from headworks.schema._quoting import quote

# JSON values that are kept as they are (defaults, properties) nest at most this deep.
MAX_VALUE_DEPTH = 100
_LOGICAL_BASE: Mapping[str, tuple[str, ...]] = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
    "duration": ("fixed",),
}


def properties(value: dict[str, Json], reserved: frozenset[str]) -> dict[str, Json]:
    """Return the attributes that Avro does not define, in their order."""
    if value.keys() <= reserved:  # the usual case, quickly
        return {}
    found = {k: v for k, v in value.items() if k not in reserved}
    for kept in found.values():
        if isinstance(kept, (dict, list)):
            check_depth(kept)
    return found


def check_depth(value: Json) -> None:
    """Raise SchemaError if a value that is kept as it is nests too deeply for its readers."""
    level: list[Json] = [value]
    for _ in range(MAX_VALUE_DEPTH):
        below: list[Json] = []
        for one in level:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
        if not below:
            return
        level = below
    raise SchemaError(f"a value is nested more than {MAX_VALUE_DEPTH} deep", rule="depth")


def text_attribute(value: dict[str, Json], key: str) -> str | None:
    """Return a text attribute, or None; as in Java, one that is not text counts as absent."""
    found = value.get(key)
    return found if isinstance(found, str) else None


def number_of_text(text: str, at: str) -> float:
    """Return the number that a text stands for as a default ("NaN", "1.5"), as Java reads it."""
    stripped = text.strip()
    if stripped.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        if stripped.lstrip("+-") in ("NaN", "Infinity"):
            return float(stripped)
    elif "_" not in stripped:
        try:
            return float(stripped)
        except ValueError:
            pass
    raise SchemaError(f"default {quote(text)} is not a number", pointer=at, rule="default")


def string_list(value: dict[str, Json], key: str, at: str, *, required: bool = False) -> list[str]:
    """Return a list of strings, empty if the attribute is absent and not required."""
    found = value.get(key)
    if key not in value and not required:
        return []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise SchemaError(f"`{key}` must be a list of strings", pointer=f"{at}/{key}")
    return cast(list[str], found)


def full_aliases(value: dict[str, Json], namespace: str, at: str) -> tuple[str, ...]:
    """Return the full names of a type\'s aliases, each once."""
    return tuple(
        dict.fromkeys(
            alias if "." in alias or not namespace else f"{namespace}.{alias}"
            for alias in string_list(value, "aliases", at)
        )
    )


def logical_type(props: Mapping[str, Json], kind: str, size: int) -> Logical | None:
    """Return the logical type of a type; None if it has none, or not a valid one."""
    name = props.get("logicalType")
    if not isinstance(name, str) or kind not in _LOGICAL_BASE.get(name, ()):
        return None
    if name == "decimal":
        return _decimal(props, kind, size)
    if (name == "uuid" and kind == "fixed" and size != 16) or (name == "duration" and size != 12):
        return None
    return Logical(name)


def _decimal(props: Mapping[str, Json], kind: str, size: int) -> Logical | None:
    precision, scale = props.get("precision"), props.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or precision <= 0:
        return None
    if not 0 <= scale <= precision:
        return None
    if kind == "fixed" and (size == 0 or precision > len(str(2 ** (8 * size - 1) - 1)) - 1):
        return None
    return Logical("decimal", precision, scale)
