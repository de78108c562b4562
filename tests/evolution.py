"""Random Avro schemas, an evolution of each that readers can follow, data, and expected columns."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Json = Any
PROMOTED = {
    "int": ["long", "double", "float"],
    "long": ["double", "float"],
    "float": ["double"],
    "string": ["bytes"],
}
FOLLOWED = {"int": ["long", "double", "float"], "float": ["double"]}
LEAVES: list[Json] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "bytes",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
]


class Names:
    """Names that no schema has used yet."""

    def __init__(self) -> None:
        self._used: Iterator[int] = iter(range(1_000_000))

    def __call__(self, prefix: str) -> str:
        return f"{prefix}{next(self._used)}"


def evolution(rng: random.Random, *, followed: bool = False) -> tuple[Json, Json]:
    """A writer's schema and a later one that can read it (`followed`: by a table's files too)."""
    names = Names()
    writer = record(rng, names, 3)
    return writer, evolved(writer, rng, names, followed=followed)


def record(rng: random.Random, names: Names, depth: int) -> Json:
    return {
        "type": "record",
        "name": names("R"),
        "fields": [
            {"name": names("f"), "type": schema(rng, names, depth - 1)}
            for _ in range(rng.randint(1, 4))
        ],
    }


def schema(rng: random.Random, names: Names, depth: int) -> Json:
    kind = rng.choice(["leaf"] * 5 + ["enum", "fixed", "nullable", "array", "map", "record"])
    if kind == "enum":
        symbols = [names("S") for _ in range(rng.randint(1, 4))]
        return {"type": "enum", "name": names("E"), "symbols": symbols}
    if kind == "fixed":
        return {"type": "fixed", "name": names("F"), "size": rng.randint(1, 4)}
    if kind == "leaf" or depth <= 0:
        return copy.deepcopy(rng.choice(LEAVES))
    inner = schema(rng, names, depth - 1)
    if kind == "nullable":
        return inner if isinstance(inner, list) else ["null", inner]
    if kind == "array":
        return {"type": "array", "items": inner}
    if kind == "map":
        return {"type": "map", "values": inner}
    return record(rng, names, depth)


def evolved(old: Json, rng: random.Random, names: Names, *, followed: bool) -> Json:
    """A schema that reads `old`: fields added, dropped, reordered, promoted, symbols dropped."""
    if isinstance(old, list):
        return [evolved(branch, rng, names, followed=followed) for branch in old]
    if isinstance(old, str):
        table = FOLLOWED if followed else PROMOTED
        return rng.choice([*table.get(old, []), old, old])
    if old["type"] == "array":
        return {**old, "items": evolved(old["items"], rng, names, followed=followed)}
    if old["type"] == "map":
        return {**old, "values": evolved(old["values"], rng, names, followed=followed)}
    if old["type"] == "enum" and len(old["symbols"]) > 1 and rng.random() < 0.5:
        return {**old, "symbols": old["symbols"][1:], "default": old["symbols"][-1]}
    if old["type"] != "record":
        return copy.deepcopy(old)
    fields = [
        {**f, "type": evolved(f["type"], rng, names, followed=followed)}
        for f in old["fields"]
        if len(old["fields"]) == 1 or rng.random() < 0.85
    ]
    for f in fields:
        if "default" in f:
            f["default"] = default_of(f["type"], rng)
    if rng.random() < 0.3:
        f = rng.choice(fields or [{"name": "none", "type": "null"}])
        if fields:
            f["aliases"], f["name"] = [f["name"]], names("f")
    for _ in range(rng.randint(0, 2)):
        type_ = schema(rng, names, 1)
        default = default_of(type_, rng)
        fields.append({"name": names("f"), "type": type_, "default": default})
    if not fields:
        fields = copy.deepcopy(old["fields"])
    rng.shuffle(fields)
    return {**old, "fields": fields}


def value_of(s: Json, rng: random.Random) -> Any:
    """A datum, as fastavro writes it."""
    if isinstance(s, list):
        return None if rng.random() < 0.3 else value_of(s[1], rng)
    kind = s if isinstance(s, str) else s["type"]
    if kind == "record":
        return {f["name"]: value_of(f["type"], rng) for f in s["fields"]}
    if kind == "array":
        return [value_of(s["items"], rng) for _ in range(rng.randint(0, 3))]
    if kind == "map":
        return {f"k{i}é": value_of(s["values"], rng) for i in range(rng.randint(0, 3))}
    if kind == "enum":
        return rng.choice(s["symbols"])
    if kind == "fixed":
        return rng.randbytes(s["size"])
    logical = s.get("logicalType") if isinstance(s, dict) else None
    if logical == "decimal":
        return Decimal(rng.randint(-999_999_999, 999_999_999)).scaleb(-3)
    if logical == "date":
        return rng.randint(-20_000, 60_000)
    if logical is not None:
        return rng.randint(-(10**12), 3 * 10**12)
    makers: dict[str, Callable[[], Any]] = {
        "boolean": lambda: rng.random() < 0.5,
        "int": lambda: rng.choice([0, -1, rng.randint(-(2**31), 2**31 - 1)]),
        "long": lambda: rng.choice([0, 63, -65, rng.randint(-(2**63), 2**63 - 1)]),
        "float": lambda: float32(rng.uniform(-1e6, 1e6)),
        "double": lambda: rng.uniform(-1e12, 1e12),
        "string": lambda: rng.choice(["", "abc", 'it\'s \\ "ü"\n', "😀"]),
        "bytes": lambda: rng.randbytes(rng.randint(0, 3)),
    }
    return makers[kind]()


def default_of(s: Json, rng: random.Random) -> Json:
    """A JSON default of the schema."""
    if isinstance(s, list):
        return None
    kind = s if isinstance(s, str) else s["type"]
    if kind == "record":
        return {f["name"]: default_of(f["type"], rng) for f in s["fields"]}
    if kind == "array":
        return [default_of(s["items"], rng) for _ in range(rng.randint(0, 2))]
    if kind == "map":
        return {f"d{i}": default_of(s["values"], rng) for i in range(rng.randint(0, 2))}
    if kind == "fixed":
        return "\x01ÿ'\\"[: s["size"]].ljust(s["size"], "x")
    value = value_of(s, rng)
    if kind == "bytes":
        return "\x00\x01" if isinstance(s, dict) else value.decode("latin-1")
    return value


def float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf")


def as_column(s: Json, value: Any) -> Any:
    """What a table shows for a value that fastavro resolved into schema `s`."""
    if value is None:
        return None
    if isinstance(s, list):
        return as_column(s[1], value)
    kind = s if isinstance(s, str) else s["type"]
    if kind == "record":
        return {f["name"]: as_column(f["type"], value[f["name"]]) for f in s["fields"]}
    if kind == "array":
        return [as_column(s["items"], item) for item in value]
    if kind == "map":
        return [(key, as_column(s["values"], item)) for key, item in value.items()]
    logical = s.get("logicalType") if isinstance(s, dict) else None
    if isinstance(value, str) and kind in ("bytes", "fixed"):
        value = value.encode("latin-1")  # fastavro leaves defaults as JSON has them
    if logical == "date" and not isinstance(value, date):
        return date(1970, 1, 1) + timedelta(value)
    if logical == "decimal" and isinstance(value, bytes):
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-3)
    if logical in ("timestamp-millis", "timestamp-micros") and isinstance(value, int):
        micros = value * 1000 if logical == "timestamp-millis" else value
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    if kind == "float":
        return float32(value)
    return float(value) if kind == "double" else value
