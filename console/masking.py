"""The `sensitive` fields of a schema, and events with their values masked.

A field or type with the property `"sensitive": true` (any value except false and null) is not
shown: its value becomes MASK.

Rules:

- Paths decide, not names: `customer.name` may be sensitive while `product.name` is not. A path is
  masked if any of the topic's schemas marks it, so a mark covers older messages, too.
- If a path is ambiguous (inside a recursive type, a map, or a record in a union), more is masked
  rather than less.
- Masking comes before any other use of a value: filters see only masked values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headworks.schema import Array, MapType, Record, Schema, Union
from headworks.schema._model import Json

MASK = "•••"
ITEM, ENTRY = "[]", "{}"
Paths = frozenset[tuple[str, ...]]


def sensitive_paths(schema: Schema) -> Paths:
    """Return the paths of sensitive values; () is the whole event."""
    return frozenset(_walk(schema, (), ()))


def masked(value: Any, paths: Paths) -> Any:
    """Return a copy of the value with MASK at the paths."""
    if not paths:
        return value
    if () in paths:
        return None if value is None else MASK
    if isinstance(value, Mapping):
        # A map and a record look alike here: a path of either counts.
        return {key: masked(inner, _below(paths, key, ENTRY)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, _below(paths, ITEM)) for item in value]
    return value


def _below(paths: Paths, *steps: object) -> Paths:
    return frozenset(path[1:] for path in paths if path[0] in steps)


def _walk(
    schema: Schema, here: tuple[str, ...], inside: tuple[Schema, ...]
) -> Iterator[tuple[str, ...]]:
    if not isinstance(schema, Union) and _marked(schema.props):
        yield here
        return
    if isinstance(schema, Record):
        if schema in inside:
            if _marks(schema):
                yield here
            return
        for field in schema.fields:
            if _marked(field.props):
                yield (*here, field.name)
            else:
                yield from _walk(field.type, (*here, field.name), (*inside, schema))
    elif isinstance(schema, Array):
        yield from _walk(schema.items, (*here, ITEM), inside)
    elif isinstance(schema, MapType):
        yield from _walk(schema.values, (*here, ENTRY), inside)
    elif isinstance(schema, Union):
        for branch in schema.branches:
            yield from _walk(branch, here, inside)


def _marked(props: Mapping[str, Json]) -> bool:
    return props.get("sensitive") not in (None, False)


def _marks(schema: Record) -> bool:
    """Return whether anything inside a recursive type is sensitive."""
    seen: set[int] = set()
    stack: list[Schema] = [schema]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Union):
            stack += node.branches
            continue
        if _marked(node.props):
            return True
        if isinstance(node, Record):
            if any(_marked(field.props) for field in node.fields):
                return True
            stack += [field.type for field in node.fields]
        elif isinstance(node, Array):
            stack.append(node.items)
        elif isinstance(node, MapType):
            stack.append(node.values)
    return False
