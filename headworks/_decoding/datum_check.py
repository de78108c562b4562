"""A verdict alone: whether bytes are exactly one datum of a schema, and if not, where and why.

The broker asks it before it stores a message. The loader decides the same of the same bytes, when
it reads them as the schema that they were written with.

Rules:

- The functions below define the verdict and give the reason. The C extension only finds the bad
  values, faster; a property test compares the two.
- Nothing is stored: no value of a datum outlives the look at it.
- The work is bounded by the bytes, and nesting by MAX_NESTING, so recursion always ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from headworks._decoding.primitives import MAX_EMPTY_ITEMS, BadDatumError, read_int, read_long
from headworks._decoding.resolution import (
    Action,
    ArrayAction,
    EnumAction,
    ErrorAction,
    LeafAction,
    MapAction,
    ReaderUnionAction,
    RecordAction,
    RecursionAction,
    WriterUnionAction,
    is_millis,
    resolve,
)
from headworks._native import COMPILED
from headworks.schema import Fixed, Logical, Schema

MAX_NESTING: Final = 250
"""Records, arrays, and maps inside each other. Deeper data are refused."""

_SPAN = struct.Struct("qq")
_ANY_ID = bytes(8)  # of the only value
_SHOWN_CHARACTERS = 60  # of each end of a path
_MAX_MILLIS = (2**63 - 1) // 1000
_WIDTHS = {"null": 0, "float": 4, "double": 8}
_ENDS_EARLY = "the datum ends too early"


class BadDatum(NamedTuple):
    """The fault of a value: `byte` is counted from the datum's start, `field` is a path."""

    byte: int
    field: str
    reason: str

    @property
    def short_field(self) -> str:
        """The two ends of a path that would fill lines, as one inside many records does."""
        if len(self.field) <= 2 * _SHOWN_CHARACTERS:
            return self.field
        return f"{self.field[:_SHOWN_CHARACTERS]}..{self.field[-_SHOWN_CHARACTERS:]}"

    def __str__(self) -> str:
        place = f" of field {self.short_field}" if self.field else ""
        return f"byte {self.byte}{place}: {self.reason}"


class DatumCheck:
    """Judges data of one schema; of any thread."""

    def __init__(self, schema: Schema, *, compiled: bool = COMPILED) -> None:
        self._action = resolve(schema, schema)
        self._compiled = compiled
        self._look: _Look | None = None  # made when first needed
        self._programs: list[Any] = []  # that no thread uses now

    def prepare(self) -> None:
        """Do the work that a large schema takes, once. SchemaError if it is too large."""
        if self._compiled:
            self._programs.append(self._program())
        self._look = _look(self._action, {})

    def find_bad(
        self,
        data: bytes,
        ids: bytes | bytearray,
        spans: bytes | bytearray,
        schema_id: int,
        most: int,
    ) -> list[tuple[int, BadDatum]]:
        """Return (number, what is wrong) of the first `most` values that are not exactly one datum.

        Looked at are those with `schema_id` among `ids`; `spans` holds the start and end of each in
        `data`. All are native numbers of 64 bits.
        """
        places = memoryview(spans).cast("q")
        if self._compiled:
            found = self._check(data, ids, spans, schema_id)
        else:
            found = [i for i, one in enumerate(memoryview(ids).cast("q")) if one == schema_id]
        judged = ((i, self.explain(data[places[2 * i] : places[2 * i + 1]])) for i in found)
        return list(islice(((i, bad) for i, bad in judged if bad is not None), most))

    def explain(self, datum: bytes) -> BadDatum | None:
        """Return what is wrong with a datum, or None."""
        if self._look is None:
            self._look = _look(self._action, {})
        at = _Reading(datum)
        try:
            self._look(at)
            if at.position != len(datum):
                raise BadDatumError(f"{len(datum) - at.position} bytes are left after the datum")
        except (IndexError, struct.error):
            return BadDatum(at.position, ".".join(at.path), _ENDS_EARLY)
        except ValueError as error:
            return BadDatum(at.position, ".".join(at.path), str(error))
        return None

    def require_datum(self, value: bytes, start: int) -> None:
        """Raise BadDatumError with the place and the reason, unless the rest is one datum."""
        span = _SPAN.pack(start, len(value))
        if self._compiled and not self._check(value, _ANY_ID, span, 0):
            return
        bad = self.explain(value[start:])
        if bad is not None:
            raise BadDatumError(str(bad))

    def _check(
        self, data: bytes, ids: bytes | bytearray, spans: bytes | bytearray, schema_id: int
    ) -> list[int]:
        try:
            program = self._programs.pop()  # one thread at a time may use a program
        except IndexError:
            program = self._program()
        try:
            bad: list[int] = program.check(data, ids, spans, schema_id)
        finally:
            self._programs.append(program)
        return bad

    def _program(self) -> Any:
        from headworks._decoding.datum_program import datum_program

        return datum_program(self._action)


# -- the definition ---------------------------------------------------------------------------


class _Reading:
    """A datum, and how far it was read; at an error, `position` and `path` say where it is."""

    __slots__ = ("data", "depth", "empty", "path", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.depth = 0
        self.empty = 0  # items that took no bytes, so far
        self.path: list[str] = []

    def read_long(self) -> int:
        """Read a number of 64 bits."""
        return self._number(read_long)

    def read_int(self) -> int:
        """Read a number of 32 bits."""
        return self._number(read_int)

    def read_bytes(self, size: int | None) -> bytes:
        """Read bytes of a fixed size, or with their length before them."""
        start = self.position
        if size is None:
            size = self.read_long()
            if size < 0:
                self.position = start
                raise BadDatumError("a length is negative")
        end = self.position + size
        if end > len(self.data):
            self.position = start
            raise IndexError
        found = self.data[self.position : end]
        self.position = end
        return found

    def enter(self) -> None:
        """Count one more record, array, or map around the place."""
        if self.depth == MAX_NESTING:
            raise BadDatumError(f"the datum has more than {MAX_NESTING} values inside each other")
        self.depth += 1

    def _number(self, read_more: Callable[[bytes, int, int], tuple[int, int]]) -> int:
        first = self.data[self.position]
        if first < 128:
            self.position += 1
            return (first >> 1) ^ -(first & 1)
        number, self.position = read_more(self.data, self.position + 1, first)
        return number


_Look = Callable[[_Reading], None]


def _look(action: Action, records: dict[Any, _Look]) -> _Look:
    """Return the function that reads a value; `records` are those met so far, by their pair."""
    if isinstance(action, LeafAction):
        return _look_at_leaf(action)
    if isinstance(action, EnumAction):
        return _look_at_symbol(len(action.symbols))
    if isinstance(action, RecordAction):
        return _look_at_record(action, records)
    if isinstance(action, WriterUnionAction):
        return _look_at_union([_look(branch, records) for branch in action.branches])
    if isinstance(action, ReaderUnionAction):
        return _look(action.action, records)
    if isinstance(action, MapAction):
        return _look_at_map(_look(action.value, records), action.min_size + 1)
    if isinstance(action, RecursionAction):
        return records[action.pair]
    if isinstance(action, ErrorAction):
        return _refuse(action.reason)
    assert isinstance(action, ArrayAction), "a schema reads its own data without defaults"
    return _look_at_array(_look(action.item, records), action.min_size)


def _look_at_leaf(action: LeafAction) -> _Look:
    schema = action.writer
    kind, logical = schema.kind, schema.logical
    size = schema.size if isinstance(schema, Fixed) else None
    if kind == "boolean":
        return _look_at_boolean
    if kind == "int":
        return lambda at: _nothing(at.read_int())
    if kind == "long":
        return _look_at_millis if is_millis(logical) else lambda at: _nothing(at.read_long())
    if kind in _WIDTHS:
        return lambda at: _nothing(at.read_bytes(_WIDTHS[kind]))
    if logical is not None and logical.name == "decimal":
        return _look_at_decimal(size, logical)
    if kind == "string":
        return lambda at: _nothing(_text(at))
    return lambda at: _nothing(at.read_bytes(size))


def _refuse(reason: str) -> _Look:
    def look(_: _Reading) -> None:
        raise BadDatumError(reason)

    return look


def _nothing(value: object) -> None:
    """Take a value for good."""


def _look_at_boolean(at: _Reading) -> None:
    value = at.data[at.position]
    if value > 1:
        raise BadDatumError(f"{value} is not a boolean")
    at.position += 1


def _look_at_millis(at: _Reading) -> None:
    start = at.position
    if abs(value := at.read_long()) > _MAX_MILLIS:
        at.position = start
        raise BadDatumError(f"{value} ms is no time that 64 bits of microseconds hold")


def _text(at: _Reading) -> str:
    start = at.position
    try:
        return str(at.read_bytes(None), "utf-8")
    except UnicodeDecodeError as error:
        at.position = start
        raise BadDatumError(f"a text is not UTF-8: {error}") from None


def _look_at_decimal(size: int | None, logical: Logical) -> _Look:
    limit = 10**logical.precision

    def look(at: _Reading) -> None:
        start = at.position
        if abs(int.from_bytes(at.read_bytes(size), "big", signed=True)) >= limit:
            at.position = start
            raise BadDatumError(f"a decimal has more than {logical.precision} digits")

    return look


def _look_at_symbol(count: int) -> _Look:
    def look(at: _Reading) -> None:
        start = at.position
        if not 0 <= (value := at.read_int()) < count:
            at.position = start
            raise BadDatumError(f"{value} is no symbol of the enum")

    return look


def _look_at_union(branches: Sequence[_Look]) -> _Look:
    def look(at: _Reading) -> None:
        start = at.position
        if not 0 <= (branch := at.read_int()) < len(branches):
            at.position = start
            raise BadDatumError(f"{branch} is no branch of the union")
        branches[branch](at)

    return look


def _look_at_record(action: RecordAction, records: dict[Any, _Look]) -> _Look:
    steps: list[tuple[str, _Look]] = []

    def look(at: _Reading) -> None:
        at.enter()
        for name, step in steps:
            at.path.append(name)
            step(at)
            at.path.pop()
        at.depth -= 1

    records[action.pair] = look
    for field, step in action.steps:
        assert field is not None, "a schema has all fields of its own data"
        steps.append((field.name, _look(step, records)))
    return look


def _look_at_array(item: _Look, least: int) -> _Look:
    def look(at: _Reading) -> None:
        at.enter()
        while count := _items(at, least):
            for _ in range(count):
                item(at)
        at.depth -= 1

    return look


def _look_at_map(value: _Look, least: int) -> _Look:
    def look(at: _Reading) -> None:
        at.enter()
        keys: set[str] = set()
        while count := _items(at, least):
            for _ in range(count):
                start = at.position
                if (key := _text(at)) in keys:
                    at.position = start
                    raise BadDatumError(f"map key {key!r} occurs twice")
                keys.add(key)
                value(at)
        at.depth -= 1

    return look


def _items(at: _Reading, least: int) -> int:
    """Read the number of items in the next block, each of at least `least` bytes; 0 at the end."""
    start = at.position
    count = at.read_long()
    if count < 0:
        count = -count
        at.read_long()
    if least and count * least > len(at.data) - at.position:
        at.position = start
        raise IndexError
    if not least:
        at.empty += count
        if at.empty > MAX_EMPTY_ITEMS:
            at.position = start
            raise BadDatumError("an array has too many items that take no bytes")
    return count
