"""An example of a default for a field, written out whole, for the fix of a finding.

Rules: the example is a value that Avro Java takes as the default of that type, and that a reader
can decode. A record's members are all written out, because fastavro returns a default as its JSON.
The work is bounded: a type with more than MAX_VALUES values has no example.
"""

from __future__ import annotations

import json
from typing import Final
from uuid import UUID

from headworks.schema._model import (
    Array,
    EnumType,
    Fixed,
    Json,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

MAX_VALUES: Final = 50
_MAX_CHARACTERS: Final = 1_000
_ZEROS: Final[dict[str, Json]] = {
    "null": None,
    "boolean": False,
    "int": 0,
    "long": 0,
    "float": 0.0,
    "double": 0.0,
    "string": "",
    "bytes": "",
}
_ZEROS_OF_LOGICAL: Final[dict[str, Json]] = {"decimal": "\0", "uuid": str(UUID(int=0))}


class _NoExampleError(Exception):
    """The type is recursive without an end, or too large to write out."""


def example_default(schema: Schema) -> str | None:
    """Return a default for a field of that type as JSON, or None if there is no short one."""
    try:
        text = json.dumps(_value(schema, (), [MAX_VALUES]), ensure_ascii=False)
    except _NoExampleError:
        return None
    return text if len(text) <= _MAX_CHARACTERS else None


def _value(schema: Schema, around: tuple[int, ...], left: list[int]) -> Json:
    """Return the example; `around` are the records that it is in, `left` the values to go."""
    left[0] -= 1
    if left[0] < 0 or id(schema) in around:
        raise _NoExampleError
    if isinstance(schema, Union):
        if not schema.branches:
            raise _NoExampleError
        # A default of the first branch is the only one that every library takes.
        return _value(schema.branches[0], around, left)
    if isinstance(schema, Array):
        return []
    if isinstance(schema, MapType):
        return {}
    if isinstance(schema, EnumType):
        if not schema.symbols:
            raise _NoExampleError
        return schema.default or schema.symbols[0]
    if isinstance(schema, Fixed):
        return "\0" * schema.size
    if isinstance(schema, Primitive) and schema.logical is not None:
        # Zero bytes are no decimal in Java, and an empty text no UUID.
        return _ZEROS_OF_LOGICAL.get(schema.logical.name, _ZEROS[schema.kind])
    if isinstance(schema, Record):
        inside = (*around, id(schema))
        return {one.name: _value(one.type, inside, left) for one in schema.fields}
    return _ZEROS[schema.kind]
