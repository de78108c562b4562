"""The paths of the values that a schema marks as sensitive.

A field or type with the property `"sensitive": true` (any value except false and null) is
sensitive. The console masks its values, and the loader marks its column.

Rules:

- Paths decide, not names: `customer.name` may be sensitive while `product.name` is not.
- If a path is ambiguous (inside a recursive type, a map, or a record in a union), more is
  sensitive rather than less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headworks.schema._model import Array, Json, MapType, Record, Schema, Union

ITEM, ENTRY = "[]", "{}"
Paths = frozenset[tuple[str, ...]]


def sensitive_paths(schema: Schema) -> Paths:
    """Return the paths of sensitive values; () is the whole event.

    A step is the name of a field, ITEM for the items of an array, or ENTRY for the values of a map.
    """
    return frozenset(_walk(schema, (), ()))


def paths_below(paths: Paths, *steps: str) -> Paths:
    """Return the rest of the paths that begin with one of `steps`."""
    return frozenset(path[1:] for path in paths if path and path[0] in steps)


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
