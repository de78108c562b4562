"""How far the counts of a store reach, and since when they have no hole.

Rules:

- A hole is a part of the counts that the store lacks. These are messages that the audit topic lost
  before they were read, damaged or unreadable ones, the beginning of a topic that retention has
  cut, and uses that expired. A use of a schema may have been in a hole, so nothing is concluded
  from a time before it.
- A reconciler that reads a backlog is at work, and not up to date: `read_until` is when the end of
  the topic was asked for to which everything was read.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select

from headworks._audit.store import tables
from headworks._audit.store.database import AuditStore


def note_hole(connection: Connection, at: int) -> None:
    """Write that counts from before `at` are missing, in ms since 1970."""
    _raise_to(connection, tables.HOLE, at)


def add_missed(connection: Connection, messages: int) -> None:
    """Add to the number of messages that were lost before they were read."""
    if not messages:
        return
    facts = tables.facts
    before = _number(connection, tables.MISSED)
    connection.execute(delete(facts).where(facts.c.name == tables.MISSED))
    connection.execute(insert(facts).values(name=tables.MISSED, value=str(before + messages)))


def forget_unreadable(connection: Connection) -> None:
    """Count the unreadable messages of a topic that is gone as missed: their places come again."""
    found = connection.scalar(select(func.count()).select_from(tables.unreadable))
    connection.execute(delete(tables.unreadable))
    add_missed(connection, found or 0)


def last_hole(store: AuditStore) -> int:
    """Return the time after which no counts are missing, in ms since 1970; 0: there is no hole."""
    with store.read() as connection:
        return _number(connection, tables.HOLE)


def save_read_until(store: AuditStore, at: int) -> None:
    """Write that the store holds everything that was in the audit topic at `at`, in ms."""
    with store.write() as connection:
        _raise_to(connection, tables.READ_UNTIL, at)


def read_until(store: AuditStore) -> int:
    """Return the time up to which a reconciler that keeps the store has read, in ms; 0: none."""
    with store.read() as connection:
        return _number(connection, tables.READ_UNTIL)


def _number(connection: Connection, name: str) -> int:
    facts = tables.facts
    return int(connection.scalar(select(facts.c.value).where(facts.c.name == name)) or 0)


def _raise_to(connection: Connection, name: str, at: int) -> None:
    if at <= _number(connection, name):
        return
    facts = tables.facts
    connection.execute(delete(facts).where(facts.c.name == name))
    connection.execute(insert(facts).values(name=name, value=str(at)))
