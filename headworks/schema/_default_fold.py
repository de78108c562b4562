"""One walk over a default: a JSON value of a type, turned into a value of another kind.

The loader's columns, the consumer's objects, the rows of a DataFrame, and the generated classes
each fold defaults in their own way. They share two rules of the specification:

- A union's default belongs to the first branch that it is a value of.
- A field that a record's default lacks has its own default.

Values nest no deeper than `parse` lets them, so the walk recurses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

from headworks.errors import SchemaError
from headworks.schema._defaults import is_default
from headworks.schema._model import Array, Field, Json, MapType, Record, Schema, Union


class DefaultFold(ABC):
    """Turns defaults into values of another kind, from the leaves up."""

    def field(self, field: Field) -> Any:
        """Return the value of a field's default."""
        return self.value(field.type, cast(Json, field.default))

    def value(self, schema: Schema, value: Json) -> Any:
        """Return the value that `value` is a default for; SchemaError if no branch takes it."""
        if isinstance(schema, Union):
            for i, branch in enumerate(schema.branches):
                if is_default(branch, value):
                    return self.union(schema, i, self.value(branch, value))
            message = f"default {value!r} is of no branch of the union"
            raise SchemaError(message, pointer=schema.pointer)
        if isinstance(schema, Array) and isinstance(value, list):
            return self.array([self.value(schema.items, item) for item in value])
        if isinstance(schema, MapType) and isinstance(value, dict):
            return self.map({key: self.value(schema.values, v) for key, v in value.items()})
        if isinstance(schema, Record) and isinstance(value, dict):
            members = {
                f.name: self.value(f.type, value[f.name]) if f.name in value else self.field(f)
                for f in schema.fields
            }
            return self.record(schema, members)
        return self.leaf(schema, value)

    @abstractmethod
    def leaf(self, schema: Schema, value: Json) -> Any:
        """Return the value of a primitive, fixed, or enum.

        A lenient schema may hold a default that is no value of its type: it is passed here as well.
        """

    def array(self, items: list[Any]) -> Any:
        """Return the value of an array."""
        return items

    def map(self, entries: dict[str, Any]) -> Any:
        """Return the value of a map."""
        return entries

    def record(self, schema: Record, members: dict[str, Any]) -> Any:  # noqa: ARG002 - for others
        """Return the value of a record from its members by field name."""
        return members

    def union(self, schema: Union, branch: int, value: Any) -> Any:  # noqa: ARG002 - for others
        """Return the value of a union whose branch number `branch` has `value`."""
        return value
