"""The Python side of a type: its annotation, and the expression of a default.

Rules:

- The standard library is used under private names, and a builtin that a field of the same class
  shadows is written `_builtins.str`: any field name is possible.
- A default that is a list, a dict or an object becomes a factory; so does an enum member of
  another module, which may not be imported yet.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from headworks.errors import SchemaError
from headworks.schema import (
    Array,
    EnumType,
    Field,
    Fixed,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)
from headworks.schema._default_fold import DefaultFold
from headworks.schema._model import Json
from producer_sdk._generator.names import field_names, symbol_names

ClassRef = Callable[[str], str]
_PLAIN = {
    "null": "None",
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "bytes": "bytes",
    "string": "str",
}
_LOGICAL = {
    "date": "_dt.date",
    "time-millis": "_dt.time",
    "time-micros": "_dt.time",
    "timestamp-millis": "_dt.datetime",
    "timestamp-micros": "_dt.datetime",
    "local-timestamp-millis": "_dt.datetime",
    "local-timestamp-micros": "_dt.datetime",
    "uuid": "_uuid.UUID",
    "decimal": "_decimal.Decimal",
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Default:
    """A default as Python: an expression, and whether each object needs its own."""

    expression: str
    fresh: bool


def python_type(schema: Schema, ref: ClassRef) -> str:
    """The runtime class of a value of `schema`, as an expression; `ref` names generated classes."""
    if isinstance(schema, Record | EnumType):
        return ref(schema.name)
    if isinstance(schema, Array):
        return "list"
    if isinstance(schema, MapType):
        return "dict"
    assert isinstance(schema, Primitive | Fixed)
    if schema.logical is not None and schema.logical.name in _LOGICAL:
        return _LOGICAL[schema.logical.name]
    return "bytes" if isinstance(schema, Fixed) else _PLAIN[schema.kind]


def annotation(schema: Schema, ref: ClassRef, builtin: Callable[[str], str]) -> str:
    """The annotation of a field; `builtin` says how to write a builtin's name."""
    if isinstance(schema, Union):
        parts = dict.fromkeys(annotation(branch, ref, builtin) for branch in schema.branches)
        ordered = [part for part in parts if part != "None"] + [p for p in parts if p == "None"]
        return " | ".join(ordered)
    if isinstance(schema, Array):
        return f"{builtin('list')}[{annotation(schema.items, ref, builtin)}]"
    if isinstance(schema, MapType):
        value = annotation(schema.values, ref, builtin)
        return f"{builtin('dict')}[{builtin('str')}, {value}]"
    name = python_type(schema, ref)
    return (
        name
        if "." in name or name == "None" or isinstance(schema, Record | EnumType)
        else builtin(name)
    )


def default_of(field: Field, ref: ClassRef) -> Default | None:
    """The default of a field, or None if it has none that Python (or the enum) can express."""
    if not field.has_default:
        return None
    try:
        default: Default = _DefaultExpression(ref).field(field)
    except (OverflowError, SchemaError, ValueError, decimal.InvalidOperation):
        return None
    return default


class _DefaultExpression(DefaultFold):
    """Turns defaults into Python expressions; ValueError if Python has no such value."""

    def __init__(self, ref: ClassRef) -> None:
        self._ref = ref

    def leaf(self, schema: Schema, value: Json) -> Default:
        if isinstance(schema, EnumType):
            if value not in schema.symbols:
                raise ValueError(value)
            name = self._ref(schema.name)
            return Default(f"{name}.{symbol_names(schema.symbols)[str(value)]}", "." in name)
        assert isinstance(schema, Primitive | Fixed)
        return Default(_leaf(schema, value), fresh=False)

    def array(self, items: list[Default]) -> Default:
        return Default(f"[{', '.join(item.expression for item in items)}]", fresh=True)

    def map(self, entries: dict[str, Default]) -> Default:
        pairs = (f"{text_literal(key)}: {item.expression}" for key, item in entries.items())
        return Default("{" + ", ".join(pairs) + "}", fresh=True)

    def record(self, schema: Record, members: dict[str, Default]) -> Default:
        names = attributes(schema, self._ref)
        arguments = ", ".join(f"{names[n]}={given.expression}" for n, given in members.items())
        return Default(f"{self._ref(schema.name)}({arguments})", fresh=True)


def attributes(record: Record, ref: ClassRef) -> dict[str, str]:
    """The attribute of every field of a record."""
    used = frozenset(_classes(record, ref))
    return field_names([field.name for field in record.fields], used)


def _classes(record: Record, ref: ClassRef) -> set[str]:
    """The generated classes that the annotations of a record name."""
    found: set[str] = set()
    stack: list[Schema] = [field.type for field in record.fields]
    while stack:
        node = stack.pop()
        if isinstance(node, Record | EnumType):
            found.add(ref(node.name))
        elif isinstance(node, Array):
            stack.append(node.items)
        elif isinstance(node, MapType):
            stack.append(node.values)
        elif isinstance(node, Union):
            stack.extend(node.branches)
    return found


def _leaf(schema: Primitive | Fixed, value: Json) -> str:
    logical = schema.logical.name if schema.logical else ""
    if logical == "decimal":
        assert schema.logical is not None
        number = int.from_bytes(str(value).encode("latin-1"), "big", signed=True)
        exact = decimal.Decimal(number).scaleb(-schema.logical.scale, decimal.Context(prec=2000))
        return f"_decimal.Decimal({text_literal(str(exact))})"
    if logical == "uuid":
        made = uuid.UUID(str(value)) if schema.kind == "string" else _uuid_bytes(str(value))
        return f"_uuid.UUID({text_literal(str(made))})"
    if logical in _LOGICAL:
        assert isinstance(value, int)
        return _moment(logical, value)
    if schema.kind in ("bytes", "fixed"):
        return byte_literal(str(value).encode("latin-1"))
    if schema.kind in ("float", "double"):
        assert isinstance(value, int | float)
        real = float(value)
        return _real(real) if math.isfinite(real) else f'float("{real}")'
    if isinstance(value, str):
        return text_literal(value)
    return repr(value)


def _uuid_bytes(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=text.encode("latin-1"))


def _moment(logical: str, value: int) -> str:
    unit = 1_000 if logical.endswith("millis") else 1
    if logical == "date":
        day = dt.date(1970, 1, 1) + dt.timedelta(days=value)
        return f"_dt.date({day.year}, {day.month}, {day.day})"
    moment = _EPOCH + dt.timedelta(microseconds=value * unit)
    clock = f"{moment.hour}, {moment.minute}, {moment.second}, {moment.microsecond}"
    if logical.startswith("time-"):
        if not 0 <= value * unit < 86_400_000_000:
            raise ValueError(value)
        return f"_dt.time({clock})"
    zone = "" if logical.startswith("local-") else ", tzinfo=_dt.UTC"
    return f"_dt.datetime({moment.year}, {moment.month}, {moment.day}, {clock}{zone})"


def _real(value: float) -> str:
    return repr(value).replace("e+", "e")


def text_literal(value: str) -> str:
    """A string literal in double quotes, unless single ones need fewer escapes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    # With both kinds of quote in it, repr takes single ones and escapes those.
    inner = repr(value + "'\"")[1:-1].removesuffix("\\'\"").replace("\\'", "'")
    return quote + inner.replace(quote, f"\\{quote}") + quote


def byte_literal(value: bytes) -> str:
    """A bytes literal, quoted like text."""
    text = "".join(chr(byte) for byte in value)
    quote = text_literal(text)[0]
    inner = repr(value + b"'\"")[2:-1].removesuffix("\\'\"").replace("\\'", "'")
    return f"b{quote}" + inner.replace(quote, f"\\{quote}") + quote
