"""The nodes of a parsed Avro schema (Avro 1.12.0 specification, "Schema Declaration").

Rules:

- Nodes are read-only once `parse` returns. They compare by identity, because schemas may be
  recursive; compare canonical texts to compare schemas.
- A named type that is used again by name is the same node object.
- `pointer` is the JSON pointer of the node's definition in the text it was parsed from.
- `props` keeps every attribute that Avro does not define, in order. `logicalType`, `precision`, and
  `scale` stay in `props`. If they are valid, they are read into `logical` as well; the
  specification asks to ignore an invalid logical type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
PrimitiveKind = Literal["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
PRIMITIVES: Final[tuple[PrimitiveKind, ...]] = get_args(PrimitiveKind)


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True)
class Logical:
    """A valid logical type: its name and, for decimals, precision and scale."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(eq=False, slots=True)
class Primitive:
    """null, boolean, int, long, float, double, bytes or string."""

    kind: PrimitiveKind
    logical: Logical | None = None
    props: Mapping[str, Json] = field(default_factory=dict)
    pointer: str = ""


@dataclass(eq=False, slots=True)
class Fixed:
    """A fixed number of bytes; `name` and `aliases` are full names."""

    name: str
    size: int
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    logical: Logical | None = None
    props: Mapping[str, Json] = field(default_factory=dict)
    pointer: str = ""
    kind: Final = "fixed"


@dataclass(eq=False, slots=True)
class EnumType:
    """An enum; a reader takes the symbol `default` for one that it does not know."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    props: Mapping[str, Json] = field(default_factory=dict)
    pointer: str = ""
    kind: Final = "enum"


@dataclass(eq=False, slots=True)
class Array:
    """An array of `items`."""

    items: Schema
    props: Mapping[str, Json] = field(default_factory=dict)
    pointer: str = ""
    kind: Final = "array"


@dataclass(eq=False, slots=True)
class MapType:
    """A map from string to `values`."""

    values: Schema
    props: Mapping[str, Json] = field(default_factory=dict)
    pointer: str = ""
    kind: Final = "map"


@dataclass(eq=False, slots=True)
class Union:
    """One of `branches`; no branch is itself a union."""

    branches: tuple[Schema, ...]
    pointer: str = ""
    kind: Final = "union"

    @property
    def nullable(self) -> Schema | None:
        """The other branch T if this union is [null, T] or [T, null], else None."""
        if len(self.branches) != 2:
            return None
        first, second = self.branches
        if first.kind == "null":
            return second
        return first if second.kind == "null" else None


@dataclass(eq=False, slots=True)
class Field:
    """A field of a record; `default` is JSON, or NO_DEFAULT.

    A `shared` field is the same node in many texts: it holds no named type (see `parse`).
    """

    name: str
    type: Schema
    default: Json | _NoDefault = NO_DEFAULT
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    order: str | None = None
    props: Mapping[str, Json] = field(default_factory=dict)
    pointer: str = ""
    shared: bool = False
    validated: bool = False  # by a strict text
    printed: str | None = None  # the canonical text of a shared field

    @property
    def has_default(self) -> bool:
        """Whether the field has a default (null counts)."""
        return self.default is not NO_DEFAULT


@dataclass(eq=False, slots=True)
class Record:
    """A record (or error) type; `fields` is set once, when its definition has been read."""

    name: str
    fields: tuple[Field, ...] = ()
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    props: Mapping[str, Json] = field(default_factory=dict)
    pointer: str = ""
    is_error: bool = False
    _by_name: dict[str, Field] | None = field(default=None, init=False)
    kind: Final = "record"

    def __repr__(self) -> str:
        return f"Record({self.name!r}, {len(self.fields)} fields)"

    @property
    def by_name(self) -> Mapping[str, Field]:
        """The fields by name; none while the definition is being read."""
        if self._by_name is None:
            if not self.fields:
                return {}
            self._by_name = {f.name: f for f in self.fields}
        return self._by_name

    def field(self, name: str) -> Field | None:
        """The field of that name, or None."""
        return self.by_name.get(name)


Named = Fixed | EnumType | Record
Schema = Primitive | Fixed | EnumType | Array | MapType | Union | Record


def named_types(schema: Schema) -> Iterator[Named]:
    """Yield every named type that `schema` defines, each once, in order of definition."""
    seen: set[int] = set()
    stack: list[Schema] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Named):
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
        stack.extend(reversed(_compound_types(node)))


def _compound_types(node: Schema) -> list[Schema]:
    """Return the inner types that may hold a named type."""
    if isinstance(node, Record):
        return [f.type for f in node.fields if not (f.shared or isinstance(f.type, Primitive))]
    return [one for one in inner_types(node) if not isinstance(one, Primitive)]


def inner_types(node: Schema) -> tuple[Schema, ...]:
    """Return the types that a type contains directly, in their order."""
    if isinstance(node, Record):
        return tuple(f.type for f in node.fields)
    if isinstance(node, Array):
        return (node.items,)
    if isinstance(node, MapType):
        return (node.values,)
    return node.branches if isinstance(node, Union) else ()
