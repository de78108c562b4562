"""Writer schema and reader schema to actions that read data of one as values of the other.

Rules (Avro 1.12.0, "Schema Resolution"; the actions have the names of Avro Java's Resolver):

- Pure. The actions say how to read every byte of a datum: take, convert, skip, or default.
- Resolution is decided here, once per pair. A back end only carries it out, in its own values.
- A part that does not resolve fails when a datum holds it, not before: a union's other branches
  still read.
- Records match whatever their names, because the registry has judged the pair. Inside unions names
  decide: full names, then simple names, then promotions.
- A pair of records has one RecordAction. Where it is met again, inside itself or elsewhere, is a
  RecursionAction. So the actions always end, and are no more than the schemas are long.
- With `expand`, only a pair inside itself is a RecursionAction: each other place has actions of its
  own, as each has a column. The caller bounds the places.
"""

from __future__ import annotations

from dataclasses import dataclass

from headworks._decoding.primitives import values_without_bytes
from headworks.schema import (
    Array,
    EnumType,
    Field,
    Fixed,
    Logical,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)
from headworks.schema._model import Named

RecordPair = tuple[int, int]  # a writer's and a reader's record, by identity


@dataclass(frozen=True, slots=True)
class LeafAction:
    """Read a value of `writer` and convert it to the type of `reader`."""

    writer: Primitive | Fixed
    reader: Primitive | Fixed


@dataclass(frozen=True, slots=True)
class EnumAction:
    """Read a symbol's number; None for a symbol without a default in the reader."""

    reader: EnumType
    symbols: tuple[str | None, ...]
    written: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayAction:
    """Read an array; every item takes at least `min_size` bytes."""

    item: Action
    min_size: int


@dataclass(frozen=True, slots=True)
class MapAction:
    """Read a map; every value takes at least `min_size` bytes."""

    value: Action
    min_size: int


@dataclass(frozen=True, slots=True)
class SkipAction:
    """Skip a value that the reader does not know."""

    schema: Schema


@dataclass(frozen=True, slots=True)
class DefaultAction:
    """Read nothing: take the default of the reader's field."""

    field: Field


@dataclass(frozen=True, slots=True)
class RecordAction:
    """Fill a record: (reader's field, action) in the writer's order, then the defaults.

    A field of None means that the value is skipped.
    """

    pair: RecordPair
    reader: Record
    steps: tuple[tuple[Field | None, Action], ...]


@dataclass(frozen=True, slots=True)
class RecursionAction:
    """Carry out the RecordAction of this pair again; it comes earlier in the same actions."""

    pair: RecordPair


@dataclass(frozen=True, slots=True)
class WriterUnionAction:
    """Read a branch number, then carry out the action of that branch."""

    branches: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class ReaderUnionAction:
    """Fill branch number `branch` of the reader's union."""

    union: Union
    branch: int
    action: Action


@dataclass(frozen=True, slots=True)
class ErrorAction:
    """Refuse a datum that the reader cannot take, with the reason."""

    reason: str


Action = (
    LeafAction
    | EnumAction
    | ArrayAction
    | MapAction
    | SkipAction
    | DefaultAction
    | RecordAction
    | RecursionAction
    | WriterUnionAction
    | ReaderUnionAction
    | ErrorAction
)

_MIN_SIZES = {"null": 0, "float": 4, "double": 8}
_MAX_VALUES_WITHOUT_BYTES = 1_000  # of one record
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def unknown_symbol(reader_name: str, symbol: str) -> str:
    """Return why a datum with a symbol that the reader's enum lacks is bad."""
    return f"{reader_name} has no symbol {symbol!r}, and no default"


def resolve(writer: Schema, reader: Schema, *, expand: bool = False) -> Action:
    """Return the action that reads data of `writer` as values of `reader`."""
    return _Resolver(expand=expand).resolve(writer, reader)


class _Resolver:
    """Resolves one pair of schemas."""

    def __init__(self, *, expand: bool) -> None:
        self._expand = expand
        self._met: set[RecordPair] = set()
        self._sizes: dict[int, int] = {}  # by the identity of a writer's record

    def resolve(self, writer: Schema, reader: Schema) -> Action:
        if isinstance(writer, Union):
            return WriterUnionAction(
                tuple(self.resolve(branch, reader) for branch in writer.branches)
            )
        if isinstance(reader, Union):
            at = resolve_branch(writer, reader)
            if at is None:
                return ErrorAction(f"{_name(writer)} is no branch of the reader's union")
            return ReaderUnionAction(reader, at, self.resolve(writer, reader.branches[at]))
        if not _matches(writer, reader):
            return ErrorAction(f"{_name(writer)} cannot be read as {_name(reader)}")
        if isinstance(writer, Record) and isinstance(reader, Record):
            return self._record(writer, reader)
        if isinstance(writer, EnumType) and isinstance(reader, EnumType):
            known = {symbol: symbol for symbol in reader.symbols}
            symbols = tuple(known.get(s, reader.default) for s in writer.symbols)
            return EnumAction(reader, symbols, writer.symbols)
        if isinstance(writer, Array) and isinstance(reader, Array):
            item = self.resolve(writer.items, reader.items)
            return ArrayAction(item, self._min_size(writer.items))
        if isinstance(writer, MapType) and isinstance(reader, MapType):
            value = self.resolve(writer.values, reader.values)
            return MapAction(value, self._min_size(writer.values))
        assert isinstance(writer, (Primitive, Fixed))
        assert isinstance(reader, (Primitive, Fixed))
        return _leaf(writer, reader)

    def _record(self, writer: Record, reader: Record) -> Action:
        pair = (id(writer), id(reader))
        if pair in self._met:
            return RecursionAction(pair)
        if (values_without_bytes(writer) or 0) > _MAX_VALUES_WITHOUT_BYTES:
            return ErrorAction(
                f"{writer.name} takes no bytes, and has more than"
                f" {_MAX_VALUES_WITHOUT_BYTES:,} values"
            )
        target: dict[str, Field] = {}
        defaults: list[tuple[Field | None, Action]] = []
        for f in reader.fields:
            source = source_field(writer, reader, f)
            if source is not None and source.name not in target:
                target[source.name] = f
            elif f.has_default:
                defaults.append((f, DefaultAction(f)))
            else:
                return ErrorAction(
                    f"{writer.name} has no field {f.name!r}, and the reader has no default"
                )
        self._met.add(pair)
        steps: list[tuple[Field | None, Action]] = []
        for source in writer.fields:
            field = target.get(source.name)
            if field is None:
                steps.append((None, SkipAction(source.type)))
            else:
                steps.append((field, self.resolve(source.type, field.type)))
        if self._expand:
            self._met.remove(pair)
        return RecordAction(pair, reader, (*steps, *defaults))

    def _min_size(self, schema: Schema) -> int:
        """Return the fewest bytes that a datum of `schema` takes."""
        if isinstance(schema, Fixed):
            return schema.size
        if not isinstance(schema, Record):
            return _MIN_SIZES.get(schema.kind, 1)
        if id(schema) not in self._sizes:
            self._sizes[id(schema)] = 0  # inside itself
            self._sizes[id(schema)] = sum(self._min_size(f.type) for f in schema.fields)
        return self._sizes[id(schema)]


def source_field(writer: Record, reader: Record, field: Field) -> Field | None:
    """Return the writer's field that feeds a reader's field: by name, else by an alias."""
    direct = writer.field(field.name)
    if direct is not None:
        return direct
    for alias in field.aliases:
        found = writer.field(alias)
        if found is not None and reader.field(alias) is None:
            return found
    return None


def is_millis(logical: Logical | None) -> bool:
    """Return whether a long counts milliseconds, which tables store as microseconds."""
    return logical is not None and logical.name.endswith("timestamp-millis")


def compatible_name(writer: Record | EnumType | Fixed, reader: Record | EnumType | Fixed) -> bool:
    """Return whether names match: in full, by an alias of the reader, or simple names."""
    return _same_name(writer, reader) or _simple(writer.name) == _simple(reader.name)


def resolve_branch(writer: Schema, reader: Union) -> int | None:
    """Return the branch of `reader` that takes data of `writer`, or None."""
    for test in (_has_same_name, _has_compatible_name, _matches):
        for i, branch in enumerate(reader.branches):
            if test(writer, branch):
                return i
    return None


def _has_same_name(writer: Schema, reader: Schema) -> bool:
    if isinstance(writer, Named):
        return writer.kind == reader.kind and _same_name(writer, reader)
    return writer.kind == reader.kind


def _has_compatible_name(writer: Schema, reader: Schema) -> bool:
    if not isinstance(writer, Named) or writer.kind != reader.kind:
        return False
    return isinstance(reader, Named) and compatible_name(writer, reader)


def _matches(writer: Schema, reader: Schema) -> bool:
    if isinstance(writer, Fixed) and isinstance(reader, Fixed):
        return writer.size == reader.size and compatible_name(writer, reader)
    if isinstance(writer, EnumType) and isinstance(reader, EnumType):
        return compatible_name(writer, reader)
    return writer.kind == reader.kind or reader.kind in _PROMOTIONS.get(writer.kind, ())


def _same_name(writer: Record | EnumType | Fixed, reader: Schema) -> bool:
    return isinstance(reader, Named) and (
        writer.name == reader.name or writer.name in reader.aliases
    )


def _leaf(writer: Primitive | Fixed, reader: Primitive | Fixed) -> Action:
    old, new = writer.logical, reader.logical
    if (
        old is not None
        and new is not None
        and old.name == new.name == "decimal"
        and old.scale != new.scale
    ):
        return ErrorAction(f"a decimal of scale {old.scale} is not one of scale {new.scale}")
    return LeafAction(writer, reader)


def _name(schema: Schema) -> str:
    if isinstance(schema, Named):
        return schema.name
    return schema.kind


def _simple(name: str) -> str:
    return name.rpartition(".")[2]
