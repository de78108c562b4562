"""Defaults as a schema holds them (JSON), turned into the values of a typed event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from consumer_sdk._conversions import GIVEN, expression
from headworks.codec._event import RecordType
from headworks.schema import EnumType, Field, Fixed, Primitive, Record, Schema
from headworks.schema._default_fold import DefaultFold
from headworks.schema._model import Json


def event_default(field: Field, types: Mapping[str, type]) -> Any:
    """Return the value of a field's default; `types` are the generated classes, by full name."""
    return _EventDefault(types).field(field)


class _EventDefault(DefaultFold):
    """Turns defaults into the values that generated classes hold."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types

    def leaf(self, schema: Schema, value: Json) -> Any:
        if isinstance(schema, EnumType):
            return self._types[schema.name](value)
        if schema.kind in ("null", "boolean"):
            return value
        if schema.kind in ("float", "double"):
            return float(cast(float, value))
        raw: Any = value
        if schema.kind in ("bytes", "fixed"):
            raw = cast(str, value).encode("latin-1")
        elif schema.kind == "string":
            raw = cast(str, value).encode()
        assert isinstance(schema, (Primitive, Fixed))
        return eval(expression(schema, schema), {**GIVEN, "v": raw})

    def record(self, schema: Record, members: dict[str, Any]) -> Any:
        cls = self._types[schema.name]
        type_: RecordType[Any] = cls.__headworks__
        return cls(**{type_.fields[name]: value for name, value in members.items()})
