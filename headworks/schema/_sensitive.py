"""The paths of the values that a schema marks as sensitive.

A field or type with the property `"sensitive": true` (any value except false and null) is
sensitive. The console masks its values, and the loader marks its column.

Rules:

- Paths decide, not names: `customer.name` may be sensitive while `product.name` is not.
- If a path is ambiguous (inside a recursive type, a map, or a record in a union), more is
  sensitive rather than less. So is the whole event if its marks have too many places: types that
  hold each other twice double their number at every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from headworks.schema._model import Array, Json, MapType, Record, Schema, Union, inner_types

ITEM, ENTRY = "[]", "{}"
Paths = frozenset[tuple[str, ...]]
_MAX_PLACES: Final = 20_000
_Place = tuple[Schema, tuple[str, ...], tuple[Schema, ...]]  # a type, its path, records around it


def sensitive_paths(schema: Schema) -> Paths:
    """Return the paths of sensitive values; () is the whole event.

    A step is the name of a field, ITEM for the items of an array, or ENTRY for the values of a map.
    """
    above, found = _above_marks(schema), set[tuple[str, ...]]()
    stack: list[_Place] = [(schema, (), ())] if id(schema) in above else []
    for _ in range(_MAX_PLACES):
        if not stack:
            return frozenset(found)
        if len(stack) + len(found) > _MAX_PLACES:
            break
        node, here, inside = stack.pop()
        if not isinstance(node, Union) and (_marked(node.props) or node in inside):
            found.add(here)
            continue
        if isinstance(node, Record):
            inside = (*inside, node)
        for step, type_, marked in _inner_places(node):
            path = (*here, *step)
            if marked:
                found.add(path)
            elif id(type_) in above:
                stack.append((type_, path, inside))
    return frozenset({()})


def paths_below(paths: Paths, *steps: str) -> Paths:
    """Return the rest of the paths that begin with one of `steps`."""
    return frozenset(path[1:] for path in paths if path and path[0] in steps)


def _inner_places(node: Schema) -> Iterator[tuple[tuple[str, ...], Schema, bool]]:
    """Yield the steps to the types that a type contains, and whether a field's mark is there."""
    if isinstance(node, Record):
        for field in node.fields:
            yield (field.name,), field.type, _marked(field.props)
        return
    step = (ITEM,) if isinstance(node, Array) else (ENTRY,) if isinstance(node, MapType) else ()
    for one in inner_types(node):
        yield step, one, False


def _marked(props: Mapping[str, Json]) -> bool:
    return props.get("sensitive") not in (None, False)


def _above_marks(schema: Schema) -> Set[int]:
    """Return the ids of the types that have a mark, or contain one at any depth."""
    holders: dict[int, list[Schema]] = {id(schema): []}  # by type: those that contain it
    stack, found = [schema], list[Schema]()
    while stack:
        node = stack.pop()
        own = not isinstance(node, Union) and _marked(node.props)
        if own or (isinstance(node, Record) and any(_marked(one.props) for one in node.fields)):
            found.append(node)
        for one in inner_types(node):
            if id(one) not in holders:
                holders[id(one)] = []
                stack.append(one)
            holders[id(one)].append(node)
    above = set[int]()
    while found:
        node = found.pop()
        if id(node) not in above:
            above.add(id(node))
            found += holders[id(node)]
    return above
