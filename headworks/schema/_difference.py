"""The changes between two schemas, field by field.

A change is a field that is added, removed, or renamed by an alias, or that has another type,
default, or doc. The order of members and white space are no change. Types are matched by field,
so a type that moved to another namespace is one change, not two trees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import cast

from headworks.schema._canonical import canonical_text
from headworks.schema._model import (
    Array,
    EnumType,
    Field,
    Fixed,
    Json,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

_MAX_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """One change at a dotted field path (empty: the schema itself).

    `what`: added, removed, renamed, type, name, default, doc, symbols, size, aliases, properties.
    """

    path: str
    what: str
    before: str | None
    after: str | None

    def as_dict(self) -> dict[str, str | None]:
        """The change as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        place = self.path or "schema"
        if self.what in ("added", "removed"):
            sign = "+" if self.what == "added" else "-"
            return f"{sign} {place}: {self.after or self.before}"
        before = "none" if self.before is None else self.before
        after = "none" if self.after is None else self.after
        return f"~ {place}: {self.what} {before} -> {after}"


def differences(old: Schema, new: Schema) -> list[Difference]:
    """Return every change from `old` to `new`: new fields in order, then removed ones."""
    return list(_Comparison().compare(old, new))


@dataclass(slots=True)
class _Comparison:
    def compare(self, old: Schema, new: Schema) -> Iterator[Difference]:
        seen: set[tuple[int, int]] = set()
        stack: list[tuple[str, Schema, Schema]] = [("", old, new)]
        while stack:
            path, before, after = stack.pop()
            if (id(before), id(after)) in seen:
                continue
            seen.add((id(before), id(after)))
            below: list[tuple[str, Schema, Schema]] = []
            if isinstance(before, Record) and isinstance(after, Record):
                yield from self._named(path, before, after)
                for change, pair in self._fields(path, before, after):
                    yield from change
                    below += [] if pair is None else [pair]
            elif isinstance(before, Array) and isinstance(after, Array):
                below.append((f"{path}[]", before.items, after.items))
            elif isinstance(before, MapType) and isinstance(after, MapType):
                below.append((f"{path}{{}}", before.values, after.values))
            elif isinstance(before, Union) and isinstance(after, Union):
                if _shape(before) != _shape(after):
                    yield Difference(path, "type", _shape(before), _shape(after))
                else:
                    pairs = zip(before.branches, after.branches, strict=True)
                    below += [(path, *pair) for pair in pairs]
            elif isinstance(before, EnumType) and isinstance(after, EnumType):
                yield from self._named(path, before, after)
                yield from _changed(path, "symbols", _list(before.symbols), _list(after.symbols))
                yield from _changed(path, "default", before.default, after.default)
            elif isinstance(before, Fixed) and isinstance(after, Fixed):
                yield from self._named(path, before, after)
                yield from _changed(path, "size", str(before.size), str(after.size))
                yield from _changed(path, "type", _shape(before), _shape(after))
            else:
                yield from _changed(path, "type", _shape(before), _shape(after))
            stack.extend(reversed(below))

    def _named(
        self, path: str, before: Record | EnumType | Fixed, after: Record | EnumType | Fixed
    ) -> Iterator[Difference]:
        yield from _changed(path, "name", before.name, after.name)
        yield from _changed(path, "doc", before.doc, after.doc)
        yield from _changed(path, "aliases", _list(before.aliases), _list(after.aliases))
        if not isinstance(before, Fixed):
            yield from _changed(path, "properties", _text(before.props), _text(after.props))

    def _fields(
        self, path: str, before: Record, after: Record
    ) -> Iterator[tuple[list[Difference], tuple[str, Schema, Schema] | None]]:
        known = {one.name: one for one in before.fields}
        matched: set[str] = set()
        for one in after.fields:
            here = f"{path}.{one.name}" if path else one.name
            other = known.get(one.name) or next(
                (known[alias] for alias in one.aliases if alias in known), None
            )
            if other is None:
                yield [Difference(here, "added", None, _field(one))], None
                continue
            matched.add(other.name)
            yield list(_field_changes(here, other, one)), (here, other.type, one.type)
        for one in before.fields:
            if one.name not in matched:
                here = f"{path}.{one.name}" if path else one.name
                yield [Difference(here, "removed", _field(one), None)], None


def _field_changes(path: str, before: Field, after: Field) -> Iterator[Difference]:
    yield from _changed(path, "renamed", before.name, after.name)
    yield from _changed(path, "default", _default(before), _default(after))
    yield from _changed(path, "doc", before.doc, after.doc)
    yield from _changed(path, "aliases", _list(before.aliases), _list(after.aliases))
    yield from _changed(path, "properties", _text(before.props), _text(after.props))


def _changed(path: str, what: str, before: str | None, after: str | None) -> Iterator[Difference]:
    if before != after:
        yield Difference(path, what, before, after)


def _field(one: Field) -> str:
    default = _default(one)
    return _shape(one.type) + ("" if default is None else f" = {default}")


def _default(one: Field) -> str | None:
    return _text(cast(Json, one.default)) if one.has_default else None


def _list(names: tuple[str, ...]) -> str | None:
    return ", ".join(names) if names else None


def _text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."


def _shape(schema: Schema) -> str:
    """Return a type in words, without the parts that are compared below it."""
    if isinstance(schema, Primitive):
        return canonical_text(schema).strip('"')
    if isinstance(schema, Fixed):
        return f"fixed {schema.name} {_text(schema.props)}" if schema.props else schema.name
    if isinstance(schema, (Record, EnumType)):
        return schema.name
    if isinstance(schema, Array):
        return f"array of {_shape(schema.items)}"
    if isinstance(schema, MapType):
        return f"map of {_shape(schema.values)}"
    return f"[{', '.join(_shape(branch) for branch in schema.branches)}]"
