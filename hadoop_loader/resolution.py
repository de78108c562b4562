"""Writer schema and reader schema to a program that reads the one and yields the other's columns.

Rules (Avro 1.12.0, "Schema Resolution"):

- Pure. A program says how to read every byte of a datum: take, convert, skip, fill with a default.
- Resolution is decided here, once per pair; a back end (`codegen`) only carries it out.
- What cannot be resolved fails where it is met, not before: a union's other branches still read.
- Records match whatever their names (the registry has judged the pair); inside unions names
  decide, the full one before the simple one before a promotion.
- A timestamp keeps its instant: the writer's unit says what the number means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hadoop_loader.columns import MAX_DECIMAL_PRECISION
from hadoop_loader.values import default_of, union_names
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

__all__ = [
    "Constant",
    "EnumRead",
    "Fail",
    "Leaf",
    "ListRead",
    "MapRead",
    "Member",
    "Read",
    "RecordRead",
    "Skip",
    "UnionRead",
    "compatible_name",
    "resolve",
    "resolve_branch",
    "source_field",
]


@dataclass(frozen=True, slots=True)
class Leaf:
    """Read a `wire` value (its Avro kind; `size` for fixed) and convert it."""

    wire: str
    convert: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class EnumRead:
    """Read a symbol's number; None where the reader knows neither the symbol nor a default."""

    symbols: tuple[str | None, ...]
    written: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListRead:
    """Read an array; every item takes at least `min_size` bytes."""

    item: Read
    min_size: int


@dataclass(frozen=True, slots=True)
class MapRead:
    """Read a map; every value takes at least `min_size` bytes."""

    value: Read
    min_size: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Read a value of the writer that the reader does not know."""

    schema: Schema


@dataclass(frozen=True, slots=True)
class Constant:
    """Read nothing: the reader's default."""

    value: Any


@dataclass(frozen=True, slots=True)
class RecordRead:
    """In the writer's order: the member to fill (None: skip) and how; then the defaults."""

    steps: tuple[tuple[str | None, Read], ...]
    empty: bool = False


@dataclass(frozen=True, slots=True)
class UnionRead:
    """Read a branch number, then that branch."""

    branches: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """Fill one member of a union's struct, the others are null."""

    name: str
    read: Read


@dataclass(frozen=True, slots=True)
class Fail:
    """This datum cannot be read by the reader; `reason` says why."""

    reason: str


Read = (
    Leaf | EnumRead | ListRead | MapRead | Skip | Constant | RecordRead | UnionRead | Member | Fail
)

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def resolve(writer: Schema, reader: Schema) -> Read:
    """The program that reads data of `writer` as values of `reader`."""
    if isinstance(writer, Union):
        return UnionRead(tuple(resolve(branch, reader) for branch in writer.branches))
    if isinstance(reader, Union):
        return _into_union(writer, reader)
    if not _matches(writer, reader):
        return Fail(f"{_name(writer)} cannot be read as {_name(reader)}")
    if isinstance(writer, Record) and isinstance(reader, Record):
        return _record(writer, reader)
    if isinstance(writer, EnumType) and isinstance(reader, EnumType):
        known = {symbol: symbol for symbol in reader.symbols}
        return EnumRead(tuple(known.get(s, reader.default) for s in writer.symbols), writer.symbols)
    if isinstance(writer, Array) and isinstance(reader, Array):
        return ListRead(resolve(writer.items, reader.items), _min_size(writer.items))
    if isinstance(writer, MapType) and isinstance(reader, MapType):
        return MapRead(resolve(writer.values, reader.values), _min_size(writer.values))
    assert isinstance(writer, (Primitive, Fixed))
    assert isinstance(reader, (Primitive, Fixed))
    return _leaf(writer, reader)


def source_field(writer: Record, reader: Record, field: Field) -> Field | None:
    """The writer's field that feeds a reader's field: by name, else by one of its aliases."""
    direct = writer.field(field.name)
    if direct is not None:
        return direct
    for alias in field.aliases:
        found = writer.field(alias)
        if found is not None and reader.field(alias) is None:
            return found
    return None


def compatible_name(writer: Record | EnumType | Fixed, reader: Record | EnumType | Fixed) -> bool:
    """Whether the names match: whole, by an alias of the reader, or the simple ones."""
    return _same_name(writer, reader) or _simple(writer.name) == _simple(reader.name)


def _record(writer: Record, reader: Record) -> Read:
    target: dict[str, str] = {}
    defaults: list[tuple[str | None, Read]] = []
    for f in reader.fields:
        source = source_field(writer, reader, f)
        if source is not None and source.name not in target:
            target[source.name] = f.name
        elif f.has_default:
            defaults.append((f.name, Constant(default_of(f))))
        else:
            return Fail(f"{writer.name} has no field {f.name!r}, and the reader has no default")
    steps: list[tuple[str | None, Read]] = []
    for source in writer.fields:
        name = target.get(source.name)
        field = reader.field(name) if name is not None else None
        if field is None:
            steps.append((None, Skip(source.type)))
        else:
            steps.append((field.name, resolve(source.type, field.type)))
    return RecordRead((*steps, *defaults), empty=not reader.fields)


def _into_union(writer: Schema, reader: Union) -> Read:
    names = union_names(reader)
    at = resolve_branch(writer, reader)
    if at is None:
        return Fail(f"{_name(writer)} is no branch of the reader's union")
    read = resolve(writer, reader.branches[at])
    if names is None or at not in names:
        return read
    return Member(names[at], read)


def resolve_branch(writer: Schema, reader: Union) -> int | None:
    """The branch of `reader` that takes data of `writer`, or None."""
    for test in (_is_same, _is_alike, _matches):
        for i, branch in enumerate(reader.branches):
            if test(writer, branch):
                return i
    return None


def _is_same(writer: Schema, reader: Schema) -> bool:
    if isinstance(writer, (Record, EnumType, Fixed)):
        return writer.kind == reader.kind and _same_name(writer, reader)
    return writer.kind == reader.kind


def _is_alike(writer: Schema, reader: Schema) -> bool:
    if not isinstance(writer, (Record, EnumType, Fixed)) or writer.kind != reader.kind:
        return False
    return isinstance(reader, (Record, EnumType, Fixed)) and compatible_name(writer, reader)


def _matches(writer: Schema, reader: Schema) -> bool:
    if isinstance(writer, Fixed) and isinstance(reader, Fixed):
        return writer.size == reader.size and compatible_name(writer, reader)
    if isinstance(writer, EnumType) and isinstance(reader, EnumType):
        return compatible_name(writer, reader)
    return writer.kind == reader.kind or reader.kind in _PROMOTIONS.get(writer.kind, ())


def _same_name(writer: Record | EnumType | Fixed, reader: Schema) -> bool:
    return isinstance(reader, (Record, EnumType, Fixed)) and (
        writer.name == reader.name or writer.name in reader.aliases
    )


def _leaf(writer: Primitive | Fixed, reader: Primitive | Fixed) -> Read:
    size = writer.size if isinstance(writer, Fixed) else 0
    logical, written = reader.logical, writer.logical
    name = logical.name if logical else ""
    if name == "decimal" and logical is not None:
        if written is not None and written.name == "decimal" and written.scale != logical.scale:
            return Fail(f"a decimal of scale {written.scale} is not one of scale {logical.scale}")
        wide = logical.precision > MAX_DECIMAL_PRECISION
        convert = "decimal_text" if wide else "decimal"
        return Leaf(writer.kind, convert, size, logical.precision, logical.scale)
    if isinstance(reader, Fixed):
        return Leaf("fixed", {"uuid": "uuid", "duration": "duration"}.get(name, "bytes"), size)
    if "timestamp" in name and not name.endswith("nanos"):
        unit = written.name if written is not None and "timestamp" in written.name else name
        if unit.endswith("micros"):
            return Leaf(writer.kind)
        return Leaf(
            writer.kind, "millis_to_micros" if unit.endswith("millis") else "nanos_to_micros"
        )
    if writer.kind in ("int", "long"):
        return Leaf(writer.kind, {"float": "float32", "double": "double"}.get(reader.kind, ""))
    if reader.kind in ("bytes", "string"):
        return Leaf(writer.kind, "bytes" if reader.kind == "bytes" else "text")
    return Leaf(writer.kind)


_MIN_SIZES = {"null": 0, "float": 4, "double": 8}


def _min_size(schema: Schema, inside: tuple[Schema, ...] = ()) -> int:
    """The fewest bytes that a datum of `schema` takes."""
    if isinstance(schema, Fixed):
        return schema.size
    if isinstance(schema, Record):
        if any(schema is record for record in inside):
            return 0
        return sum(_min_size(f.type, (*inside, schema)) for f in schema.fields)
    return _MIN_SIZES.get(schema.kind, 1)


def _name(schema: Schema) -> str:
    if isinstance(schema, (Record, EnumType, Fixed)):
        return schema.name
    return schema.kind


def _simple(name: str) -> str:
    return name.rpartition(".")[2]
