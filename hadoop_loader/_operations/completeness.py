"""Completeness marks: how far each table is complete, according to the audit.

Rules:

- A mark promises, for every window before it, that at most 0.1 % of what producers have reported is
  missing in the table. It moves back if late messages reopen a window of the last day.
- A table whose properties cannot be set stops no other one: `failures` names it.
- While partitions of a topic have no leader, its mark does not advance.
- Marks are stored in the warehouse, so each load checks what is new instead of all history.
- The table of marks is a view over constants. Replacing it is atomic for readers.
- A mark in a table's properties advances by the hour, not with every load. With hundreds of tables,
  the metastore would otherwise do little else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from hadoop_loader._commit.catalog import Catalog
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.table_failures import TableFailures, table_error
from hadoop_loader._storage.filesystem import AnyPath, write_atomically
from hadoop_loader._tables.columns import MARKS_TABLE, STRING, TIMESTAMP, StructField
from hadoop_loader._tables.sql_literals import string_literal
from headworks._audit_counting import AUDIT_TOPIC, window_of
from headworks.errors import UnreachableError

PROPERTY = "headworks.complete.until"
MARKS_FILE = "complete.json"
_COLUMNS = (
    StructField("topic", STRING, "topic of the table"),
    StructField("table_name", STRING, "the table"),
    StructField("complete_until", TIMESTAMP, "of every window before it at least 99.9 % is there"),
    StructField("checked_at", TIMESTAMP, "when the audit was asked"),
)
_GRACE_MS = 60_000
_LOOK_BACK_MS = 86_400_000
_HOUR_MS = 3_600_000
_UNPUBLISHED_MS = -1


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """The windows that start in [since, until); `since` None: from the first one."""

    since: int | None
    until: int


# Returns for each topic, in ms, how far it is complete; topics that nobody counts are omitted.
AuditLookup = Callable[[Mapping[str, WindowSpan]], Mapping[str, int]]


def audit_lookup(store: str, bootstrap: str, registry: str) -> AuditLookup:
    """Return a lookup in the audit's store, which first reads the audit topic to its end."""

    def lookup(spans: Mapping[str, WindowSpan]) -> Mapping[str, int]:
        from sqlalchemy.exc import SQLAlchemyError

        from headworks._audit import queries
        from headworks._audit.reconciler import Reconciler
        from headworks._audit.store import AuditStore

        opened = AuditStore(store, whole_check=False)
        try:
            with Reconciler(bootstrap, registry, opened) as reconciler:
                reconciler.catch_up()
            found = {
                topic: queries.complete_until(opened, topic, since=span.since, until=span.until)
                for topic, span in spans.items()
            }
        except SQLAlchemyError as error:
            raise UnreachableError(
                f"the audit's store has gone away: {error.__cause__ or error}",
                fix="start the database that the setting audit_store names, or correct its address",
            ) from None
        finally:
            opened.close()
        return {topic: one.until for topic, one in found.items() if one.counted}

    return lookup


class CompletenessMarks:
    """Marks the tables of a warehouse; `file` stores the marks between loads."""

    def __init__(
        self,
        file: AnyPath,
        catalog: Catalog,
        lookup: AuditLookup,
        *,
        failures: TableFailures | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.failures = failures or TableFailures(table_error, catalog.check, {})
        self._file = file
        self._catalog = catalog
        self._lookup = lookup
        self._now = now

    def __call__(self, commit: Commit, leaderless: Container[str] = ()) -> Mapping[str, int]:
        """Mark the tables of `commit`, and return the mark of each counted topic in ms.

        The marks of topics in `leaderless` do not advance.
        """
        known = self._read()
        now = int(self._now() * 1000)
        until = window_of(now - _GRACE_MS)
        spans = {
            topic: WindowSpan(_since(known.get(topic)), until)
            for topic in commit.tables
            if topic != AUDIT_TOPIC
        }
        marks = {
            topic: min(mark, known[topic][0]) if topic in leaderless else mark
            for topic, mark in self._lookup(spans).items()
            if topic in known or topic not in leaderless
        }
        published = {
            topic: known[topic][1]
            for topic in marks
            if topic in known and known[topic][1] != _UNPUBLISHED_MS
        }
        for topic in sorted(marks):
            if _must_publish(marks[topic], published.get(topic)):
                properties = {PROPERTY: _instant(marks[topic])}
                table = commit.tables[topic].files_table
                if self.failures.attempt(
                    table, partial(self._catalog.set_properties, table, properties)
                ):
                    published[topic] = marks[topic]
        if marks:
            tables = {topic: commit.tables[topic].table for topic in marks}
            query = _query(marks, tables, now)
            put = partial(self._catalog.put_view, MARKS_TABLE, _COLUMNS, query, _VIEW_COMMENT, {})
            self.failures.attempt(MARKS_TABLE, put)
        # A mark that is in no table's properties is published by the next load.
        self._write({t: [marks[t], published.get(t, _UNPUBLISHED_MS)] for t in marks})
        return marks

    def _read(self) -> dict[str, list[int]]:
        """Return by topic: the mark, and the mark in the table's properties."""
        try:
            return dict(json.loads(self._file.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return {}  # then all history is checked again, with the same result

    def _write(self, marks: Mapping[str, list[int]]) -> None:
        write_atomically(self._file, json.dumps(marks, sort_keys=True), durable=False)


_VIEW_COMMENT = "How far each table is complete, by the audit trail."


def read_marks(state_folder: AnyPath) -> dict[str, int]:
    """Return how far each topic's table is complete, in ms, as the last load marked it."""
    try:
        known = json.loads((state_folder / MARKS_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return {topic: mark for topic, (mark, _) in known.items()}


def _since(known: list[int] | None) -> int | None:
    return None if known is None else known[0] - _LOOK_BACK_MS


def _must_publish(mark: int, published: int | None) -> bool:
    return published is None or not published <= mark < published + _HOUR_MS


def _query(marks: Mapping[str, int], tables: Mapping[str, str], now: int) -> str:
    rows = ", ".join(
        f"({string_literal(topic)}, {string_literal(tables[topic])}, "
        f"TIMESTAMP '{_instant(mark)}', TIMESTAMP '{_instant(now)}')"
        for topic, mark in sorted(marks.items())
    )
    names = ", ".join(column.name for column in _COLUMNS)
    return f"SELECT * FROM VALUES {rows} AS marks ({names})"


def _instant(millis: int) -> str:
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
