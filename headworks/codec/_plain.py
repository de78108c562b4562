"""Events as dicts and as JSON text, and back.

Rules:

- Names are the schema's, also where Python's differ. A union's value has no type name around it:
  from a dict, it is of the first branch that it fits.
- In JSON, dates, times, and timestamps are ISO text, decimals and UUIDs are text, and bytes are
  text of Latin-1 characters, as in Avro's JSON encoding. NaN and the infinities are their names.
- An event that is returned can be encoded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from headworks.codec._event import RecordType, event_type
from headworks.codec._explain import EncodeError

if TYPE_CHECKING:
    from headworks.schema._model import Fixed, Primitive, Record, Schema, Union

T = TypeVar("T")
_TEXTS = (date, time, datetime)
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_CLASSES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float, int),
    "double": (float, int),
    "string": (str,),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "date": (date,),
    "decimal": (Decimal,),
    "uuid": (UUID,),
    "time": (time,),
    "timestamp": (datetime,),
    "local": (datetime,),
}


def to_dict(event: object) -> dict[str, Any]:
    """Return the fields of a generated class's instance by name, nested records as dicts too.

    Symbols are text. Other values stay as they are. Raises TypeError for anything else.
    """
    if not isinstance(getattr(event, "__headworks__", None), RecordType):
        raise TypeError(f"{type(event).__name__} is not a class that `headworks gen` made")
    found: dict[str, Any] = _plain(event, lambda value: value)
    return found


def to_json(event: object, *, indent: int | None = None) -> str:
    """Return an event as a JSON object; `headworks produce` and `from_json` read it."""
    to_dict(event)
    return json.dumps(_plain(event, _json_leaf), ensure_ascii=False, indent=indent)


def from_json(cls: type[T], text: str | bytes) -> T:
    """Return an event of `cls` from a JSON object; ValueError if the text is not JSON."""
    return from_dict(cls, json.loads(text))


def from_dict(cls: type[T], fields: Mapping[str, Any]) -> T:
    """Return an event of `cls` from its fields by name, as `to_dict` or JSON has them.

    A field that is missing has its default. Raises EncodeError with the path, the value, and the
    expected type.
    """
    from headworks.schema import parse
    from headworks.schema._governance import event_record

    kind = event_type(cls)
    schema = event_record(parse(kind.schema, strict=False), kind.name)
    event: T = _Reader(kind.types, cls.__name__).record(schema, fields, "")
    kind.encode(event)  # names a value that is out of range
    return event


def _plain(value: Any, leaf: Callable[[Any], Any]) -> Any:
    kind = getattr(type(value), "__headworks__", None)
    if isinstance(kind, RecordType):
        return {name: _plain(getattr(value, at), leaf) for name, at in kind.fields.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list):
        return [_plain(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, leaf) for key, item in value.items()}
    return leaf(value)


def _json_leaf(value: Any) -> Any:
    if isinstance(value, _TEXTS):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, known in _NON_FINITE.items() if repr(known) == repr(value))
    return value


class _Reader:
    """Reads values of one event; `types` are the generated classes by full name."""

    def __init__(self, types: Mapping[str, Any], event: str) -> None:
        self._types = types
        self._event = event

    def record(self, schema: Record, fields: Any, path: str) -> Any:
        cls: Any = self._types[schema.name]
        if isinstance(fields, cls):
            return fields
        if not isinstance(fields, Mapping):
            raise self._wrong(path, fields, f"the fields of {schema.name}")
        known = {field.name: field for field in schema.fields}
        for name in fields:
            if name not in known:
                raise self._wrong(f"{path}.{name}".lstrip("."), fields[name], "no such field")
        given = {}
        for name, field in known.items():
            where = f"{path}.{name}".lstrip(".")
            if name in fields:
                given[cls.__headworks__.fields[name]] = self._value(field.type, fields[name], where)
            elif not field.has_default:
                raise self._wrong(where, None, "a value, because it has no default")
        return cls(**given)

    def _value(self, schema: Schema, value: Any, path: str) -> Any:
        kind: str = schema.kind
        node: Any = schema
        if kind == "record":
            return self.record(node, value, path)
        if kind == "union":
            return self._branch(node, value, path)
        if kind == "array" and isinstance(value, list):
            return [self._value(node.items, v, f"{path}[{i}]") for i, v in enumerate(value)]
        if kind == "map" and isinstance(value, Mapping):
            return {
                key: self._value(node.values, v, f"{path}[{key!r}]") for key, v in value.items()
            }
        if kind == "enum" and value in node.symbols:
            return self._types[node.name](value)
        if kind in _CLASSES:
            return self._leaf(node, value, path)
        raise self._wrong(path, value, getattr(node, "name", kind))

    def _branch(self, schema: Union, value: Any, path: str) -> Any:
        """Return a value of the first branch that it fits."""
        present = [branch for branch in schema.branches if branch.kind != "null"]
        if value is None and len(present) < len(schema.branches):
            return None
        if len(present) == 1:
            return self._value(present[0], value, path)
        for branch in present:
            try:
                return self._value(branch, value, path)
            except EncodeError:
                continue
        names = " or ".join(getattr(branch, "name", branch.kind) for branch in schema.branches)
        raise self._wrong(path, value, names)

    def _leaf(self, schema: Primitive | Fixed, value: Any, path: str) -> Any:
        name = schema.logical.name if schema.logical else schema.kind
        classes = _CLASSES.get(name.partition("-")[0], _CLASSES[schema.kind])
        if isinstance(value, classes) and not (isinstance(value, bool) and bool not in classes):
            return float(cast(float, value)) if float in classes else value
        try:
            if isinstance(value, str):
                return self._from_text(schema, name.partition("-")[0], classes, value)
        except (ArithmeticError, ValueError):
            pass
        raise self._wrong(path, value, name)

    @staticmethod
    def _from_text(
        schema: Primitive | Fixed, name: str, classes: tuple[Any, ...], text: str
    ) -> Any:
        """Return the value that a text stands for; ValueError if for none."""
        if bytes in classes:
            return text.encode("latin-1")
        if float in classes:
            return _NON_FINITE[text] if text in _NON_FINITE else _refuse(text)
        if name in ("date", "time", "timestamp", "local"):
            found = classes[0].fromisoformat(text)
            aware = name == "timestamp" and found.tzinfo is None
            return found.replace(tzinfo=UTC) if aware else found
        if name in ("decimal", "uuid"):
            return classes[0](text)
        return _refuse(f"{text!r} is no {schema.kind}")

    def _wrong(self, path: str, value: Any, expected: str) -> EncodeError:
        return EncodeError(self._event, path, value, expected)


def _refuse(reason: str) -> Any:
    raise ValueError(reason)
