"""The JSON of a field in advice: its type, its default, and a new field beside an old one.

Pure text, bounded in length. Rule: what it shows can be pasted, and passes. So a new field is null
in old data, where a zero would be taken for a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from headworks.compatibility._wording import simple_name
from headworks.schema._canonical import canonical_text
from headworks.schema._example_defaults import example_default
from headworks.schema._model import Array, Field, Fixed, MapType, Named, Primitive, Schema, Union

_MAX_CHARACTERS: Final = 150
_MAX_BRANCHES: Final = 8
_TYPE_OF_A_FIELD: Final = re.compile(r".*/fields/\d+/type(/\d+)?")  # or a branch of it


def new_field_of(schema: Schema) -> str:
    """Return the advice to add a new field of that type, with its members."""
    if _TYPE_OF_A_FIELD.fullmatch(schema.pointer) is None:
        return 'add a new field, with "null" first in its type, and "default": null'
    return f'add a new field with "type": {nullable(schema)} and "default": null'


def default_member(mine: Field) -> str:
    """Return a default for a field, as the members to add to it."""
    has_meaning = isinstance(mine.type, (Primitive, Fixed)) and mine.type.logical is not None
    example = None if has_meaning else example_default(mine.type)
    if example is not None:
        return f'"default": {example}'
    if isinstance(mine.type, Union):
        return '"default": null, with "null" as the first branch of its type,'
    return f'"type": {nullable(mine.type)} and "default": null'


def nullable(schema: Schema) -> str:
    """Return the JSON of the union of null and a type."""
    branches = schema.branches if isinstance(schema, Union) else (schema,)
    return _union([one for one in branches if one.kind != "null"], '"null"')


def json_type(schema: Schema) -> str:
    """Return the JSON of a type. A long one is cut: `{"type": "record", "name": "Leg", ...}`."""
    if isinstance(schema, Union):
        return _union(schema.branches)
    if isinstance(schema, Named):
        name = simple_name(schema.name)
        return f'{{"type": "{schema.kind}", "name": "{name[:_MAX_CHARACTERS]}", ...}}'
    if isinstance(schema, (Array, MapType)):
        return f'{{"type": "{schema.kind}", ...}}'
    text = canonical_text(schema)
    return text if len(text) <= _MAX_CHARACTERS else f'{{"type": "{schema.kind}", ...}}'


def _union(branches: Sequence[Schema], *before: str) -> str:
    texts = [*before, *map(json_type, branches[:_MAX_BRANCHES])]
    return f"[{', '.join(texts)}{', ...' if len(branches) > _MAX_BRANCHES else ''}]"
