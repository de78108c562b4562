"""The changes that a Hive table on Parquet cannot follow (policy `warehouse`).

The table of a topic follows its schemas one after the other, and files of old schemas stay:

- A table takes new columns at the end, at any depth. A column keeps its name forever.
- A column type may only become one that Parquet readers give for old files. Int may become bigint
  or double, string and binary each other, and a decimal may gain digits. Avro's float is stored as
  double.
- A union of several types is a struct with a member for each, in order.

Rules: it judges the step from an old schema to the next one, whatever the level's direction. It
reports no problem that the old schema had already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headworks.compatibility._budget import Budget
from headworks.compatibility._finding import Finding
from headworks.compatibility._rules import RULES
from headworks.compatibility._wording import type_name
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

__all__ = ["RESERVED_COLUMNS", "column_problems", "table_findings"]

RESERVED_COLUMNS: Final = frozenset(
    ["_partition", "_offset", "_timestamp", "_schema_version", "_load", "datepartition"]
)
_COLUMN: Final = {
    "null": "string",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL_COLUMN: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "local timestamp",
    "local-timestamp-micros": "local timestamp",
    "uuid": "string",
}
_READABLE: Final = frozenset(
    [("int", "bigint"), ("int", "double"), ("string", "binary"), ("binary", "string")]
)


def table_findings(
    new: Schema, old: Schema, budget: Budget, old_version: int | None = None
) -> list[Finding]:
    """Return the changes from `old` to `new` that the table cannot follow."""
    budget.next_pair()
    return list(_TableEvolution(old_version, budget).compare(new, old))


def column_problems(schema: Schema) -> list[Finding]:
    """Return why a first table cannot hold `schema`."""
    return list(_TableEvolution(None, Budget()).compare(schema, Record("", pointer=schema.pointer)))


@dataclass(slots=True)
class _TableEvolution:
    """One step of a table from an old schema to a new one."""

    version: int | None  # of the old schema; None if it has none
    budget: Budget
    seen: set[tuple[int, int]] = field(default_factory=set)  # pairs compared already, by id
    # Records that are known not to hold themselves, nor any that does.
    finite: set[int] = field(default_factory=set)

    @property
    def _old(self) -> str:
        return "before" if self.version is None else f"in version {self.version}"

    def compare(self, new: Schema, old: Schema) -> Iterator[Finding]:
        """Findings of every column, nested ones included; pairs wait on an explicit stack."""
        stack: list[tuple[str, Schema, Schema]] = [("", new, old)]
        while stack:
            path, mine, theirs = stack.pop()
            mine, theirs = _one_type(mine), _one_type(theirs)
            if (id(mine), id(theirs)) in self.seen:
                continue
            self.seen.add((id(mine), id(theirs)))
            self.budget.spend(1)
            below: list[tuple[str, Schema, Schema]] = []
            if isinstance(mine, Record) and isinstance(theirs, Record):
                yield from self._struct(path, mine, theirs)
                known = {f.name: f.type for f in theirs.fields}
                below += [
                    (_dotted(path, f.name), f.type, known[f.name])
                    for f in mine.fields
                    if f.name in known
                ]
            elif isinstance(mine, Array) and isinstance(theirs, Array):
                below.append((f"{path}[]", mine.items, theirs.items))
            elif isinstance(mine, MapType) and isinstance(theirs, MapType):
                below.append((f"{path}{{}}", mine.values, theirs.values))
            elif isinstance(mine, Union) and isinstance(theirs, Union):
                pairs = list(zip(_branches(mine), _branches(theirs), strict=False))
                if len(pairs) == len(_branches(theirs)) and all(map(_readable_pair, pairs)):
                    below += [(path, *pair) for pair in pairs]
                else:
                    yield self._union(path, mine, theirs)
            else:
                yield from self._column(path, mine, theirs)
            stack.extend(reversed(below))

    def _struct(self, path: str, new: Record, old: Record) -> Iterator[Finding]:
        known = {f.name for f in old.fields}
        cases: dict[str, str] = {}
        for one in (*old.fields, *new.fields):
            folded = one.name.lower()
            other = cases.setdefault(folded, one.name)
            if other != one.name and one.name not in known:
                message = f'the columns "{other}" and "{one.name}" differ in case only, and a '
                message += "Hive table takes them for one"
                fix = f'give "{one.name}" another name'
                yield self._finding("HW202", path, one, old, message, fix)
        for one in new.fields:
            if one.name not in known:
                yield from self._added(_dotted(path, one.name), one, known, old, top=not path)

    def _added(
        self, path: str, one: Field, known: set[str], old: Record, *, top: bool
    ) -> Iterator[Finding]:
        renamed = [alias for alias in one.aliases if alias in known]
        if renamed:
            message = f'"{one.name}" renames "{renamed[0]}" by an alias, and a Hive table cannot '
            message += f'rename a column: a new column "{one.name}" would stand beside a dead '
            message += f'column "{renamed[0]}" that keeps the old rows'
            fix = f'keep the name "{renamed[0]}"'
            yield self._finding("HW205", path, one, old, message, fix)
        if top and one.name.lower() in RESERVED_COLUMNS:
            message = f'every table has a column "{one.name.lower()}" of its own'
            yield self._finding("HW206", path, one, old, message, "give the field another name")
        yield from self._new_type(path, one.type, old)

    def _new_type(self, path: str, schema: Schema, old: Record) -> Iterator[Finding]:
        """Problems inside a type that the table has not held yet."""
        loop = self._recursive(schema)
        if loop is not None:
            message = f"{loop.name} holds itself, and a table column has no recursive type"
            fix = "flatten it to the depth that is needed, or keep the part as a JSON string"
            yield self._finding("HW203", path, loop, old, message, fix)
            return
        empty = Record("", pointer=old.pointer)
        stack: list[tuple[str, Schema]] = [(path, schema)]
        while stack:
            where, node = stack.pop()
            node = _one_type(node)
            if (id(node), 0) in self.seen:
                continue
            self.seen.add((id(node), 0))
            if isinstance(node, Record):
                cases: dict[str, str] = {}
                for one in node.fields:
                    other = cases.setdefault(one.name.lower(), one.name)
                    if other != one.name:
                        message = f'the columns "{other}" and "{one.name}" differ in case only'
                        fix = f'give "{one.name}" another name'
                        yield self._finding("HW202", where, one, empty, message, fix)
                stack += [(_dotted(where, f.name), f.type) for f in reversed(node.fields)]
            elif isinstance(node, Array):
                stack.append((f"{where}[]", node.items))
            elif isinstance(node, MapType):
                stack.append((f"{where}{{}}", node.values))
            elif isinstance(node, Union):
                stack += [(where, branch) for branch in reversed(node.branches)]

    def _recursive(self, schema: Schema) -> Record | None:
        """Return a record at or below `schema` that holds itself, or None."""
        open_: dict[int, Record] = {}
        stack: list[tuple[Schema, bool]] = [(schema, False)]
        while stack:
            node, leaving = stack.pop()
            self.budget.spend(1)
            if leaving:
                open_.pop(id(node))
                self.finite.add(id(node))
            elif isinstance(node, Record):
                if id(node) in open_:
                    return node
                if id(node) not in self.finite:
                    open_[id(node)] = node
                    stack.append((node, True))
                    stack += [(one.type, False) for one in reversed(node.fields)]
            elif isinstance(node, Array):
                stack.append((node.items, False))
            elif isinstance(node, MapType):
                stack.append((node.values, False))
            elif isinstance(node, Union):
                stack += [(branch, False) for branch in reversed(node.branches)]
        return None

    def _column(self, path: str, new: Schema, old: Schema) -> Iterator[Finding]:
        if isinstance(new, Union) or isinstance(old, Union):
            message = f"the column is {_shape(old)} {self._old} and would become {_shape(new)}: "
            message += "a union of several types is a struct, and no column becomes one or stops "
            message += "being one"
            fix = "keep the type, and add a new field for the new one, with a default"
            yield self._finding("HW204", path, new, old, message, fix)
        elif not _readable(old, new):
            message = f"the column is {_shape(old)} in the files written {self._old}, and Parquet "
            message += f"readers cannot give it as {_shape(new)}"
            fix = f"keep {type_name(old)}, or add a new field of type {type_name(new)} beside it, "
            fix += "with a default"
            yield self._finding("HW201", path, new, old, message, fix)

    def _union(self, path: str, new: Union, old: Union) -> Finding:
        mine = ", ".join(_shape(branch) for branch in _branches(new))
        theirs = ", ".join(_shape(branch) for branch in _branches(old))
        message = "the union is a struct with one member per type, in order; it would become "
        message += f"{mine}, and was {theirs} {self._old}"
        fix = "keep the branches as they are; new ones go to the end"
        return self._finding("HW204", path, new, old, message, fix)

    def _finding(
        self, rule: str, path: str, new: Schema | Field, old: Schema, message: str, fix: str
    ) -> Finding:
        text = f"the table cannot follow: {message}" + (f" (field {path})" if path else "")
        return Finding(
            rule=rule,
            kind=RULES[rule].kind,
            message=text[:1].upper() + text[1:],
            fix=fix,
            path=path,
            reader_pointer=new.pointer,
            writer_pointer=old.pointer,
            writer_version=self.version,
        )


def _one_type(schema: Schema) -> Schema:
    """Return the type that a column holds: without null, and with the wider of two numbers."""
    if not isinstance(schema, Union):
        return schema
    rest = _branches(schema)
    if len(rest) == 1:
        return rest[0]
    if not rest:
        return Primitive("null", pointer=schema.pointer)
    kinds = {branch.kind for branch in rest}
    for wide, narrow in (("long", "int"), ("double", "float")):
        if kinds == {wide, narrow}:
            return next(branch for branch in rest if branch.kind == wide)
    return schema


def _branches(union: Union) -> list[Schema]:
    return [branch for branch in union.branches if branch.kind != "null"]


def _shape(schema: Schema) -> str:
    """Return the column type in a few words; equal columns have equal texts."""
    schema = _one_type(schema)
    if isinstance(schema, Record):
        return "struct"
    if isinstance(schema, EnumType):
        return "string"
    if isinstance(schema, Union):
        return f"struct of {len(_branches(schema))} types"
    if isinstance(schema, (Array, MapType)):
        return schema.kind
    logical = schema.logical
    base = "binary" if isinstance(schema, Fixed) else _COLUMN[schema.kind]
    if logical is None:
        return base
    if logical.name == "decimal":
        fits = logical.precision <= 38
        return f"decimal({logical.precision},{logical.scale})" if fits else "string"
    return _LOGICAL_COLUMN.get(logical.name, base)


def _readable_pair(pair: tuple[Schema, Schema]) -> bool:
    new, old = pair
    return _readable(old, new)


def _readable(old: Schema, new: Schema) -> bool:
    before, after = _shape(old), _shape(new)
    if before == after or (before, after) in _READABLE:
        return True
    if not (before.startswith("decimal") and after.startswith("decimal")):
        return False
    assert isinstance(old, (Primitive, Fixed))
    assert isinstance(new, (Primitive, Fixed))
    was, now = old.logical, new.logical
    assert was is not None
    assert now is not None
    return now.scale >= was.scale and now.precision - now.scale >= was.precision - was.scale


def _dotted(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step
