"""The text of `_resolution`: one function per reason, from the two nodes to a Reason.

Pure text. Every sentence says which reader fails on which data. Every fix is possible for the side
that can still change (`Sides.proposed_reads`), and whoever follows it is not refused for it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headworks.compatibility._new_fields import default_member, json_type, new_field_of, nullable
from headworks.compatibility._wording import Sides, listed, simple_name, type_name
from headworks.schema._model import EnumType, Field, Fixed, Named, Record, Schema, Union


class Reason(NamedTuple):
    """A finding before its path is known."""

    rule: str
    message: str
    fix: str
    reader_pointer: str
    writer_pointer: str


def type_mismatch(sides: Sides, reader: Schema, writer: Schema) -> Reason:
    """Report types that do not become each other; the writer's may be a null."""
    if writer.kind == "null":
        message = (
            f"{sides.cannot_read}: the value can be null there, and {sides.reader_subject} need "
        )
        message += type_name(reader)
        fix = f'allow null: "type": {nullable(reader)}'
        if not sides.proposed_reads:
            fix = "do not let the value become null: consumers in use cannot read it"
    else:
        message = f"{sides.cannot_read}: {type_name(writer)} does not become {type_name(reader)}"
        fix = _kept_or_beside(sides, reader, writer)
    return Reason("HW002", message, fix, reader.pointer, writer.pointer)


def changed_meaning(sides: Sides, reader: Schema, writer: Schema, rule: str, why: str) -> Reason:
    """Report bytes that decode to a value with another meaning."""
    message = f"{sides.reader_subject} misread {sides.writer_data}: {why}"
    fix = _kept_or_beside(sides, reader, writer)
    return Reason(rule, message, fix, reader.pointer, writer.pointer)


def _kept_or_beside(sides: Sides, reader: Schema, writer: Schema) -> str:
    """Advise to keep the old type, or to add a field of the new one."""
    kept, new = (writer, reader) if sides.proposed_reads else (reader, writer)
    return f"keep the type {json_type(kept)}, and {new_field_of(new)}"


def name_mismatch(sides: Sides, reader: Named, writer: Named) -> Reason:
    """Report named types of different names."""
    message = (
        f"{sides.cannot_read}: the {writer.kind} is called {writer.name} there and {reader.name} "
        f"{sides.here}"
    )
    fix = f'give {reader.name} "aliases": ["{writer.name}"], or keep the name'
    if not sides.proposed_reads:
        fix = f"keep the name {reader.name}: a consumer cannot learn of a later name"
    return Reason("HW003", message, fix, f"{reader.pointer}/name", f"{writer.pointer}/name")


def fixed_size_mismatch(sides: Sides, reader: Fixed, writer: Fixed) -> Reason:
    """Report fixed types of different sizes."""
    message = f"{sides.cannot_read}: {simple_name(writer.name)} has {writer.size} bytes there and "
    message += f"{reader.size} {sides.here}"
    kept, new = (writer, reader) if sides.proposed_reads else (reader, writer)
    fix = f"keep the size {kept.size}, and {new_field_of(new)}, and give its type another name"
    return Reason("HW004", message, fix, f"{reader.pointer}/size", f"{writer.pointer}/size")


def missing_symbols(
    sides: Sides, reader: EnumType, writer: EnumType, missing: Sequence[str]
) -> Reason:
    """Report enum symbols that the reader lacks, without a default symbol."""
    message = (
        f"{sides.cannot_read}: it can hold {listed(missing)}, which {simple_name(reader.name)} "
        f"{sides.here} does not know"
    )
    fix = f"keep {listed(missing)}"
    if reader.symbols:
        instead = listed(reader.symbols[:1])
        fix += f', or add "default": {instead} (or another symbol) to the enum itself, beside '
        fix += f'"symbols": consumers then read {instead} instead'
    if not sides.proposed_reads:
        fix = "add a symbol only when the versions in use have a default symbol; else use a new "
        fix += "field or a new topic"
    return Reason("HW005", message, fix, f"{reader.pointer}/symbols", f"{writer.pointer}/symbols")


def missing_default(
    sides: Sides, mine: Field, old: Field | None, writer: Record, *, renamed: bool
) -> Reason:
    """Report a reader's field that the data lacks and that has no default.

    `old` is the data's field that may have been renamed to it. If it is `renamed`, a field of the
    data has its name as an alias.
    """
    message = f'{sides.cannot_read}: "{mine.name}" is not in it, and has no default to take instead'
    return Reason(
        "HW001",
        message,
        _missing_default_fix(sides, mine, old, renamed),
        mine.pointer,
        f"{writer.pointer}/fields",
    )


def _missing_default_fix(sides: Sides, mine: Field, old: Field | None, renamed: bool) -> str:
    if not sides.proposed_reads:
        name = f'the name "{mine.name}", without the alias' if renamed else f'"{mine.name}"'
        return (
            f'keep {name}, with "type": {json_type(mine.type)}: old consumers need it. To remove '
            f"it later, first add {default_member(mine)} to it in a version of its own; at a "
            "transitive level, no earlier version may then be left"
        )
    add = f'add {default_member(mine)} to "{mine.name}"'
    if old is not None and sides.has_table:
        return (
            f'if it is the new name of "{old.name}", keep "{old.name}", with "type": '
            f"{json_type(old.type)}, instead of it or beside it. A table cannot rename a column, "
            f"and a default alone would hide the old values. If it is new or beside it, {add}"
        )
    if old is not None:
        return (
            f'if it is the new name of "{old.name}", add "aliases": ["{old.name}"] to it, which '
            f"keeps the old values. If it is new, {add}"
        )
    if isinstance(mine.type, Union) and mine.type.nullable is not None:
        add += ": a type that allows null does not make a field optional, a default does"
    return add


def unusable_default(sides: Sides, mine: Field, writer: Record, problem: str) -> Reason:
    """Report a default that the data needs and that cannot be decoded."""
    message = (
        f'{sides.cannot_read}: "{mine.name}" is not in it, and its default cannot be decoded: '
    )
    message += problem
    fix = "give a default that is a value of the field's type"
    return Reason("HW103", message, fix, mine.pointer, f"{writer.pointer}/fields")


def ambiguous_field(sides: Sides, mine: Field, other: Field, rule: str = "HW007") -> Reason:
    """Report a name and an alias that both match."""
    message = (
        f'{sides.cannot_read}: several of its fields match "{mine.name}", by name and by alias, '
        "and only one of them can fill it"
    )
    fix = f'remove the aliases of "{mine.name}": an alias is for a field that is gone'
    if other.name != mine.name and not mine.has_default and sides.proposed_reads:
        fix += f"; then add {default_member(mine)} to it"
    return Reason(rule, message, fix, mine.pointer, other.pointer)


def field_feeds_two(sides: Sides, first: Field, second: Field, other: Field) -> Reason:
    """Report a field of the data that would fill two of the reader's."""
    message = (
        f'{sides.cannot_read}: its field "{other.name}" would have to fill both "{first.name}" '
        f'and "{second.name}", and readers fill only one'
    )
    aliased = second if first.name == other.name else first
    fix = f'drop the alias "{other.name}" of "{aliased.name}"'
    if not aliased.has_default and sides.proposed_reads:
        fix += f", and add {default_member(aliased)} to it"
    return Reason("HW101", message, fix, second.pointer, other.pointer)


def unreached_alias(
    sides: Sides, mine: Field, other: Field, reader: Record, writer: Record
) -> Reason:
    """Report a field alias in a record whose full name does not match."""
    message = f'{sides.cannot_read}: the alias "{other.name}" of "{mine.name}" counts only inside '
    message += f"{reader.name}, and the data is {writer.name}"
    fix = f'give {reader.name} "aliases": ["{writer.name}"], or keep the namespace'
    if not sides.proposed_reads:
        fix = f"keep the namespace of {reader.name}: a consumer cannot learn of a later name"
    return Reason("HW108", message, fix, mine.pointer, other.pointer)


def alias_in_use(sides: Sides, mine: Named, other: Named) -> Reason:
    """Report a type alias that another type of the reader matches as well."""
    message = f"{sides.cannot_read}: {mine.name} has the alias {other.name}, so that every "
    message += f"{other.name} in the data is taken for it, and another type answers to it"
    fix = f'remove the alias "{other.name}" from {mine.name}'
    return Reason("HW107", message, fix, f"{mine.pointer}/aliases", f"{other.pointer}/name")


def missing_branch(sides: Sides, reader: Union, writer: Schema) -> Reason:
    """Report a type that no branch of the reader's union takes."""
    what = "a null" if writer.kind == "null" else f"a value of type {type_name(writer)}"
    message = (
        f"{sides.cannot_read}: it can hold {what}, and {type_name(reader)} {sides.here} has no "
        "branch for it"
    )
    fix = "keep that branch in the union"
    if not sides.proposed_reads:
        fix = "do not add it to the union, because consumers in use cannot read it"
        if writer.kind != "null":
            fix += f"; {new_field_of(writer)}"
    return Reason("HW006", message, fix, reader.pointer, writer.pointer)


def ambiguous_branch(sides: Sides, reader: Union, writer: Named, rivals: int) -> Reason:
    """Report branches with one simple name: readers disagree on which is meant."""
    message = f"{sides.cannot_read} reliably: the union holds {rivals} types called "
    message += f'"{simple_name(writer.name)}", and which of them takes {writer.name} is left to '
    message += "the reader's library"
    fix = "give the types in one union different simple names, and each renamed type its old full "
    fix += "name as an alias"
    if not sides.proposed_reads:
        fix = f'write no type called "{simple_name(writer.name)}" into this union: consumers in '
        fix += "use cannot tell such types apart"
    return Reason("HW102", message, fix, reader.pointer, writer.pointer)


def moved_branch(sides: Sides, branch: Named, writer: Named) -> Reason:
    """Report an enum or fixed in another namespace, inside a union."""
    message = (
        f"{sides.cannot_read} with every library: the {writer.kind} is {writer.name} there, and "
        f"inside a union decoders look for {branch.name} by its full name"
    )
    fix = f'give {branch.name} "aliases": ["{writer.name}"], or keep the namespace'
    if not sides.proposed_reads:
        fix = f"keep the namespace of {branch.name}: a consumer cannot learn of a later name"
    return Reason("HW109", message, fix, f"{branch.pointer}/name", f"{writer.pointer}/name")
