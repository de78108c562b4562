"""Avro schema text to nodes (Avro 1.12.0 specification, "Schema Declaration", "Names").

Rules:

- It refuses what Avro Java 1.12.1 refuses with default validation. Every refusal is a SchemaError
  with the JSON pointer of the offending place.
- It also refuses two kinds of text that Java reads. One names a type before its definition, which
  the specification forbids and most readers cannot follow. The other nests types more than
  MAX_DEPTH deep, where Java overflows its stack at some depth.
- `strict=False` reads what a registry once accepted: defaults are not validated.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import cast

from headworks.errors import SchemaError
from headworks.schema._attributes import (
    check_depth,
    full_aliases,
    logical_type,
    number_of_text,
    properties,
    string_list,
    text_attribute,
)
from headworks.schema._canonical import structure_text
from headworks.schema._defaults import check_default
from headworks.schema._json_text import decode
from headworks.schema._model import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    EnumType,
    Field,
    Fixed,
    Json,
    MapType,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)
from headworks.schema._quoting import quote
from headworks.schema._similar_type import similar_type

MAX_DEPTH = 120
# Fields read before, by pointer and packed JSON.
SharedFields = MutableMapping[tuple[str, bytes], Field]
_PRIMITIVES = frozenset(PRIMITIVES)
_NAME = re.compile(r"[^\W\d]\w*\Z")
# Attributes that Avro defines for any type: never kept as properties, as in Java.
_NAMED_RESERVED = ("type", "name", "namespace", "doc", "aliases")
_RESERVED = frozenset((*_NAMED_RESERVED, "fields", "items", "values", "symbols", "size"))
_ENUM_RESERVED = _RESERVED | {"default"}
_FIELD_RESERVED = frozenset(("name", "type", "doc", "default", "order", "aliases"))
_ORDERS = ("ascending", "descending", "ignore")


def parse(
    source: str | Json,
    *,
    references: Mapping[str, Named] | None = None,
    strict: bool = True,
    base: str = "",
    shared: SharedFields | None = None,
    adds: bool = False,
) -> Schema:
    """Parse schema text, or JSON already decoded, into nodes.

    `references` are named types defined elsewhere, by full name. `base` is put before every
    pointer: the name of the document, if nodes of several meet. Raises SchemaError, with the place
    as a JSON pointer and the rule, if the text is not JSON or not an Avro schema.

    `shared` makes many versions of one schema cheap to hold and to compare. A field without named
    types is the node of an earlier text that has the same field at the same place. Lenient texts
    add theirs. A strict text adds its own only if `adds`, because it may be only proposed; a field
    that another strict text had is valid.
    """
    value = decode(source) if isinstance(source, str) else source
    parser = _Parser(dict(references or {}), strict, shared, adds or not strict)
    return parser.schema(value, "", base, 0)


@dataclass(slots=True)
class _Parser:
    """The state of parsing one text."""

    names: dict[str, Named]  # types defined so far, by full name
    strict: bool  # whether defaults are validated
    shared: SharedFields | None = None  # see parse
    adds: bool = False  # whether its fields are added to the shared ones
    # How often a named type was used or defined. A field that does neither can be shared.
    touched: int = 0
    # Records whose definition is being read: named already, fields not yet known.
    open: set[str] = field(default_factory=set)

    def schema(self, value: Json, namespace: str, at: str, depth: int) -> Schema:
        if depth > MAX_DEPTH:
            raise SchemaError(
                f"types are nested more than {MAX_DEPTH} deep", pointer=at, rule="depth"
            )
        if isinstance(value, str):
            if value in _PRIMITIVES:
                return Primitive(value, None, {}, at)
            return self._named(value, namespace, at)
        if isinstance(value, list):
            return self._union(value, namespace, at, depth)
        if not isinstance(value, dict):
            raise SchemaError(
                f"a type must be a name, an object or a list, not {quote(value)}", pointer=at
            )
        kind = value.get("type")
        if not isinstance(kind, str):
            fix = None if kind is None else "put the inner type in its place: no wrapper is needed"
            raise SchemaError("a type object needs a `type` that is a name", pointer=at, fix=fix)
        if kind in _PRIMITIVES:
            props = properties(value, _RESERVED)
            return Primitive(kind, logical_type(props, kind, 0), props, at)
        if kind in ("record", "error"):
            return self._record(value, kind, namespace, at, depth)
        if kind == "enum":
            return self._enum(value, namespace, at)
        if kind == "fixed":
            return self._fixed(value, namespace, at)
        if kind == "array":
            items = self._member(value, "items", at)
            inner = self.schema(items, namespace, f"{at}/items", depth + 1)
            return Array(inner, properties(value, _RESERVED), at)
        if kind == "map":
            values = self._member(value, "values", at)
            inner = self.schema(values, namespace, f"{at}/values", depth + 1)
            return MapType(inner, properties(value, _RESERVED), at)
        return self._named(kind, namespace, at)

    def _named(self, name: str, namespace: str, at: str) -> Named:
        self.touched += 1
        # `.Name` is the one without a namespace, wherever it stands.
        qualified = "." in name or not namespace
        full = name.removeprefix(".") if qualified else f"{namespace}.{name}"
        # As Java looks: types already complete, by full name and then without a namespace, and only
        # then, by full name alone, those that are being defined around this place.
        candidates = [n for n in (full, name) if n in self.names and n not in self.open]
        found = self.names.get(candidates[0] if candidates else full)
        if found is None:
            fix = "define it earlier in the text, in another file of the catalog, or in a "
            fix += "registered schema that this one refers to"
            meant = similar_type(name, self.names)
            raise SchemaError(
                f"type {full!r} is not defined",
                pointer=at,
                rule="undefined-type",
                fix=fix if meant is None else f'did you mean "{meant}"? Otherwise {fix}',
            )
        return found

    def _union(self, branches: list[Json], namespace: str, at: str, depth: int) -> Union:
        nodes: list[Schema] = []
        seen: set[str] = set()
        for i, branch in enumerate(branches):
            node = self.schema(branch, namespace, f"{at}/{i}", depth + 1)
            if isinstance(node, Union):
                raise SchemaError("a union may not hold a union", pointer=f"{at}/{i}")
            key = node.name if isinstance(node, Named) else node.kind
            if key in seen:
                raise SchemaError(f"branch {key} occurs twice in a union", pointer=f"{at}/{i}")
            seen.add(key)
            nodes.append(node)
        return Union(tuple(nodes), at)

    def _record(
        self, value: dict[str, Json], kind: str, namespace: str, at: str, depth: int
    ) -> Record:
        name, space = self._name(value, namespace, at)
        record = Record(
            name,
            (),
            full_aliases(value, space, at),
            text_attribute(value, "doc"),
            properties(value, _RESERVED),
            at,
            is_error=kind == "error",
        )
        outer = self.names.get(name)
        if name in self.open:
            raise SchemaError(f"type {name!r} is defined inside itself", pointer=at, rule="names")
        self.names[name] = record
        self.open.add(name)
        fields = self._member(value, "fields", at)
        if not isinstance(fields, list):
            raise SchemaError("`fields` must be a list", pointer=f"{at}/fields")
        record.fields = self._fields(fields, space, f"{at}/fields", depth)
        if len({f.name for f in record.fields}) < len(record.fields):
            raise self._duplicate(record)
        self.open.remove(name)
        return cast(Record, self._define(record, outer))

    def _duplicate(self, record: Record) -> SchemaError:
        """Return the error for the first field whose name an earlier one has."""
        names = [one.name for one in record.fields]
        at = next(i for i, name in enumerate(names) if name in names[:i])
        reason = f"field {names[at]!r} occurs twice in {record.name}"
        return SchemaError(reason, pointer=record.fields[at].pointer, rule="names")

    def _fields(self, values: list[Json], namespace: str, at: str, depth: int) -> tuple[Field, ...]:
        shared, strict, packed = self.shared, self.strict, marshal.dumps
        found: list[Field] = []
        for i, value in enumerate(values):
            place = f"{at}/{i}"
            if shared is None:
                found.append(self._field(value, namespace, place, depth))
                continue
            # Version 2 of the format writes equal values as equal bytes: no references to objects.
            key = place, packed(value, 2)
            known = shared.get(key)
            if known is None or (strict and not known.validated):
                known = self._shared_field(key, value, namespace, depth, known)
            found.append(known)
        return tuple(found)

    def _shared_field(
        self, key: tuple[str, bytes], value: Json, namespace: str, depth: int, known: Field | None
    ) -> Field:
        """Return the field that is read, or the known one, which this strict text validates."""
        assert self.shared is not None
        at, before = key[0], self.touched
        own = self._field(value, namespace, at, depth)
        if known is not None:
            known.validated = True
            return known
        if self.adds and self.touched == before:
            own.shared, own.validated = True, self.strict
            self.shared[key] = own
        return own

    def _field(self, value: Json, namespace: str, at: str, depth: int) -> Field:
        if not isinstance(value, dict):
            raise SchemaError("a field must be an object", pointer=at)
        name = value.get("name")
        if not isinstance(name, str) or not _NAME.match(name):
            raise SchemaError(
                f"{quote(name)} is not a field name", pointer=f"{at}/name", rule="names"
            )
        type_ = self.schema(self._member(value, "type", at), namespace, f"{at}/type", depth + 1)
        default = value.get("default", NO_DEFAULT)
        if isinstance(default, str) and type_.kind in ("float", "double"):
            default = number_of_text(default, f"{at}/default")
        elif isinstance(default, (dict, list)):
            check_depth(default)
        if self.strict and default is not NO_DEFAULT:
            check_default(type_, cast(Json, default), f"{at}/default", self.open)
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise SchemaError(f"{quote(order)} is not a sort order", pointer=f"{at}/order")
        aliases = string_list(value, "aliases", at)
        return Field(
            name,
            type_,
            default,
            tuple(dict.fromkeys(aliases)) if aliases else (),
            text_attribute(value, "doc"),
            order.lower(),
            properties(value, _FIELD_RESERVED),
            at,
        )

    def _enum(self, value: dict[str, Json], namespace: str, at: str) -> EnumType:
        name, space = self._name(value, namespace, at)
        symbols = tuple(string_list(value, "symbols", at, required=True))
        seen: set[str] = set()
        for i, symbol in enumerate(symbols):
            here = f"{at}/symbols/{i}"
            if not _NAME.match(symbol):
                raise SchemaError(
                    f"{quote(symbol)} is not an enum symbol", pointer=here, rule="names"
                )
            if symbol in seen:
                raise SchemaError(f"symbol {symbol!r} occurs twice", pointer=here, rule="names")
            seen.add(symbol)
        default = text_attribute(value, "default")
        if default is not None and default not in seen:
            raise SchemaError(
                f"enum default {quote(default)} is not one of its symbols", pointer=f"{at}/default"
            )
        doc, props = text_attribute(value, "doc"), properties(value, _ENUM_RESERVED)
        node = EnumType(name, symbols, default, full_aliases(value, space, at), doc, props, at)
        return cast(EnumType, self._define(node, self.names.get(name)))

    def _fixed(self, value: dict[str, Json], namespace: str, at: str) -> Fixed:
        name, space = self._name(value, namespace, at)
        size = self._member(value, "size", at)
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise SchemaError(f"size {quote(size)} is not a length", pointer=f"{at}/size")
        doc, props = text_attribute(value, "doc"), properties(value, _RESERVED)
        logical = logical_type(props, "fixed", size)
        node = Fixed(name, size, full_aliases(value, space, at), doc, logical, props, at)
        return cast(Fixed, self._define(node, self.names.get(name)))

    def _define(self, node: Named, known: Named | None) -> Named:
        """Enter a definition; as in Java, an equal second one is the first one again."""
        self.touched += 1
        if known is None:
            self.names[node.name] = node
            return node
        if structure_text(known) != structure_text(node):
            raise SchemaError(
                f"type {node.name!r} is defined twice, differently",
                pointer=node.pointer,
                rule="names",
                fix="name the first definition instead, or give this one another name",
            )
        self.names[node.name] = known
        return known

    def _name(self, value: dict[str, Json], namespace: str, at: str) -> tuple[str, str]:
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError("a named type needs a `name`", pointer=at, rule="names")
        space = text_attribute(value, "namespace")
        if "." in name:
            space, _, name = name.rpartition(".")
        elif space is None:
            space = namespace
        if name in PRIMITIVES and not space:
            raise SchemaError(f"{name!r} is a primitive type", pointer=f"{at}/name", rule="names")
        for part in [name, *(space.split(".") if space else [])]:
            if not _NAME.match(part):
                raise SchemaError(
                    f"{quote(part)} is not a name", pointer=f"{at}/name", rule="names"
                )
        return (f"{space}.{name}" if space else name), space

    @staticmethod
    def _member(value: dict[str, Json], key: str, at: str) -> Json:
        if key not in value:
            raise SchemaError(f"`{key}` is missing", pointer=at)
        return value[key]
