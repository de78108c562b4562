"""Compiles a schema and its generated classes into the table that drives the compiled encoder.

Rules:

- The table does what the generated code does, branch for branch. `producer_sdk._generator.encoders`
  has the rules of unions. tests/headworks/codec/codec_law.py compares both with fastavro's bytes.
- If the compiled encoder was not built, or a class was changed after its generation, there is no
  program, and the Python encoder encodes all events.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from headworks.codec._encoders import EventEncoder, PythonEncoder

if TYPE_CHECKING:
    from headworks.schema._model import EnumType, Fixed, Primitive, Record, Schema, Union

T = TypeVar("T")
Node = tuple[Any, ...]
_CLASS_OF_KIND: dict[str, type] = {
    "null": NoneType,
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "fixed": bytes,
    "array": list,
    "map": dict,
}
_CLASS_OF_LOGICAL_TYPE: dict[str, type] = {
    "date": date,
    "time-millis": time,
    "time-micros": time,
    "timestamp-millis": datetime,
    "timestamp-micros": datetime,
    "local-timestamp-millis": datetime,
    "local-timestamp-micros": datetime,
    "uuid": UUID,
    "decimal": Decimal,
}


def compiled_encoder(
    schema: str,
    name: str,
    types: Mapping[str, type],
    python: PythonEncoder[T],
    key: object,
) -> EventEncoder[T] | None:
    """Return the compiled encoder of the record `name` of a schema; None if there is none.

    `types` holds the generated classes by full name. `key` is the generated function that returns
    an event's key.
    """
    from headworks._native import encoder  # here, because the extension imports this package

    if encoder is None or name not in types:
        return None
    from headworks.schema import governance_of, parse
    from headworks.schema._governance import event_record

    root = event_record(parse(schema, strict=False), name)
    governance = governance_of(root)
    table = _ProgramTable(types)
    table.add(root)
    time_path = governance.event_time
    try:
        return encoder.Program(
            nodes=tuple(table.nodes),
            time=None if time_path is None else table.attributes(root, time_path),
            keys=tuple(table.attributes(root, path) for path in governance.key),
            encode=python.encode,
            message=python.message,
            key=key,
        )
    except TypeError:  # a class was changed after its generation
        return None


class _ProgramTable:
    """The nodes of a program. The first is the event's record, and a named type is one node."""

    def __init__(self, types: Mapping[str, type]) -> None:
        self.nodes: list[Node] = []
        self._types = types
        self._named: dict[str, int] = {}

    def add(self, schema: Schema) -> int:
        """Return the number of the node that writes values of `schema`."""
        from headworks.schema import Array, EnumType, MapType, Record, Union

        if isinstance(schema, Record | EnumType):
            found = self._named.get(schema.name)
            return self._add_named(schema) if found is None else found
        at = self._reserve()
        if isinstance(schema, Array):
            self.nodes[at] = ("array", self.add(schema.items))
        elif isinstance(schema, MapType):
            self.nodes[at] = ("map", self.add(schema.values))
        elif isinstance(schema, Union):
            self.nodes[at] = ("union", tuple(self._choices(schema)))
        else:
            self.nodes[at] = _leaf(schema, at)
        return at

    def attributes(self, record: Record, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the attributes of the classes for a path of field names through records."""
        from headworks.schema import Record

        found = []
        for name in path:
            field = record.field(name)
            assert field is not None
            found.append(self._attribute(record, name))
            if isinstance(field.type, Record):
                record = field.type
        return tuple(found)

    def _attribute(self, record: Record, name: str) -> str:
        made = self._types[record.name].__headworks__  # type: ignore[attr-defined]
        return str(made.fields[name])

    def _reserve(self) -> int:
        self.nodes.append(())
        return len(self.nodes) - 1

    def _add_named(self, schema: Record | EnumType) -> int:
        from headworks.schema import Record

        at = self._named[schema.name] = self._reserve()
        cls: Any = self._types[schema.name]
        if isinstance(schema, Record):
            fields = [(self._attribute(schema, f.name), self.add(f.type)) for f in schema.fields]
            self.nodes[at] = ("record", cls, tuple(fields))
        else:
            self.nodes[at] = ("enum", cls, tuple(cls))
        return at

    def _choices(self, union: Union) -> list[Node]:
        """Return (branch, class or None for any, guarded, node) each; the first match is taken."""
        if union.nullable is not None:
            null = 0 if union.branches[0].kind == "null" else 1
            both = [self.add(branch) for branch in union.branches]
            return [(null, NoneType, 0, both[null]), (1 - null, None, 0, both[1 - null])]
        groups: dict[type, list[tuple[int, Schema]]] = {}
        for i, branch in enumerate(union.branches):
            groups.setdefault(self._class(branch), []).append((i, branch))
        choices: list[Node] = []
        for cls, branches in groups.items():
            for i, branch, guarded in _choices_of_class(cls, branches):
                choices.append((i, cls, guarded, self.add(branch)))
            if cls is float and int not in groups:  # as a type checker allows
                i, _, guarded, node = choices[-1]
                choices.append((i, int, guarded, node))
        return choices

    def _class(self, schema: Schema) -> type:
        """Return the Python class of a value, by which unions choose a branch."""
        if schema.kind in ("record", "enum"):
            return self._types[schema.name]  # type: ignore[union-attr]
        logical = getattr(schema, "logical", None)
        return (
            _CLASS_OF_LOGICAL_TYPE.get(logical.name if logical else "")
            or _CLASS_OF_KIND[schema.kind]
        )


def _choices_of_class(
    cls: type, branches: list[tuple[int, Schema]]
) -> list[tuple[int, Schema, int]]:
    """Return the branches of one class in order, and whether each takes only what fits."""
    if cls is float:
        index, branch = next((b for b in branches if b[1].kind == "double"), branches[0])
        return [(index, branch, 0)]
    chosen = []
    for n, (index, branch) in enumerate(branches):
        narrow = (cls is int and branch.kind == "int") or (cls is bytes and branch.kind == "fixed")
        guarded = narrow and n + 1 < len(branches)
        chosen.append((index, branch, int(guarded)))
        if not guarded:
            break
    return chosen


def _leaf(schema: Primitive | Fixed, at: int) -> Node:
    logical = schema.logical.name if schema.logical else ""
    if logical == "decimal":
        return ("python",)
    if logical == "uuid":
        return ("uuid-fixed" if schema.kind == "fixed" else "uuid", UUID, (("int", at),))
    if logical in _CLASS_OF_LOGICAL_TYPE:
        return (logical,)
    return ("fixed", schema.size) if schema.kind == "fixed" else (schema.kind,)
