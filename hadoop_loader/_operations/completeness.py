"""How far each table is complete, by the audit: marked on the tables and in a table of marks.

Rules:

- A mark says that of every window before it no more than 0.1 % is missing in the table, as far as
  producers have reported; it goes back when late messages reopen a window of the last day.
- While partitions of a topic are left out for want of a leader, its mark does not go forward.
- Marks are kept in the warehouse, so that each load judges what is new and not all of history.
- The table of marks is a view over constants: replacing it is one step, and no reader sees half.
- A table's own property moves by the hour, not by the load: with hundreds of tables the metastore
  would be busy with little else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.roll_forward import Catalog
from hadoop_loader._storage.filesystem import AnyPath, write_atomically
from hadoop_loader._tables.columns import STRING, TIMESTAMP, StructField
from hadoop_loader._tables.sql_literals import text
from headworks._audit_counting import AUDIT_TOPIC, window_of
from headworks.errors import UnreachableError

__all__ = [
    "MARKS_TABLE",
    "PROPERTY",
    "AuditLookup",
    "CompletenessMarks",
    "WindowSpan",
    "audit_lookup",
]

MARKS_TABLE = "headworks_completeness"
PROPERTY = "headworks.complete.until"
_COLUMNS = (
    StructField("topic", STRING, "topic of the table"),
    StructField("table_name", STRING, "the table"),
    StructField("complete_until", TIMESTAMP, "of every window before it at least 99.9 % is there"),
    StructField("checked_at", TIMESTAMP, "when the audit was asked"),
)
_GRACE_MS = 60_000
_LOOK_BACK_MS = 86_400_000
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """Windows to be judged: those that start in [since, until); since None: from the first."""

    since: int | None
    until: int


# How far topics are complete within their spans, without those that no producer counts.
AuditLookup = Callable[[Mapping[str, WindowSpan]], Mapping[str, int]]


def audit_lookup(store: str, bootstrap: str, registry: str) -> AuditLookup:
    """Ask the audit's store at a URL, brought up to date with the audit topic first."""

    def judge(spans: Mapping[str, WindowSpan]) -> Mapping[str, int]:
        from sqlalchemy.exc import SQLAlchemyError

        from headworks._audit import queries
        from headworks._audit.reconciler import Reconciler
        from headworks._audit.store import AuditStore

        opened = AuditStore(store)
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
                fix="see to the database that the setting audit_store names",
            ) from None
        finally:
            opened.close()
        return {topic: one.until for topic, one in found.items() if one.counted}

    return judge


class CompletenessMarks:
    """Marks the tables of a warehouse; `file` keeps the marks between loads."""

    def __init__(
        self,
        file: AnyPath,
        catalog: Catalog,
        judge: AuditLookup,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._catalog = catalog
        self._judge = judge
        self._now = now

    def __call__(self, commit: Commit, held: Container[str] = ()) -> Mapping[str, int]:
        """Judge the tables of `commit` and mark them; each counted topic's mark.

        The marks of the topics in `held` do not go forward.
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
            topic: min(mark, known[topic][0]) if topic in held else mark
            for topic, mark in self._judge(spans).items()
            if topic in known or topic not in held
        }
        told = {topic: known[topic][1] for topic in marks if topic in known}
        for topic in sorted(marks):
            if _must_publish(marks[topic], told.get(topic)):
                held = {PROPERTY: _instant(marks[topic])}
                self._catalog.set_properties(commit.tables[topic].files_table, held)
                told[topic] = marks[topic]
        if marks:
            tables = {topic: commit.tables[topic].table for topic in marks}
            self._catalog.put_view(
                MARKS_TABLE, _COLUMNS, _query(marks, tables, now), _VIEW_COMMENT, {}
            )
        self._write({topic: [marks[topic], told[topic]] for topic in marks})
        return marks

    def _read(self) -> dict[str, list[int]]:
        """By topic: the mark, and the mark that the table's property has."""
        try:
            return dict(json.loads(self._file.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return {}  # without them all of history is judged again, and comes to the same

    def _write(self, marks: Mapping[str, list[int]]) -> None:
        write_atomically(self._file, json.dumps(marks, sort_keys=True), durable=False)


_VIEW_COMMENT = "How far each table is complete, by the audit trail."


def _since(known: list[int] | None) -> int | None:
    return None if known is None else known[0] - _LOOK_BACK_MS


def _must_publish(mark: int, told: int | None) -> bool:
    return told is None or mark < told or mark >= told + _HOUR_MS


def _query(marks: Mapping[str, int], tables: Mapping[str, str], now: int) -> str:
    rows = ", ".join(
        f"({text(topic)}, {text(tables[topic])}, "
        f"TIMESTAMP '{_instant(mark)}', TIMESTAMP '{_instant(now)}')"
        for topic, mark in sorted(marks.items())
    )
    names = ", ".join(column.name for column in _COLUMNS)
    return f"SELECT * FROM VALUES {rows} AS marks ({names})"


def _instant(millis: int) -> str:
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
