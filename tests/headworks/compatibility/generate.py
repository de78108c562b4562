"""Random schemas, and random edits of them, as JSON: the pairs for the oracle tests.

Everything that evolution touches occurs: namespaces, aliases, recursion, references, unions,
enums with and without defaults, fixed, logical types, defaults of every kind, right and wrong.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 11, "scale": 4},
]
NAMES = ["A", "B", "C", "D"]
SPACES = ["", "n", "m.x"]
FIELDS = ["a", "b", "c", "d", "e"]
SYMBOLS = ["X", "Y", "Z", "W"]


class Generator:
    """One random schema; `spread` bounds the size."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.defined: list[str] = []
        self.open: list[str] = []
        self.count = 0

    def schema(self, depth: int = 0) -> Any:
        rng = self.rng
        roll = rng.random()
        if depth == 0:
            return self.record(depth) if roll < 0.8 else self.complex(depth)
        if depth > 3 or roll < 0.4:
            return rng.choice(PRIMITIVES)
        if roll < 0.48:
            return copy.deepcopy(rng.choice(LOGICAL))
        if roll < 0.58 and self.defined:
            return rng.choice(self.defined)
        return self.complex(depth)

    def complex(self, depth: int) -> Any:
        kind = self.rng.choice(
            ["record", "record", "enum", "fixed", "array", "map", "union", "union"]
        )
        if kind == "array":
            return {"type": "array", "items": self.schema(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth + 1)}
        return getattr(self, kind)(depth)

    def named(self, kind: str) -> dict[str, Any]:
        rng = self.rng
        for _ in range(20):
            space, name = rng.choice(SPACES), rng.choice(NAMES)
            full = f"{space}.{name}" if space else name
            if full not in self.defined:
                break
        else:
            self.count += 1
            space, full = "", f"T{self.count}"
            name = full
        self.defined.append(full)
        node: dict[str, Any] = {"type": kind, "name": name, "namespace": space}
        if rng.random() < 0.15:
            node["aliases"] = [rng.choice(["A", "B", "n.A", "m.x.C", "Old"])]
        if rng.random() < 0.1:
            node["doc"] = "some words"
        return node

    def record(self, depth: int) -> Any:
        node = self.named("record")
        names = self.rng.sample(FIELDS, self.rng.randint(0 if depth else 1, 4))
        node["fields"] = [self.field(name, depth) for name in names]
        return node

    def field(self, name: str, depth: int) -> Any:
        field: dict[str, Any] = {"name": name, "type": self.schema(depth + 1)}
        if self.rng.random() < 0.4:
            default = default_of(self.rng, field["type"])
            if default is not ...:
                field["default"] = default
        if self.rng.random() < 0.12:
            field["aliases"] = [self.rng.choice(FIELDS)]
        return field

    def enum(self, depth: int) -> Any:
        node = self.named("enum")
        node["symbols"] = self.rng.sample(SYMBOLS, self.rng.randint(1, 4))
        if self.rng.random() < 0.4:
            node["default"] = self.rng.choice(node["symbols"])
        return node

    def fixed(self, depth: int) -> Any:
        return {**self.named("fixed"), "size": self.rng.choice([1, 2, 4])}

    def union(self, depth: int) -> Any:
        branches: list[Any] = []
        seen: set[str] = set()
        for _ in range(self.rng.randint(1, 4)):
            branch = self.schema(depth + 1)
            kind = branch if isinstance(branch, str) else None
            if isinstance(branch, dict):
                named = branch["type"] in ("record", "enum", "fixed")
                kind = str(id(branch)) if named else branch["type"]
            if kind is not None and kind not in seen:
                seen.add(kind)
                branches.append(branch)
        return branches


def default_of(rng: random.Random, schema: Any) -> Any:
    """A default for `schema`, usually a right one; ... where none comes to mind."""
    if rng.random() < 0.03:
        return rng.choice([None, 1, 1.5, "x", [], {}, True])
    if isinstance(schema, list):
        index = 0 if rng.random() < 0.8 else rng.randrange(len(schema) or 1)
        return default_of(rng, schema[index]) if schema else ...
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "enum":
        return rng.choice(schema["symbols"] if rng.random() < 0.9 else SYMBOLS)
    if kind == "fixed":
        return "\u0001" * schema["size"]
    if kind == "record":
        value = {}
        for field in schema["fields"]:
            if "default" not in field or rng.random() < 0.5:
                inner = default_of(rng, field["type"])
                if inner is ...:
                    return ...
                value[field["name"]] = inner
        return value
    simple: dict[str, Any] = {
        "null": None,
        "boolean": True,
        "int": 7,
        "long": 2**40,
        "float": 1.5,
        "double": 2.5e10,
        "bytes": "\u00ff",
        "string": "s",
        "array": [],
        "map": {},
    }
    return simple.get(kind, ...)


def random_schema(rng: random.Random) -> Any:
    return Generator(rng).schema()


def random_pair(rng: random.Random) -> tuple[Any, Any]:
    """Two schemas that were once one, each with a few edits of its own."""
    ancestor = random_schema(rng)
    left, right = copy.deepcopy(ancestor), copy.deepcopy(ancestor)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        left = mutate(rng, left)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        right = mutate(rng, right)
    return (left, right) if rng.random() < 0.5 else (right, left)


def mutate(rng: random.Random, schema: Any) -> Any:
    """`schema` with one random edit."""
    holder = {"type": schema}
    box, key = rng.choice(list(_places(holder)))
    node = box[key]
    if rng.random() < 0.25 or not isinstance(node, (dict, list)):
        box[key] = _replaced(rng, node)
    elif isinstance(node, list):
        _mutate_union(rng, node)
    elif node["type"] == "record":
        _mutate_record(rng, node)
    elif node["type"] in ("enum", "fixed") and rng.random() < 0.3:
        _rename(rng, node)
    elif node["type"] == "enum":
        node["symbols"] = rng.sample(SYMBOLS, rng.randint(1, 4))
        node.pop("default", None)
        if rng.random() < 0.4:
            node["default"] = rng.choice(node["symbols"])
    elif node["type"] == "fixed":
        node["size"] = rng.choice([1, 2, 4])
    else:
        _rename(rng, node)
    return holder["type"]


def _places(box: Any, key: Any = "type") -> Iterator[tuple[Any, Any]]:
    """Every place that holds a type, as the container and its key: this one and all below."""
    yield box, key
    node = box[key]
    if isinstance(node, list):
        for i in range(len(node)):
            yield from _places(node, i)
    elif isinstance(node, dict):
        for inner in ("items", "values"):
            if inner in node:
                yield from _places(node, inner)
        for field in node.get("fields", ()):
            yield from _places(field)


def _replaced(rng: random.Random, node: Any) -> Any:
    roll = rng.random()
    promoted = {"int": "long", "long": "double", "float": "double", "string": "bytes"}
    if isinstance(node, str) and roll < 0.4:
        return promoted.get(node, rng.choice(PRIMITIVES))
    if roll < 0.6:
        return ["null", node] if not isinstance(node, list) else node[::-1]
    if roll < 0.7 and isinstance(node, list) and node:
        return rng.choice(node)
    if roll < 0.8:
        return copy.deepcopy(rng.choice(LOGICAL))
    return rng.choice([*PRIMITIVES, {"type": "array", "items": node}, [node]])


def _mutate_union(rng: random.Random, node: list[Any]) -> None:
    roll = rng.random()
    if node and roll < 0.35:
        node.pop(rng.randrange(len(node)))
    elif roll < 0.6:
        rng.shuffle(node)
    else:
        node.insert(rng.randint(0, len(node)), rng.choice(PRIMITIVES))


def _mutate_record(rng: random.Random, node: dict[str, Any]) -> None:
    fields, roll = node["fields"], rng.random()
    if roll < 0.15:
        _rename(rng, node)
    elif roll < 0.4 or not fields:
        free = [name for name in FIELDS if name not in {f["name"] for f in fields}]
        if free:
            new = Generator(rng).field(rng.choice(free), 3)
            fields.insert(rng.randint(0, len(fields)), new)
    elif roll < 0.55:
        fields.pop(rng.randrange(len(fields)))
    elif roll < 0.65:
        rng.shuffle(fields)
    elif roll < 0.8:
        field = rng.choice(fields)
        free = [name for name in FIELDS if name not in {f["name"] for f in fields}]
        if free:
            if rng.random() < 0.6:
                field["aliases"] = [field["name"]]
            field["name"] = rng.choice(free)
    else:
        field = rng.choice(fields)
        if "default" in field:
            del field["default"]
        else:
            default = default_of(rng, field["type"])
            if default is not ...:
                field["default"] = default


def _rename(rng: random.Random, node: dict[str, Any]) -> None:
    if "name" not in node:
        return
    old = f"{node['namespace']}.{node['name']}" if node.get("namespace") else node["name"]
    if rng.random() < 0.5:
        node["namespace"] = rng.choice(SPACES)
    else:
        node["name"] = rng.choice([*NAMES, "New"])
    if rng.random() < 0.5:
        node["aliases"] = [old]
