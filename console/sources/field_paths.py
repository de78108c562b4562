"""The fields of a schema by their paths, those of inner records included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from headworks.schema import Array, MapType, Record, Schema, Union


def dotted_paths(schema: Schema, limit: int) -> tuple[str, ...]:
    """Return the first `limit` dotted field paths, without steps for lists and maps."""
    if not isinstance(schema, Record):
        return ()
    found = (
        ".".join(step for step in path if step not in ("[]", "{}"))
        for path, *_ in walk_fields(schema, (), 0, (schema,))
    )
    return tuple(dict.fromkeys(islice(found, limit)))


def walk_fields(
    record: Record, here: tuple[str, ...], depth: int, inside: tuple[Record, ...]
) -> Iterator[tuple[tuple[str, ...], int, Schema, str | None, str | None]]:
    """Yield (path, depth, type, default, doc) of every field, those of inner records too.

    `inside` are the records around it: a recursive type is entered once.
    """
    for field in record.fields:
        path = (*here, field.name)
        default = json.dumps(field.default, ensure_ascii=False) if field.has_default else None
        yield path, depth, field.type, default, field.doc
        for below, inner in _records(field.type, path):
            if inner not in inside:
                yield from walk_fields(inner, below, depth + 1, (*inside, inner))


def _records(schema: Schema, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Record]]:
    """Yield the records inside a type, with their paths."""
    if isinstance(schema, Record):
        yield path, schema
    elif isinstance(schema, Array):
        yield from _records(schema.items, (*path, "[]"))
    elif isinstance(schema, MapType):
        yield from _records(schema.values, (*path, "{}"))
    elif isinstance(schema, Union):
        for branch in schema.branches:
            yield from _records(branch, path)
