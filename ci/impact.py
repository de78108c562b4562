"""The impact of a change downstream: the DDL of its table, and the consumers of its topic.

Rules: the mapping from Avro to columns is the loader's own (`hadoop_loader`), so that the shown DDL
is what a load runs. Only modules of the loader that need no installed package are used. The impact
never decides the verdict. A schema without columns gets a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from hadoop_loader._tables.columns import (
    METADATA_COLUMNS,
    StructField,
    quoted,
    table_columns,
    table_name,
)
from hadoop_loader._tables.hive_catalog import column_list, create_table
from hadoop_loader._tables.widening import widen
from headworks._ci.verdict import DownstreamConsumer, Impact
from headworks.errors import HeadworksError, IncompatibleError
from headworks.schema import Record, Schema, governance_of


def impact_of(
    topic: str, new: Schema, history: Sequence[Schema], consumers: Sequence[DownstreamConsumer]
) -> Impact:
    """Return the impact of `new` on the table of `history` (oldest first) and its consumers."""
    table = table_name(topic)
    owner = governance_of(new).owner
    try:
        ddl, note = _statements(quoted(table), new, history)
    except HeadworksError as error:
        ddl, note = (), f"no table can follow: {error.message}"
    return Impact(table, ddl, note, owner, tuple(consumers))


def _statements(
    table: str, new: Schema, history: Sequence[Schema]
) -> tuple[tuple[str, ...], str | None]:
    wanted = table_columns(new)
    if not history:
        doc = new.doc if isinstance(new, Record) else None
        return (create_table(table, (*wanted, *METADATA_COLUMNS), None, doc, {}),), None
    before = reduce(widen, map(table_columns, history[1:]), table_columns(history[0]))
    known = {column.name.lower(): column for column in before}
    after = _followed(known, wanted)
    added = [column for column in after if column.name.lower() not in known]
    ddl = [f"ALTER TABLE {table} ADD COLUMNS ({column_list(added)})"] if added else []
    for column in after:
        old = known.get(column.name.lower())
        if old is not None and old != column:
            ddl.append(f"ALTER TABLE {table} CHANGE COLUMN {quoted(old.name)} {_one(column)}")
    return tuple(ddl), _left_over(history[-1], wanted)


def _followed(
    known: Mapping[str, StructField], wanted: Sequence[StructField]
) -> tuple[StructField, ...]:
    """Return the widened columns; IncompatibleError with each column that no table can follow.

    `known`: the columns of the table, by name in lower case.
    """
    reasons = []
    for column in wanted:
        before = known.get(column.name.lower())
        try:
            widen([] if before is None else [before], [column])
        except IncompatibleError as error:
            reasons.append(error.message)
    if reasons:
        raise IncompatibleError("; ".join(reasons))
    return widen([*known.values()], wanted)


def _one(column: StructField) -> str:
    return column_list([column])


def _left_over(last: Schema, wanted: Sequence[StructField]) -> str | None:
    """Return a note on the columns that the schema no longer has: files keep them, views do not."""
    kept = {column.name.lower() for column in wanted}
    gone = [column.name for column in table_columns(last) if column.name.lower() not in kept]
    if not gone:
        return None
    names = ", ".join(gone)
    return f"{names}: no longer in the view; the table over the files keeps it, with its old rows"
