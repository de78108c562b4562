"""The changes that a Hive table on Parquet cannot follow (policy `warehouse`).

The table of a topic follows its schemas one after the other, and files of old schemas stay:

- A table takes new columns at the end, at any depth. A column keeps its name forever.
- A column type may only become one that Parquet readers give for old files. Int may become bigint
  or double, string and binary each other, and a decimal may gain digits. Avro's float is stored as
  double.
- A union of several types is a struct with a member for each, in order.
- A metastore bounds the name of a column and the text of its type.

Rules: it judges the step from an old schema to the next one, whatever the level's direction. It
reports no problem that the old schema had already, and so skips a node that both schemas share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headworks._hive_types import READABLE_AS, decimal_readable_as
from headworks.compatibility._budget import Budget
from headworks.compatibility._columns import (
    TypeLengths,
    branches,
    name_problem,
    one_type,
    shape,
    type_problem,
)
from headworks.compatibility._finding import Finding
from headworks.compatibility._new_fields import default_member, json_type, new_field_of
from headworks.compatibility._rules import RULES
from headworks.compatibility._wording import type_name
from headworks.schema._model import (
    Array,
    Field,
    Fixed,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

RESERVED_COLUMNS: Final = frozenset(
    [
        *("_partition", "_offset", "_timestamp", "_schema_version", "_load", "_written"),
        *("_topic_life", "datepartition"),
    ]
)


def table_findings(
    new: Schema, old: Schema, budget: Budget, old_version: int | None = None
) -> list[Finding]:
    """Return the changes from `old` to `new` that the table cannot follow."""
    budget.next_pair()
    step = _TableEvolution(old_version, budget)
    if isinstance(new, Record) is not isinstance(old, Record):
        return [step.other_columns(new, old)]
    return list(step.compare(_as_table(new), _as_table(old)))


def column_problems(schema: Schema) -> list[Finding]:
    """Return why a first table cannot hold `schema`."""
    nothing = Record("", pointer=schema.pointer)
    return list(_TableEvolution(None, Budget()).compare(_as_table(schema), nothing))


def _as_table(schema: Schema) -> Record:
    """Return a record with the table's columns: a schema that is no record has one, `value`."""
    if isinstance(schema, Record):
        return schema
    column = Field("value", schema, pointer=schema.pointer)
    return Record("", (column,), pointer=schema.pointer)


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
            mine, written, theirs = one_type(mine), theirs, one_type(theirs)
            if (id(mine), id(theirs)) in self.seen:
                continue
            self.seen.add((id(mine), id(theirs)))
            self.budget.spend(1)
            below: list[tuple[str, Schema, Schema]] = []
            if isinstance(mine, Record) and isinstance(theirs, Record):
                yield from self._struct(path, mine, theirs)
                known = theirs.by_name
                below += [
                    (_dotted(path, f.name), f.type, was.type)
                    for f in mine.fields
                    if (was := known.get(f.name)) is not None and was is not f
                ]
            elif isinstance(mine, Array) and isinstance(theirs, Array):
                below.append((f"{path}[]", mine.items, theirs.items))
            elif isinstance(mine, MapType) and isinstance(theirs, MapType):
                below.append((f"{path}{{}}", mine.values, theirs.values))
            elif isinstance(mine, Union) and isinstance(theirs, Union):
                pairs = list(zip(branches(mine), branches(theirs), strict=False))
                if len(pairs) == len(branches(theirs)) and all(map(_readable_pair, pairs)):
                    below += [(path, *pair) for pair in pairs]
                else:
                    yield self._union(path, mine, theirs)
            else:
                yield from self._column(path, mine, theirs, written)
            stack.extend(reversed(below))

    def other_columns(self, new: Schema, old: Schema) -> Finding:
        """Report a record that follows another type, or the other way round."""
        message = "a record has a column for each field, and every other type has one column "
        message += f'"value": rows written {self._old} would not be in the new columns'
        fix = f"keep {type_name(old)} as the type of the event, or use a new topic"
        return self._finding("HW201", "", new, old, message, fix)

    def _struct(self, path: str, new: Record, old: Record) -> Iterator[Finding]:
        known = old.by_name
        added = [one for one in new.fields if one.name not in known]
        names = known.keys() | {one.name for one in added}
        cases: dict[str, str] = {}
        # Most often, no two names differ in case only.
        unequal = len(set(map(str.lower, names))) < len(names)
        for one in (*old.fields, *new.fields) if added and unequal else ():
            folded = one.name.lower()
            other = cases.setdefault(folded, one.name)
            if other != one.name and one.name not in known:
                message = f'the columns "{other}" and "{one.name}" differ in case only, and a '
                message += "Hive table takes them for one"
                fix = f'give "{one.name}" another name'
                yield self._finding("HW202", path, one, old, message, fix)
        for one in added:
            yield from self._added(_dotted(path, one.name), one, new, old, top=not path)
        if not path:
            yield from self._too_long(new, old)

    def _too_long(self, new: Record, old: Record) -> Iterator[Finding]:
        """Problems of columns whose name or type the metastore cannot store."""
        lengths, known = TypeLengths(), old.by_name
        for one in new.fields:
            was = known.get(one.name)
            if was is one:
                continue
            if was is None and (name := name_problem(one.name)):
                fix = "give the field a shorter name"
                yield self._finding("HW207", one.name, one, old, name, fix)
            if self._recursive(one.type) is not None:
                continue
            kind = type_problem(lengths.of(one.type))
            if kind and (was is None or not type_problem(lengths.of(was.type))):
                fix = "shorten the names inside it, or keep a part of it as a string or bytes field"
                yield self._finding("HW207", one.name, one, old, kind, fix)

    def _added(
        self, path: str, one: Field, new: Record, old: Record, *, top: bool
    ) -> Iterator[Finding]:
        renamed = [alias for alias in one.aliases if alias in old.by_name]
        if renamed:
            message = f'"{one.name}" renames "{renamed[0]}" by an alias, and a Hive table cannot '
            message += f'rename a column: a new column "{one.name}" would stand beside a dead '
            message += f'column "{renamed[0]}" that keeps the old rows'
            was = json_type(old.by_name[renamed[0]].type)
            fix = f'keep the name "{renamed[0]}", without the alias; or keep "{renamed[0]}", with '
            fix += f'"type": {was}, and add "{one.name}" beside it, with {default_member(one)} and '
            fix += "without the alias"
            if renamed[0] in new.by_name:
                fix = f'remove the aliases of "{one.name}", and give it a default'
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
            node = one_type(node)
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

    def _column(self, path: str, new: Schema, old: Schema, was: Schema) -> Iterator[Finding]:
        """Problems of one column; `was` is the old type as it is written, perhaps with a null."""
        if isinstance(new, Union) or isinstance(old, Union):
            message = f"the column is {shape(old)} {self._old} and would become {shape(new)}: "
            message += "a union of several types is a struct, and no column becomes one or stops "
            message += "being one"
            fix = f"keep the type {json_type(was)}, and {new_field_of(new)}"
            if isinstance(new, Union):
                more = tuple(one for one in branches(new) if shape(one) != shape(old))
                may_be = "" if isinstance(was, Union) else ", with or without null"
                rest = new_field_of(Union(more, new.pointer))
                fix = f"keep the type {json_type(was)}{may_be}, and {rest}"
            yield self._finding("HW204", path, new, old, message, fix)
        elif not _readable(old, new):
            message = f"the column is {_both_names(old)} in the files written {self._old}, and "
            message += f"Parquet readers cannot give it as {_both_names(new)}"
            fix = f"keep the type {json_type(was)}, and {new_field_of(new)}"
            yield self._finding("HW201", path, new, old, message, fix)

    def _union(self, path: str, new: Union, old: Union) -> Finding:
        mine = ", ".join(shape(branch) for branch in branches(new))
        theirs = ", ".join(shape(branch) for branch in branches(old))
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


def _both_names(schema: Schema) -> str:
    """Return the type of a column, and that of the schema if it is called otherwise."""
    column, name = shape(schema), type_name(schema)
    return column if column in name else f"{column} ({name})"


def _readable_pair(pair: tuple[Schema, Schema]) -> bool:
    new, old = pair
    return _readable(old, new)


def _readable(old: Schema, new: Schema) -> bool:
    before, after = shape(old), shape(new)
    if before == after or (before, after) in READABLE_AS:
        return True
    if not (before.startswith("decimal") and after.startswith("decimal")):
        return False
    assert isinstance(old, (Primitive, Fixed))
    assert isinstance(new, (Primitive, Fixed))
    was, now = old.logical, new.logical
    assert was is not None
    assert now is not None
    return decimal_readable_as((was.precision, was.scale), (now.precision, now.scale))


def _dotted(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step
