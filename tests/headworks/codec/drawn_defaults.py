"""Defaults for drawn schemas: one for every field of the event, and the datum they stand for."""

from __future__ import annotations

import random
import uuid
from typing import Any

_NO_DEFAULT = object()
_TEXT = ["quotes \" and '", "back\\slash", "größe 🎈", "", "\x00\n\t", "{x}", "%s"]


def give_defaults(
    chance: random.Random, schema: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema with a default for each of its fields that can have one (others are left out),
    and the datum of all defaults as fastavro writes it without logical types.
    """
    known: dict[str, Any] = {}
    _collect(schema, known)
    kept, datum = [], {}
    for field in schema["fields"]:
        written, plain = _default(chance, field["type"], known, frozenset({schema["name"]}))
        if written is _NO_DEFAULT:
            written, plain, field = None, None, {**field, "type": "null"}
        kept.append({**field, "default": written})
        datum[field["name"]] = plain
    whole = {**schema, "fields": kept}
    return _with_definitions(whole, known), datum


def without_logical(schema: Any) -> Any:
    """A schema without its logical types and defaults."""
    if isinstance(schema, list):
        return [without_logical(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: without_logical(value)
            for key, value in schema.items()
            if key not in ("logicalType", "default")
        }
    return schema


def _collect(schema: Any, known: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _collect(each, known)
    elif isinstance(schema, dict):
        if "name" in schema and "type" in schema and schema["type"] in _NAMED:
            known[schema["name"]] = schema
        for part in ("items", "values"):
            _collect(schema.get(part), known)
        for field in schema.get("fields", ()):
            _collect(field["type"], known)


_NAMED = ("record", "error", "enum", "fixed")


def _with_definitions(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Define each type where it is first met: what was left out may have held a definition."""
    met: set[str] = set()

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(each) for each in node]
        if isinstance(node, str):
            return walk(known[node]) if node in known and node not in met else node
        if "name" in node:
            if node["name"] in met:
                return node["name"]
            met.add(node["name"])
        made = dict(node)
        for part in ("items", "values"):
            if part in made:
                made[part] = walk(made[part])
        if "fields" in made:
            made["fields"] = [{**field, "type": walk(field["type"])} for field in made["fields"]]
        return made

    found: dict[str, Any] = walk(schema)
    return found


def _default(
    chance: random.Random, schema: Any, known: dict[str, Any], inside: frozenset[str]
) -> tuple[Any, Any]:
    """The default as JSON, and the datum that it is."""
    if isinstance(schema, str):
        if schema in known:
            return _default(chance, known[schema], known, inside)
        return _plain(chance, schema, {})
    if isinstance(schema, list):
        branch = chance.choice(schema[:1]) if schema else None
        written, plain = _default(chance, branch, known, inside) if schema else (_NO_DEFAULT, None)
        name = branch.get("name", branch["type"]) if isinstance(branch, dict) else branch
        if name == "float" and any(
            each == "double" or (isinstance(each, dict) and each["type"] == "double")
            for each in schema
        ):
            name = "double"  # which every float of Python is
        return written, None if name == "null" else (name, plain)
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(chance, schema, known, inside)
    if kind in ("array", "map"):
        inner = schema["items" if kind == "array" else "values"]
        given = [_default(chance, inner, known, inside) for _ in range(chance.choice([0, 1, 2]))]
        given = [each for each in given if each[0] is not _NO_DEFAULT]
        if kind == "array":
            return [w for w, _ in given], [p for _, p in given]
        keys = chance.sample(_TEXT, len(given))
        return (
            {key: w for key, (w, _) in zip(keys, given, strict=True)},
            {key: p for key, (_, p) in zip(keys, given, strict=True)},
        )
    if kind == "enum":
        symbol = chance.choice(schema["symbols"])
        return symbol, symbol
    return _plain(chance, kind, schema)


def _record(
    chance: random.Random, schema: dict[str, Any], known: dict[str, Any], inside: frozenset[str]
) -> tuple[Any, Any]:
    if schema["name"] in inside:
        return _NO_DEFAULT, None
    inside = inside | {schema["name"]}
    fields = {f["name"]: _default(chance, f["type"], known, inside) for f in schema["fields"]}
    if any(written is _NO_DEFAULT for written, _ in fields.values()):
        return _NO_DEFAULT, None
    return {n: w for n, (w, _) in fields.items()}, {n: p for n, (_, p) in fields.items()}


def _plain(chance: random.Random, kind: str, schema: dict[str, Any]) -> tuple[Any, Any]:
    logical = schema.get("logicalType")
    if kind == "null":
        return None, None
    if kind == "boolean":
        return (chance.random() < 0.5,) * 2
    if kind in ("int", "long"):
        most = 86_399_999 if str(logical).startswith("time-") else (1 << 31) - 1
        low = 0 if str(logical).startswith("time-") else -most - 1
        low, most = (-700_000, 2_900_000) if logical == "date" else (low, most)
        return (chance.choice([low, most, chance.randint(low, most)]),) * 2
    if kind in ("float", "double"):
        return (chance.choice([0, -1.5, 7, 1e30 if kind == "double" else 2.0**70, -0.0]),) * 2
    if kind == "string":
        text = str(uuid.UUID(int=chance.getrandbits(128))) if logical == "uuid" else None
        return (text if text is not None else chance.choice(_TEXT),) * 2
    return _raw(chance, kind, schema)


def _raw(chance: random.Random, kind: str, schema: dict[str, Any]) -> tuple[str, bytes]:
    if schema.get("logicalType") == "decimal" and "precision" in schema:
        number = chance.randrange(-(10**6) + 1, 10**6)
        size = schema.get("size") or max(
            1, ((number if number >= 0 else ~number).bit_length() + 8) // 8
        )
        data = number.to_bytes(size, "big", signed=True)
    else:
        data = chance.randbytes(schema["size"] if kind == "fixed" else chance.choice([0, 3, 30]))
    return data.decode("latin-1"), data
