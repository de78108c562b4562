"""Avro schema text to nodes (Avro 1.12.0 specification, "Schema Declaration", "Names").

Rules:

- Refuses what Avro Java 1.12.1 refuses with strict names and default validation; every refusal
  is a SchemaError with the JSON pointer of the offending place.
- `strict=False` reads what a registry once accepted: defaults are then not validated.
- Never recurses deeper than MAX_DEPTH, so a hostile text costs bounded time and stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from headworks.errors import SchemaError
from headworks.schema.defaults import check_default
from headworks.schema.model import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    EnumType,
    Field,
    Fixed,
    Json,
    Logical,
    MapType,
    Named,
    Primitive,
    PrimitiveKind,
    Record,
    Schema,
    Union,
)

__all__ = ["MAX_DEPTH", "parse"]

MAX_DEPTH = 200
_NAME = re.compile(r"[^\W\d]\w*\Z")
_RESERVED = {
    "record": ("type", "name", "namespace", "doc", "aliases", "fields"),
    "error": ("type", "name", "namespace", "doc", "aliases", "fields"),
    "enum": ("type", "name", "namespace", "doc", "aliases", "symbols", "default"),
    "fixed": ("type", "name", "namespace", "doc", "aliases", "size"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_FIELD_RESERVED = ("name", "type", "doc", "default", "order", "aliases")
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


def parse(
    source: str | Json, *, references: Mapping[str, Named] | None = None, strict: bool = True
) -> Schema:
    """Parse schema text, or JSON already decoded, into nodes.

    `references` are named types defined elsewhere, by full name. Raises SchemaError, naming the
    place as a JSON pointer and the rule, if the text is not JSON or not an Avro schema.
    """
    value = _decode(source) if isinstance(source, str) else source
    return _Parser(dict(references or {}), strict).schema(value, "", "", 0)


def _decode(text: str) -> Json:
    stripped = text.strip()
    if stripped in PRIMITIVES:
        return stripped
    try:
        return cast(Json, json.loads(stripped))
    except RecursionError:
        raise SchemaError("the schema is nested too deeply", rule="depth") from None
    except ValueError as error:
        raise SchemaError(f"the schema is not JSON: {error}", rule="json") from None


@dataclass(slots=True)
class _Parser:
    names: dict[str, Named]
    strict: bool
    defining: set[str] = field(default_factory=set)

    def schema(self, value: Json, namespace: str, at: str, depth: int) -> Schema:
        if depth > MAX_DEPTH:
            raise SchemaError(
                f"types are nested more than {MAX_DEPTH} deep", pointer=at, rule="depth"
            )
        if isinstance(value, str):
            return self._named_or_primitive(value, namespace, {}, at)
        if isinstance(value, list):
            return self._union(value, namespace, at, depth)
        if not isinstance(value, dict):
            raise SchemaError(
                f"a type must be a name, an object or a list, not {value!r}", pointer=at
            )
        kind = value.get("type")
        if isinstance(kind, (dict, list)):
            return self.schema(kind, namespace, f"{at}/type", depth + 1)
        if not isinstance(kind, str):
            raise SchemaError("a type object needs a `type`", pointer=at)
        if kind in ("record", "error"):
            return self._record(value, kind, namespace, at, depth)
        if kind == "enum":
            return self._enum(value, namespace, at)
        if kind == "fixed":
            return self._fixed(value, namespace, at)
        if kind == "array":
            items = self._member(value, "items", at)
            inner = self.schema(items, namespace, f"{at}/items", depth + 1)
            return Array(inner, _props(value, kind), at)
        if kind == "map":
            values = self._member(value, "values", at)
            inner = self.schema(values, namespace, f"{at}/values", depth + 1)
            return MapType(inner, _props(value, kind), at)
        props = {k: v for k, v in value.items() if k != "type"}
        return self._named_or_primitive(kind, namespace, props, at)

    def _named_or_primitive(
        self, name: str, namespace: str, props: Mapping[str, Json], at: str
    ) -> Schema:
        if name in PRIMITIVES:
            kind: PrimitiveKind = name
            return Primitive(kind, _logical(props, kind, 0), props, at)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise SchemaError(
                f"type {full!r} is not defined",
                pointer=at,
                rule="undefined-type",
                fix="define it earlier in the text, or register it and add a reference",
            )
        return found

    def _union(self, branches: list[Json], namespace: str, at: str, depth: int) -> Union:
        nodes: list[Schema] = []
        seen: set[str] = set()
        for i, branch in enumerate(branches):
            node = self.schema(branch, namespace, f"{at}/{i}", depth + 1)
            if isinstance(node, Union):
                raise SchemaError("a union may not hold a union", pointer=f"{at}/{i}")
            key = node.name if isinstance(node, (Record, EnumType, Fixed)) else node.kind
            if key in seen:
                raise SchemaError(f"branch {key} occurs twice in a union", pointer=f"{at}/{i}")
            seen.add(key)
            nodes.append(node)
        return Union(tuple(nodes), at)

    def _record(
        self, value: dict[str, Json], kind: str, namespace: str, at: str, depth: int
    ) -> Record:
        name, space = self._name(value, namespace, at)
        aliases, doc = _aliases(value, space, at), _text(value, "doc", at)
        record = Record(
            name, (), aliases, doc, _props(value, kind), at, is_error=kind == "error"
        )
        self._define(name, record, at)
        fields = self._member(value, "fields", at)
        if not isinstance(fields, list):
            raise SchemaError("`fields` must be a list", pointer=f"{at}/fields")
        record.fields = tuple(
            self._field(f, space, f"{at}/fields/{i}", depth) for i, f in enumerate(fields)
        )
        seen: set[str] = set()
        for f in record.fields:
            if f.name in seen:
                raise SchemaError(
                    f"field {f.name!r} occurs twice in {name}", pointer=f.pointer, rule="names"
                )
            seen.add(f.name)
        if self.strict:
            for f in record.fields:
                if f.default is not NO_DEFAULT:
                    check_default(f.type, cast(Json, f.default), f"{f.pointer}/default")
        return record

    def _field(self, value: Json, namespace: str, at: str, depth: int) -> Field:
        if not isinstance(value, dict):
            raise SchemaError("a field must be an object", pointer=at)
        name = value.get("name")
        if not isinstance(name, str) or not _NAME.match(name):
            raise SchemaError(f"{name!r} is not a field name", pointer=f"{at}/name", rule="names")
        type_ = self.schema(self._member(value, "type", at), namespace, f"{at}/type", depth + 1)
        default = value.get("default", NO_DEFAULT)
        aliases = tuple(_strings(value, "aliases", at))
        props = {k: v for k, v in value.items() if k not in _FIELD_RESERVED}
        order = _text(value, "order", at)
        if order is not None and order not in ("ascending", "descending", "ignore"):
            raise SchemaError(f"{order!r} is not a sort order", pointer=f"{at}/order")
        return Field(name, type_, default, aliases, _text(value, "doc", at), order, props, at)

    def _enum(self, value: dict[str, Json], namespace: str, at: str) -> EnumType:
        name, space = self._name(value, namespace, at)
        symbols = tuple(_strings(value, "symbols", at, required=True))
        for i, symbol in enumerate(symbols):
            if not _NAME.match(symbol):
                raise SchemaError(
                    f"{symbol!r} is not an enum symbol", pointer=f"{at}/symbols/{i}", rule="names"
                )
            if symbol in symbols[:i]:
                raise SchemaError(
                    f"symbol {symbol!r} occurs twice", pointer=f"{at}/symbols/{i}", rule="names"
                )
        default = _text(value, "default", at)
        if default is not None and default not in symbols:
            raise SchemaError(
                f"enum default {default!r} is not one of its symbols", pointer=f"{at}/default"
            )
        node = EnumType(
            name,
            symbols,
            default,
            _aliases(value, space, at),
            _text(value, "doc", at),
            _props(value, "enum"),
            at,
        )
        self._define(name, node, at)
        return node

    def _fixed(self, value: dict[str, Json], namespace: str, at: str) -> Fixed:
        name, space = self._name(value, namespace, at)
        size = self._member(value, "size", at)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise SchemaError(f"size {size!r} is not a length", pointer=f"{at}/size")
        props = _props(value, "fixed")
        node = Fixed(
            name,
            size,
            _aliases(value, space, at),
            _text(value, "doc", at),
            _logical(props, "fixed", size),
            props,
            at,
        )
        self._define(name, node, at)
        return node

    def _define(self, name: str, node: Named, at: str) -> None:
        if name in self.names:
            raise SchemaError(f"type {name!r} is defined twice", pointer=at, rule="names")
        self.names[name] = node

    def _name(self, value: dict[str, Json], namespace: str, at: str) -> tuple[str, str]:
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError("a named type needs a `name`", pointer=at, rule="names")
        space = _text(value, "namespace", at)
        if "." in name:
            space, _, name = name.rpartition(".")
        elif space is None:
            space = namespace
        if name in PRIMITIVES:
            raise SchemaError(f"{name!r} is a primitive type", pointer=f"{at}/name", rule="names")
        for part in [name, *(space.split(".") if space else [])]:
            if not _NAME.match(part):
                raise SchemaError(f"{part!r} is not a name", pointer=f"{at}/name", rule="names")
        return (f"{space}.{name}" if space else name), space

    @staticmethod
    def _member(value: dict[str, Json], key: str, at: str) -> Json:
        if key not in value:
            raise SchemaError(f"`{key}` is missing", pointer=at)
        return value[key]


def _props(value: dict[str, Json], kind: str) -> dict[str, Json]:
    return {k: v for k, v in value.items() if k not in _RESERVED[kind]}


def _text(value: dict[str, Json], key: str, at: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise SchemaError(f"`{key}` must be a string", pointer=f"{at}/{key}")
    return found


def _strings(value: dict[str, Json], key: str, at: str, *, required: bool = False) -> list[str]:
    found = value.get(key)
    if found is None and not required:
        return []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise SchemaError(f"`{key}` must be a list of strings", pointer=f"{at}/{key}")
    return cast(list[str], found)


def _aliases(value: dict[str, Json], namespace: str, at: str) -> tuple[str, ...]:
    return tuple(
        alias if "." in alias or not namespace else f"{namespace}.{alias}"
        for alias in _strings(value, "aliases", at)
    )


def _logical(props: Mapping[str, Json], kind: str, size: int) -> Logical | None:
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
