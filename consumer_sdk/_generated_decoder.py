"""Resolved actions as generated Python: the writer's bytes straight to the reader's objects.

Rules:

- There is one function per (writer, reader) pair, and one per record that holds itself. Resolution
  is decided before, so the code has no schema in it.
- A datum must end exactly where its bytes do.
- Classes and constants are passed beside the source. Attribute names in it are identifiers, because
  the generator of the classes makes them so.
- A mutable default is copied for every event.
- Objects are made without their `__init__`: every field is set here, and a generated class does
  nothing else there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from consumer_sdk._conversions import GIVEN, expression
from consumer_sdk._default_values import event_default
from headworks._decoding.generated_decoder import DATUM_ERRORS, SCOPE, DecoderSource
from headworks._decoding.primitives import BadDatumError
from headworks._decoding.resolution import (
    Action,
    ArrayAction,
    EnumAction,
    LeafAction,
    MapAction,
    ReaderUnionAction,
    RecordAction,
    RecordPair,
    RecursionAction,
    WriterUnionAction,
    resolve,
)
from headworks.codec._event import RecordType
from headworks.schema import Field, Schema

__all__ = ["DATUM_ERRORS", "Decode", "compiled", "is_immutable"]

# From (bytes, position where the datum begins) to the event; raises one of DATUM_ERRORS.
Decode = Callable[[bytes, int], Any]
# A statement that takes a value, as its text before and after the value.
Place = tuple[str, str]

_SCOPE: Mapping[str, Any] = {**GIVEN, **SCOPE, "new": object.__new__}
_MAX_DEPTH = 90  # Python's parser takes a hundred levels of indentation
_MAX_LOOPS = 8  # and its compiler twenty nested loops: an array is two
_IMMUTABLE = (type(None), bool, int, float, str, bytes)


def compiled(writer: Schema, reader: Schema, types: Mapping[str, type]) -> Decode:
    """Return the function that decodes data of `writer` to objects of `reader`, a record.

    `types` are the generated classes of the reader's named types, by full name.
    """
    source = _ObjectSource(types)
    name = source.function(resolve(writer, reader))
    scope = {**_SCOPE, **source.constants}
    exec(compile("\n\n".join(source.functions), "<headworks decoder>", "exec"), scope)
    read: Callable[[bytes, int, int, list[int] | None], tuple[Any, int]] = scope[name]
    counts_empty = source.counts_empty

    def decode(data: bytes, start: int) -> Any:
        end = len(data)
        event, at = read(data, start, end, [0] if counts_empty else None)
        if at != end:
            raise BadDatumError(f"{end - at} bytes follow the event")
        return event

    return decode


class _ObjectSource(DecoderSource[Place]):
    """The source of a decoder whose values are put in variables, attributes, lists, and dicts."""

    empty_items = "z[0]"
    reader_name = "the reader"

    def __init__(self, types: Mapping[str, type]) -> None:
        super().__init__()
        self.functions: list[str] = []  # that are complete
        self.counts_empty = False  # whether a function uses `z`
        self._types = types  # generated classes, by full name
        self._of_pairs: dict[RecordPair, str] = {}  # names of the functions of records
        self._repeated: set[RecordPair] = set()  # records that are met again

    def function(self, action: Action) -> str:
        """Write a function `(b, p, L, z) -> (value, position)` for `action`; return its name.

        `z` holds how many items that take no bytes the datum has had so far.
        """
        _find_repeated(action, self._repeated)
        return self._function(action, self._name("f"))

    def read(self, action: Action, target: Place, depth: int) -> None:
        if isinstance(action, RecursionAction):
            self._call(self._of_pairs[action.pair], target, depth)
        elif depth > _MAX_DEPTH or self._loops > _MAX_LOOPS:
            self._call(self._function(action, self._name("f")), target, depth)
        elif isinstance(action, RecordAction) and action.pair in self._repeated:
            self._call(self._function_of(action), target, depth)
        else:
            super().read(action, target, depth)

    def store(self, target: Place, expression: str, depth: int) -> None:
        self._line(depth, f"{target[0]}{expression}{target[1]}")

    def convert(self, action: LeafAction, target: Place, depth: int) -> None:
        self.store(target, expression(action.writer, action.reader), depth)

    def symbols(self, action: EnumAction) -> Sequence[Any]:
        cls: Any = self._types[action.reader.name]
        return tuple(None if s is None else cls(s) for s in action.symbols)

    def default(self, field: Field, target: Place, depth: int) -> None:
        value = event_default(field, self._types)
        if value is None or isinstance(value, bool):
            self.store(target, repr(value), depth)
            return
        name = self._constant(value)
        fresh = name if is_immutable(value) else f"{self._constant(copy.deepcopy)}({name})"
        self.store(target, fresh, depth)

    def record(self, action: RecordAction, target: Place, depth: int) -> None:
        cls: Any = self._types[action.reader.name]
        type_: RecordType[Any] = cls.__headworks__
        made = self._name("x")
        self._line(depth, f"{made} = new({self._constant(cls)})")
        for field, step in action.steps:
            place = ("", "") if field is None else (f"{made}.{type_.fields[field.name]} = ", "")
            self.read(step, place, depth)
        self.store(target, made, depth)

    def begin_items(self, action: ArrayAction | MapAction, depth: int) -> str:
        is_map = isinstance(action, MapAction)
        self.counts_empty |= not is_map and not action.min_size
        items = self._name("x")
        self._line(depth, f"{items} = {'{}' if is_map else '[]'}")
        return items

    def item(
        self,
        action: ArrayAction | MapAction,
        target: Place,  # noqa: ARG002 - one signature for all
        items: str,
        depth: int,
    ) -> Place:
        if isinstance(action, ArrayAction):
            return f"{items}.append(", ")"
        key = self._name("x")
        self._line(depth, f"{key} = v.decode()")
        return f"{items}[{key}] = ", ""

    def _function(self, action: Action, name: str) -> str:
        outer = self.lines, self._loops
        self.lines, self._loops = [f"def {name}(b, p, L, z):"], 0
        place = "return ", ", p"
        if isinstance(action, RecordAction):
            self._of_pairs.setdefault(action.pair, name)
            self.record(action, place, 1)
        else:
            self.read(action, place, 1)
        self.functions.append("\n".join(self.lines))
        self.lines, self._loops = outer
        return name

    def _function_of(self, action: RecordAction) -> str:
        if action.pair not in self._of_pairs:
            self._of_pairs[action.pair] = self._name("f")  # before its fields: they may hold it
            self._function(action, self._of_pairs[action.pair])
        return self._of_pairs[action.pair]

    def _call(self, function: str, target: Place, depth: int) -> None:
        name = self._name("x")
        self._line(depth, f"{name}, p = {function}(b, p, L, z)")
        self.store(target, name, depth)


def is_immutable(value: Any) -> bool:
    """Return whether events may share a value."""
    if isinstance(value, (list, dict)):
        return False
    return isinstance(value, _IMMUTABLE) or not hasattr(value, "__headworks__")


def _find_repeated(action: Action, found: set[RecordPair]) -> None:
    """Collect the records that are met again, inside themselves or elsewhere."""
    if isinstance(action, RecursionAction):
        found.add(action.pair)
    elif isinstance(action, RecordAction):
        for _, step in action.steps:
            _find_repeated(step, found)
    elif isinstance(action, WriterUnionAction):
        for branch in action.branches:
            _find_repeated(branch, found)
    elif isinstance(action, ReaderUnionAction):
        _find_repeated(action.action, found)
    elif isinstance(action, ArrayAction):
        _find_repeated(action.item, found)
    elif isinstance(action, MapAction):
        _find_repeated(action.value, found)
