"""The words of a finding: the names of a type, a side, and a rename in a sentence.

Pure text. Every name that comes from a schema is cut to a bounded length, so that a hostile
schema cannot make a message of any size.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headworks.schema._canonical import canonical_text
from headworks.schema._model import (
    Array,
    EnumType,
    Field,
    Fixed,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

_MAX_LISTED = 8
# Renames are guessed in records of at most this many fields, both sides together, because each name
# is compared with each.
_MAX_COMPARED_FIELDS = 400


@dataclass(frozen=True, slots=True)
class Sides:
    """The version numbers of the reader and the writer; None for the proposed schema.

    `between_versions` is false if two bare schemas are compared. `has_table` is true if a table
    follows the proposed schema: then no advice may ask for a change that a table cannot follow.
    """

    reader: int | None = None
    writer: int | None = None
    between_versions: bool = False
    has_table: bool = False

    @property
    def proposed_reads(self) -> bool:
        """Whether the reader is the schema that can still be changed."""
        return self.reader is None

    @property
    def reader_subject(self) -> str:
        """The reader, as the subject of a sentence."""
        if not self.between_versions:
            return "the reader"
        if self.reader is None:
            return "consumers on the proposed schema"
        return f"consumers on version {self.reader}"

    @property
    def writer_data(self) -> str:
        """The data of the writer, in a sentence."""
        if not self.between_versions:
            return "the writer's data"
        if self.writer is None:
            return "data written with the proposed schema"
        return f"data written with version {self.writer}"

    @property
    def here(self) -> str:
        """The reader's schema, as a place."""
        return "here" if self.reader is None else f"in version {self.reader}"

    @property
    def cannot_read(self) -> str:
        """The opening of most messages."""
        return f"{self.reader_subject} cannot read {self.writer_data}"


def simple_name(name: str) -> str:
    """Return a full name without its namespace."""
    return name.rpartition(".")[2]


def type_name(schema: Schema, depth: int = 2) -> str:
    """Return a type in a few words: `int`, `long (timestamp-millis)`, `array of record a.Leg`."""
    if isinstance(schema, Primitive):
        return _with_logical(schema.kind, schema)
    if isinstance(schema, Fixed):
        return _with_logical(f"fixed {_shortened(schema.name)} ({schema.size} bytes)", schema)
    if isinstance(schema, (Record, EnumType)):
        return f"{schema.kind} {_shortened(schema.name)}"
    if depth == 0:
        return schema.kind
    if isinstance(schema, Array):
        return f"array of {type_name(schema.items, depth - 1)}"
    if isinstance(schema, MapType):
        return f"map of {type_name(schema.values, depth - 1)}"
    names = [type_name(branch, depth - 1) for branch in schema.branches[: _MAX_LISTED + 1]]
    if len(names) > _MAX_LISTED:
        names[_MAX_LISTED:] = ["..."]
    return f"[{', '.join(names)}]"


def _with_logical(text: str, schema: Primitive | Fixed) -> str:
    logical = schema.logical
    if logical is None:
        return text
    if logical.name == "decimal":
        return f"{text} (decimal({logical.precision},{logical.scale}))"
    return f"{text} ({logical.name})"


def listed(names: Iterable[str]) -> str:
    """Return names in a sentence, quoted, at most a handful: `"A", "B" and 3 more`."""
    every = list(names)
    shown = ", ".join(f'"{_shortened(name)}"' for name in every[:_MAX_LISTED])
    return shown if len(every) <= _MAX_LISTED else f"{shown} and {len(every) - _MAX_LISTED} more"


def _shortened(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."


def has_path(schema: Schema, path: str) -> bool:
    """Return whether a schema has a field at the path of a finding, such as `stops[].place`."""
    nodes = {id(schema): schema}
    for name in re.split(r"[.\[\]{}]+", path.rstrip("[]{}")):
        fields = [
            node.by_name[name].type
            for node in _inside(nodes.values())
            if isinstance(node, Record) and name in node.by_name
        ]
        nodes = {id(one): one for one in fields}  # recursive types meet again at every step
    return bool(nodes)


def _inside(nodes: Iterable[Schema]) -> Iterator[Schema]:
    """Yield the types themselves, and those of their items, values, and branches."""
    for node in nodes:
        if isinstance(node, Array):
            yield from _inside([node.items])
        elif isinstance(node, MapType):
            yield from _inside([node.values])
        elif isinstance(node, Union):
            yield from _inside(node.branches)
        else:
            yield node


def rename_of(missing: Field, reader: Record, writer: Record) -> Field | None:
    """Return the writer's unread field that was probably renamed to `missing`, or None."""
    if len(reader.fields) + len(writer.fields) > _MAX_COMPARED_FIELDS:
        return None
    known = {name for f in reader.fields for name in (f.name, *f.aliases)}
    free = {f.name: f for f in writer.fields if f.name not in known}
    if not free:
        return None
    close = difflib.get_close_matches(missing.name, free, n=1, cutoff=0.6)
    if close:
        return free[close[0]]
    if len(free) == 1:
        (only,) = free.values()
        if canonical_text(only.type) == canonical_text(missing.type):
            return only
    return None
