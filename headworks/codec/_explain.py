"""Explains why an event cannot be encoded: the field's path, its value, and the expected type.

Rules: it runs only after encoding has failed, so it may be slow. It never changes the event. It
finds the first wrong value in the order of the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING
from uuid import UUID

from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks.schema._model import Fixed, Logical, Primitive, Record, Schema, Union

_INTEGER_RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_EXACT_CLASSES = {
    NoneType,
    bool,
    int,
    float,
    bytes,
    str,
    list,
    dict,
    datetime,
    date,
    time,
    Decimal,
    UUID,
}
_FLOAT_MAX = 3.4028235677973366e38
_MAX_SHOWN_CHARACTERS = 120


class EncodeError(UsageError):
    """A value that is not of its field's type: `path` (dotted), `value`, and `expected`."""

    def __init__(self, event: str, path: str, value: object, expected: str) -> None:
        try:
            shown = repr(value)
        except RecursionError:  # of a value with too many others inside each other
            shown = object.__repr__(value)
        if len(shown) > _MAX_SHOWN_CHARACTERS:
            shown = f"{shown[:_MAX_SHOWN_CHARACTERS]}..."
        super().__init__(
            f"{event}: {path or 'the event'} is {shown} ({type(value).__name__}), "
            f"expected {expected}"
        )
        self.path = path
        self.value = value
        self.expected = expected


@dataclass(frozen=True, slots=True)
class _WrongValue:
    path: str
    value: object
    expected: str


def explain(schema_text: str, record: str, event: object, cause: BaseException) -> BaseException:
    """Return the EncodeError for the first wrong value of `event`; `cause` if there is none.

    `record` is the full name of the event's record in the schema.
    """
    from headworks.schema import parse
    from headworks.schema._governance import event_record

    schema = event_record(parse(schema_text, strict=False), record)
    try:
        wrong = next(_wrong_values(schema, event, ""), None)
    except Exception:
        # The methods of a value fail: that error is the best explanation.
        return cause
    if wrong is None:
        return cause
    return EncodeError(_simple_name(schema), wrong.path, wrong.value, wrong.expected)


def _wrong_values(schema: Schema, value: object, path: str) -> Iterator[_WrongValue]:
    from headworks.schema import _model

    if isinstance(schema, _model.Record):
        yield from _wrong_record(schema, value, path)
    elif isinstance(schema, _model.Union):
        yield from _wrong_union(schema, value, path)
    elif isinstance(schema, _model.Array):
        if not isinstance(value, list | tuple):
            yield _WrongValue(path, value, "a list")
        else:
            for i, item in enumerate(value):
                yield from _wrong_values(schema.items, item, f"{path}[{i}]")
    elif isinstance(schema, _model.MapType):
        if not isinstance(value, dict):
            yield _WrongValue(path, value, "a dict")
        else:
            for key, item in value.items():
                if not isinstance(key, str) or not _is_valid_unicode(key):
                    yield _WrongValue(path, key, "a str (valid Unicode) as key")
                yield from _wrong_values(schema.values, item, f"{path}[{key!r}]")
    elif isinstance(schema, _model.EnumType):
        if type(value).__dict__.get("__avro_name__") != schema.name:
            yield _WrongValue(path, value, f"a member of the enum {_simple_name(schema)}")
    elif not _is_leaf(schema, value):
        yield _WrongValue(path, value, _describe(schema))


def _wrong_record(schema: Record, value: object, path: str) -> Iterator[_WrongValue]:
    made = getattr(type(value), "__headworks__", None)
    if getattr(made, "name", None) != schema.name:
        like = type(value).__name__ == _simple_name(schema)  # a class of that name, from elsewhere
        yield _WrongValue(path, value, _with_article(schema.name if like else _simple_name(schema)))
        return
    for field in schema.fields:
        attribute = made.fields[field.name]  # type: ignore[union-attr]
        below = f"{path}.{field.name}" if path else field.name
        yield from _wrong_values(field.type, getattr(value, attribute), below)


def _wrong_union(union: Union, value: object, path: str) -> Iterator[_WrongValue]:
    branches = _candidates(union, value)
    attempts = [list(_wrong_values(branch, value, path)) for branch in branches]
    if branches and not all(attempts):
        return
    # The caller meant the branch that fails deeper inside.
    inner = [wrong for attempt in attempts for wrong in attempt[:1] if wrong.path != path]
    if inner:
        yield inner[0]
    else:
        yield _WrongValue(path, value, " or ".join(_describe(branch) for branch in union.branches))


def _candidates(union: Union, value: object) -> tuple[Schema, ...]:
    """Return the branches that a value may be of, by its exact class."""
    branches, cls = union.branches, type(value)
    if union.nullable is not None:
        return branches
    if cls not in _EXACT_CLASSES and not vars(cls).keys() & {"__headworks__", "__avro_name__"}:
        return ()
    whole = [
        branch for branch in branches if branch.kind in _INTEGER_RANGES and _is_leaf(branch, 0)
    ]
    return tuple(whole) if cls is int and whole else branches


def _is_leaf(schema: Schema, value: object) -> bool:
    from headworks.schema import _model

    assert isinstance(schema, _model.Primitive | _model.Fixed)
    if schema.logical is not None:
        verdict = _is_logical(schema, schema.logical, value)
        if verdict is not None:
            return verdict
    if isinstance(schema, _model.Fixed):
        return isinstance(value, bytes | bytearray) and len(value) == schema.size
    return _is_primitive(schema.kind, value)


def _is_logical(schema: Primitive | Fixed, logical: Logical, value: object) -> bool | None:
    """Return whether `value` is of the logical type; None if the base type decides."""
    name = logical.name
    if name in ("timestamp-millis", "timestamp-micros"):
        return isinstance(value, datetime) and value.utcoffset() is not None
    if name in ("local-timestamp-millis", "local-timestamp-micros"):
        return isinstance(value, datetime) and value.utcoffset() is None
    if name == "date":
        return isinstance(value, date) and not isinstance(value, datetime)
    if name in ("time-millis", "time-micros"):
        return isinstance(value, time) and value.tzinfo is None
    if name == "uuid":
        return isinstance(value, UUID)
    if name == "decimal":
        return isinstance(value, Decimal) and _fits(schema, logical, value)
    return None


def _fits(schema: Primitive | Fixed, logical: Logical, value: Decimal) -> bool:
    from headworks.codec.values import decimal_bytes, decimal_fixed

    try:
        if schema.kind == "fixed":
            decimal_fixed(value, logical.precision, logical.scale, schema.size)
        else:
            decimal_bytes(value, logical.precision, logical.scale)
    except (ValueError, OverflowError):
        return False
    return True


def _is_primitive(kind: str, value: object) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[kind]
        return isinstance(value, int) and low <= value <= high
    if kind in ("float", "double"):
        return isinstance(value, float | int) and _in_range(kind, value)
    if kind == "bytes":
        return isinstance(value, bytes | bytearray)
    return isinstance(value, str) and _is_valid_unicode(value)


def _in_range(kind: str, value: float) -> bool:
    try:
        number = float(value)
    except OverflowError:
        return False
    infinite = number in (float("inf"), float("-inf")) or number != number
    return kind == "double" or infinite or abs(number) < _FLOAT_MAX


def _is_valid_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _describe(schema: Schema) -> str:
    from headworks.schema import _model

    if isinstance(schema, _model.Primitive | _model.Fixed) and schema.logical is not None:
        logical = schema.logical
        if logical.name == "decimal":
            return (
                f"a Decimal of at most {logical.precision} digits, {logical.scale} of them decimals"
            )
        if logical.name in _EXPECTED_LOGICAL:
            return _EXPECTED_LOGICAL[logical.name]
    if isinstance(schema, _model.Fixed):
        return f"bytes of length {schema.size}"
    if isinstance(schema, _model.EnumType):
        return f"a member of the enum {_simple_name(schema)}"
    return (
        _EXPECTED_PRIMITIVE[schema.kind]
        if schema.kind in _EXPECTED_PRIMITIVE
        else _with_article(_simple_name(schema))
    )


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _simple_name(schema: Schema) -> str:
    return str(getattr(schema, "name", schema.kind)).rpartition(".")[2]


_EXPECTED_LOGICAL = {
    "timestamp-millis": "an aware datetime (give it a tzinfo)",
    "timestamp-micros": "an aware datetime (give it a tzinfo)",
    "local-timestamp-millis": "a naive datetime",
    "local-timestamp-micros": "a naive datetime",
    "date": "a date (not a datetime)",
    "time-millis": "a naive time",
    "time-micros": "a naive time",
    "uuid": "a UUID",
}
_EXPECTED_PRIMITIVE = {
    "null": "None",
    "boolean": "a bool",
    "int": "an int of 32 bits",
    "long": "an int of 64 bits",
    "float": "a float of 32 bits",
    "double": "a float",
    "bytes": "bytes",
    "string": "a str (valid Unicode)",
    "array": "a list",
    "map": "a dict",
}
