"""Random Avro schemas and data for them, for the property tests of generated classes.

`datum` builds, for one schema node, the value of the generated class and the value that fastavro's
writer takes (with its tuple notation in unions, so that both name the same branch).
"""

from __future__ import annotations

import json
import random
import string
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any

from headworks.schema import (
    Array,
    EnumType,
    Fixed,
    Logical,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)
from producer_sdk._generator.names import class_name, module_name, symbol_names

# Names that collide with something: keywords, builtins, methods, imports, look-alikes.
NAMES = [
    *[
        "a",
        "b",
        "c",
        "value",
        "type",
        "id",
        "str",
        "int",
        "list",
        "dict",
        "bytes",
        "float",
        "datetime",
    ],
    *[
        "class",
        "def",
        "None",
        "match",
        "self",
        "encode",
        "fields",
        "schema",
        "property",
        "_x",
        "__y",
        "__init__",
        "_v",
    ],
    *["größe", "имя", "ﬁ", "fi", "Color", "Node", "mro", "name", "count", "title", "__headworks__"],
]
ASCII = [name for name in NAMES if name.isascii()]  # fastavro's rule for names of types
LOGICAL: list[Any] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-of-mars"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 60},
    # Those that Python's types cannot hold, or that do not belong to their base: the base counts.
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-nanos"},
    {"type": "long", "logicalType": "date"},
    {"type": "int", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal"},
    {"type": "string", "logicalType": 7},
    {"type": "double", "logicalType": "decimal", "precision": 4},
    {"type": "string"},
    {"type": "boolean", "doc": "An object where a name would do.", "unit": {"of": ["nothing"]}},
]
PRIMITIVES: list[Any] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


class Chooser:
    """Draws schemas: every feature, named types reused, records that hold themselves."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.named: list[str] = []
        self.open: list[str] = []
        self.number = 0

    def event(self) -> dict[str, Any]:
        return self._record(depth=0)

    def _name(self, kind: str) -> str:
        self.number += 1
        space = self.chance.choice(["", "", "other.space", "Node"])
        name = (
            f"{self.chance.choice(ASCII)}{self.number}"
            if self.number % 3
            else f"{kind}{self.number}"
        )
        if self.chance.random() < 0.1:
            return f".{name}"  # the namespace without a name, wherever it stands
        return f"{space}.{name}" if space else f"shop.{name}"

    def _record(self, depth: int) -> dict[str, Any]:
        name = self._name("Record")
        self.open.append(name)
        names = self.chance.sample(NAMES, self.chance.randint(0 if depth else 1, 6))
        fields = [
            {"name": field, "type": self._type(depth + 1), "doc": self._doc()} for field in names
        ]
        self.open.pop()
        self.named.append(name)
        made = {"type": "record", "name": name, "fields": fields, "doc": self._doc()}
        if depth and self.chance.random() < 0.1:
            made["type"] = "error"
        if self.chance.random() < 0.2:
            made["aliases"] = ["Old", "elsewhere.Older"]
        return made

    def _doc(self) -> str:
        return self.chance.choice(
            [
                "Plain.",
                'Has "quotes" and """three""".',
                "Back\\slash\\",
                "Ünïcode\u202e\x00",
                "a\nb",
                "",
            ]
        )

    def _type(self, depth: int) -> Any:
        kind = self.chance.random()
        if depth > 3 or kind < 0.35:
            return self.chance.choice(PRIMITIVES[1:])
        if kind < 0.5:
            return self.chance.choice(LOGICAL)
        if kind < 0.58 and self.named:
            return self.chance.choice(self.named)
        if kind < 0.66:
            return {"type": "array", "items": self._type(depth + 1)}
        if kind < 0.72:
            return {"type": "map", "values": self._type(depth + 1)}
        if kind < 0.82:
            return self._union(depth)
        if kind < 0.88:
            return self._enum()
        if kind < 0.92:
            return self._fixed()
        if kind < 0.95:
            return self._recursion()
        return self._record(depth)

    def _recursion(self) -> Any:
        name = self.chance.choice(self.open)
        return self.chance.choice(
            [["null", name], {"type": "array", "items": name}, {"type": "map", "values": name}]
        )

    def _enum(self) -> dict[str, Any]:
        name = self._name("Enum")
        self.named.append(name)
        return {"type": "enum", "name": name, "symbols": self.chance.sample(ASCII, 5)}

    def _fixed(self) -> dict[str, Any]:
        name = self._name("Fixed")
        self.named.append(name)
        if self.chance.random() < 0.4:
            decimal = {"logicalType": "decimal", "precision": 6, "scale": 2}
            return {"type": "fixed", "name": name, "size": 4, **decimal}
        if self.chance.random() < 0.4:
            logical = self.chance.choice([("uuid", 16), ("duration", 12), ("uuid", 15)])
            return {"type": "fixed", "name": name, "size": logical[1], "logicalType": logical[0]}
        return {"type": "fixed", "name": name, "size": self.chance.choice([0, 1, 16])}

    def _union(self, depth: int) -> list[Any]:
        if depth < 3 and self.chance.random() < 0.02:
            return self._wide_union()
        branches: dict[str, Any] = {}
        if self.chance.random() < 0.6:
            branches["null"] = "null"
        while len(branches) < self.chance.randint(1, 4):
            before = list(self.named)
            branch = self._type(depth + 1)
            key = branch if isinstance(branch, str) else str(branch)
            if isinstance(branch, dict):
                key = branch["name"] if "name" in branch else branch["type"]
            if isinstance(branch, list) or key in branches:
                self.named = before  # what it defined is dropped with it
            else:
                branches[key] = branch
        return list(branches.values())

    def _wide_union(self) -> list[Any]:
        """More branches than one byte numbers."""
        names = [f"shop.Wide{self.number + n}" for n in range(70)]
        self.number += 70
        return ["null", *({"type": "record", "name": name, "fields": []} for name in names)]


class Data:
    """Draws data for one generated package."""

    def __init__(self, chance: random.Random, modules: dict[str, ModuleType]) -> None:
        self.chance = chance
        self.modules = modules

    def cls(self, name: str) -> Any:
        return getattr(self.modules[module_name(name.rpartition(".")[0])], class_name(name))

    def datum(self, schema: Schema, depth: int = 0) -> tuple[Any, Any]:
        if isinstance(schema, Record):
            pairs = {f.name: self.datum(f.type, depth + 1) for f in schema.fields}
            cls = self.cls(schema.name)
            own = cls.__headworks__.fields
            typed = cls(**{own[name]: pair[0] for name, pair in pairs.items()})
            return typed, {name: pair[1] for name, pair in pairs.items()}
        if isinstance(schema, EnumType):
            symbol = self.chance.choice(schema.symbols)
            return self.cls(schema.name)[symbol_names(schema.symbols)[symbol]], symbol
        if isinstance(schema, Array):
            items = [self.datum(schema.items, depth + 1) for _ in range(self._count(depth))]
            return [item[0] for item in items], [item[1] for item in items]
        if isinstance(schema, MapType):
            values = {
                self._text(): self.datum(schema.values, depth + 1)
                for _ in range(self._count(depth))
            }
            return {k: v[0] for k, v in values.items()}, {k: v[1] for k, v in values.items()}
        if isinstance(schema, Union):
            return self._union(schema, depth)
        return self._leaf(schema)

    def _count(self, depth: int) -> int:
        return self.chance.choice([0, 1, 3]) if depth < 5 else 0

    def _union(self, schema: Union, depth: int) -> tuple[Any, Any]:
        branches = [b for b in schema.branches if b.kind == "null"]
        if depth < 5 or not branches:
            branches = list(schema.branches)
        branch = self._reachable(schema, self.chance.choice(branches))
        typed, plain = self.datum(branch, depth + 1)
        if branch.kind == "null":
            return None, None
        name = branch.name if isinstance(branch, Record | EnumType | Fixed) else branch.kind
        if isinstance(branch, Record | EnumType | Fixed) and "." not in name:
            name = f".{name}"  # as it is written in the schema
        if python_class(branch) == "float" and any(python_class(b) == "int" for b in branches):
            typed = plain = float(typed)  # an int would be taken for the integer branch
        return typed, (name, plain)

    def _reachable(self, union: Union, branch: Schema) -> Schema:
        """The branch that Python's class of a value selects: the first, or double, or by length."""
        others = [b for b in union.branches if python_class(b) == python_class(branch)]
        if python_class(branch) == "float":
            return next((b for b in others if b.kind == "double"), branch)
        if python_class(branch) == "bytes" and isinstance(branch, Fixed):
            before = others[: others.index(branch)]
            same = (b for b in before if not isinstance(b, Fixed) or b.size == branch.size)
            return next(same, branch)
        if python_class(branch) == "bytes":
            return others[0]
        return others[0]

    def _leaf(self, schema: Primitive | Fixed) -> tuple[Any, Any]:
        if schema.logical is not None:
            found = self._logical(schema, schema.logical)
            if found is not None:
                in_fixed = isinstance(schema, Fixed) and isinstance(found, uuid.UUID)
                return found, found.bytes if in_fixed else found
        if isinstance(schema, Fixed):
            data = self.chance.randbytes(schema.size)
            return data, data
        value = self._primitive(schema.kind)
        return value, value

    def _primitive(self, kind: str) -> Any:
        chance = self.chance
        if kind == "null":
            return None
        if kind == "boolean":
            return chance.random() < 0.5
        if kind in ("int", "long"):
            bits = chance.choice(
                [6, 12, 13, 14, 27, 31] + ([34, 41, 42, 55, 63] if kind == "long" else [])
            )
            return chance.choice(
                [chance.randrange(-(1 << bits), 1 << bits), (1 << bits) - 1, -(1 << bits)]
            )
        if kind == "float":
            return chance.choice(
                [0.0, -1.5, 2.0**70, float("inf"), float("nan"), -0.0, 2.0**-149, 7]
            )
        if kind == "double":
            return chance.choice([-0.0, chance.random(), -1e300, float("-inf"), float("nan"), 3])
        if kind == "bytes":
            return chance.randbytes(chance.choice([0, 3, 70, 9000]))
        return self._text()

    def _text(self) -> str:
        alphabet = string.ascii_letters + "äß語🎈\x00\"'"
        size = self.chance.choice([0, 3, 64, 200] if self.chance.random() < 0.98 else [9000])
        return "".join(self.chance.choices(alphabet, k=size))

    def _logical(self, schema: Primitive | Fixed, logical: Logical) -> Any:
        name, chance = logical.name, self.chance
        if name.endswith("nanos"):
            return None
        instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            microseconds=chance.randrange(-(10**16), 10**17)
        )
        if name.endswith("millis"):
            instant = instant.replace(microsecond=instant.microsecond // 1000 * 1000)
        if name.startswith("timestamp"):
            return instant
        if name.startswith("local-timestamp"):
            return instant.replace(tzinfo=None)
        if name == "date":
            return date.fromordinal(chance.randrange(1, 3_600_000))
        if name.startswith("time-"):
            return time(instant.hour, instant.minute, instant.second, instant.microsecond)
        if name == "uuid":
            return uuid.UUID(int=chance.getrandbits(128))
        if name == "decimal":
            most = 10**logical.precision
            return Decimal(chance.randrange(1 - most, most)).scaleb(-logical.scale)
        return None


def python_class(schema: Schema) -> str:
    """The Python class of a value, as far as unions tell branches apart by it."""
    logical = getattr(schema, "logical", None)
    name = logical.name if logical else ""
    if name == "date" or name == "uuid" or name == "decimal":
        return str(name)
    if name.startswith("time-"):
        return "time"
    if "timestamp" in name and not name.endswith("nanos"):
        return "datetime"
    if isinstance(schema, Record | EnumType):
        return schema.name
    return {"fixed": "bytes", "long": "int", "double": "float"}.get(schema.kind, schema.kind)


def dumps(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False, indent=1)
