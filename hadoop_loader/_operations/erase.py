"""Erasure: the rows of one person, or of any one value of a field, leave every table.

Rules:

- Every table with the field is looked at, in whatever schema its files are. Quarantined messages of
  these topics go too, if the value is their key.
- A partition with such rows gets a new folder without them, as in a rewind. The old folder is
  removed after the usual grace time.
- The commit counts the rows that left, so `audit verify` expects the remaining ones. No record of
  the loader holds the value itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_record import TableState, TopicCommit
from hadoop_loader._commit.table_history import projections_of, table_history
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._tables.columns import (
    BIGINT,
    BINARY,
    INT,
    STRING,
    ColumnType,
    StructColumn,
    StructField,
)
from hadoop_loader._tables.old_rows import file_columns, value_type
from hadoop_loader._tasks.rewrite_task import ErasedRows, RewriteResult, RewriteTask
from headworks.errors import UsageError
from headworks.schema import Record, Schema

_CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=\s*(?:'((?:[^']|'')*)'|(-?\d+))\s*")
_COMPARABLE = (INT, BIGINT, STRING, BINARY)


@dataclass(frozen=True, slots=True)
class EraseCondition:
    """A field (a path into structs), and the value of the rows to erase, as text."""

    path: tuple[str, ...]
    value: str

    @classmethod
    def parse(cls, text: str) -> EraseCondition:
        """Return the condition in `FIELD = 42` or `FIELD = 'text'`; UsageError for others."""
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text!r} is not a condition that erasure takes",
                fix="give one field and one value: user_id = 42, or user.name = 'Ann'",
            )
        value = found[3] if found[2] is None else found[2].replace("''", "'")
        return cls(tuple(found[1].split(".")), value)


@dataclass(frozen=True, slots=True)
class EraseReport:
    """The result of an erasure."""

    number: int = 0  # of its commit; 0: there was nothing to erase
    searched: tuple[str, ...] = ()  # topics whose tables have the field
    rows: dict[str, int] = field(default_factory=dict)  # erased rows, by topic
    quarantined: dict[str, int] = field(default_factory=dict)  # erased messages, by topic


class Erase:
    """One erasure."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)

    def run(self, condition: EraseCondition) -> EraseReport:
        """Erase rows from every table that has the field.

        Raises UsageError if no table has it, and FindingsError if a table is held.
        """
        last = self._transaction.recover()
        tables = last.tables if last else {}
        found = {t: s for t, s in tables.items() if self._has(s, condition)}
        if not found:
            raise UsageError(
                f"no table has a field {'.'.join(condition.path)} of whole numbers, text, or bytes",
                fix="`headworks sql 'DESCRIBE TABLE'` shows the fields of a table",
            )
        self._transaction.failures.require(
            *(state.files_table for state in found.values()), QUARANTINE_TABLE
        )
        builder = self._transaction.new_commit(last, "erase")
        topics = tuple(sorted(found))
        with self._transaction.phase("rewrite"):
            jobs = self._jobs(builder, found, condition)
            each = self._context.jobs.rewrite(jobs) if jobs else []
        done = [r for r in each if r.dropped]
        if not done:
            self._transaction.remove_staging(last)
            return EraseReport(searched=topics)
        rows = self._take_in(builder, found, done)
        quarantined: dict[str, int] = {}
        for r in done:
            for topic, n in r.topics.items():
                quarantined[topic] = quarantined.get(topic, 0) + n
        for topic in sorted({*rows, *quarantined}):
            good, bad = rows.get(topic, 0), quarantined.get(topic, 0)
            now = self._transaction.now_ms()
            builder.count(topic, _gone(good, bad), now, removed=good + bad)
        self._context.on_step("staged")
        commit = self._transaction.commit(builder)
        self._transaction.failures.require(*(r.table for r in done))
        return EraseReport(commit.number, topics, rows, quarantined)

    def _has(self, state: TableState, condition: EraseCondition) -> bool:
        columns = file_columns(projections_of(state, self._context.log))
        return _type_at(columns, condition.path) in _COMPARABLE

    def _jobs(
        self, builder: CommitBuilder, found: dict[str, TableState], condition: EraseCondition
    ) -> list[RewriteTask]:
        staging = self._transaction.staging(builder.number)
        number, log = builder.number, self._context.log
        jobs = [
            RewriteTask(
                number,
                topic,
                state.files_table,
                day,
                tuple(builder.sources(state.files_table, day)),
                staging,
                erased=ErasedRows(self._paths(state, condition), condition.value),
                history=table_history(state, log, number),
            )
            for topic, state in found.items()
            for day in builder.days(state.files_table)
        ]
        keys = ErasedRows((("key",),), condition.value, tuple(sorted(found)))
        return jobs + [
            RewriteTask(
                number,
                "",
                QUARANTINE_TABLE,
                day,
                tuple(builder.sources(QUARANTINE_TABLE, day)),
                staging,
                erased=keys,
                columns=QUARANTINE_COLUMNS,
            )
            for day in builder.days(QUARANTINE_TABLE)
        ]

    def _paths(self, state: TableState, condition: EraseCondition) -> tuple[tuple[str, ...], ...]:
        """Return the condition's path, and what it is called in the latest schema."""
        latest = projections_of(state, self._context.log)[-1].schema
        return condition.path, _renamed(latest, condition.path)

    def _take_in(
        self, builder: CommitBuilder, found: dict[str, TableState], done: list[RewriteResult]
    ) -> dict[str, int]:
        """Relocate the rewritten partitions; return the erased rows by topic."""
        names = {state.files_table: topic for topic, state in found.items()}
        rows: dict[str, int] = {}
        for r in done:
            if topic := names.get(r.table):
                rows[topic] = rows.get(topic, 0) + sum(r.dropped.values())
                before = len(builder.sources(r.table, r.day))
                builder.add_file_count(topic, len(r.files) - before)
            builder.relocate(r.table, r.day)
            builder.files.extend(r.files)
        return rows


def _gone(rows: int, quarantined: int) -> TopicCommit:
    """Return the counts of a topic that lost rows; its audit windows stay as they were."""
    return TopicCommit({}, -rows, 0, -quarantined, 0, 0, {}, {}, None, None)


def _renamed(schema: Schema, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path with each name that is an alias replaced by its field's name."""
    first, *rest = path
    record = value_type(schema)
    for f in record.fields if isinstance(record, Record) else ():
        if first.lower() in (f.name.lower(), *(alias.lower() for alias in f.aliases)):
            return (f.name, *_renamed(f.type, tuple(rest))) if rest else (f.name,)
    return path


def _type_at(columns: tuple[StructField, ...], path: tuple[str, ...]) -> ColumnType | None:
    """Return the type of a column, or of a member of structs; None if there is none."""
    first, *rest = path
    found = next((c.type for c in columns if c.name.lower() == first.lower()), None)
    if not rest or found is None:
        return found
    return _type_at(found.fields, tuple(rest)) if isinstance(found, StructColumn) else None
