"""A registry's store from the intact rows of a damaged file.

Rules:

- No id is assigned again: a context whose row is lost skips ids above every one that is known. If
  the latest transactions are lost, every context skips ids.
- A schema is kept with all its references or not at all: its digest tells.
- A version whose schema is lost is removed. It can be registered again under its id and number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select, update

from headworks._registry.store import tables
from headworks._registry.store.database import RegistryStore
from headworks._registry.store.schemas import schema_by_id
from headworks._server.checked_sqlite.commit_counter import required_commits
from headworks._server.checked_sqlite.salvage import SalvagedRows, salvage
from headworks._server.database import sqlite_file
from headworks._subject import Subject
from headworks.errors import UsageError

_SKIPPED_IDS = 1000


@dataclass(slots=True)
class SalvagedRegistry:
    """The intact rows, and the versions that have lost their schema."""

    rows: SalvagedRows = field(default_factory=SalvagedRows)
    lost_versions: list[str] = field(default_factory=list)


def salvage_registry(store: str) -> SalvagedRegistry:
    """Replace the file of a store by one with its intact rows; UsageError if there are none."""
    found, file = SalvagedRegistry(), sqlite_file(store)

    def make(path: Path) -> None:
        RegistryStore(f"sqlite:///{path}").close()

    def mend(path: Path, rows: SalvagedRows) -> None:
        if not rows.rows[tables.schemas.name]:
            raise UsageError(
                f"{store} holds no intact schema",
                fix="restore it from a copy (docs/backup.md). An empty registry would assign the"
                " ids again",
            )
        opened = RegistryStore(f"sqlite:///{path}")
        lost_commits = required_commits(file) - opened.revision()
        with opened.write() as connection:
            _remove_incomplete(connection)
            found.lost_versions = _remove_without_schema(connection)
            _skip_lost_ids(connection)
            if lost_commits > 0:  # each of them may have registered a schema
                last, skipped = tables.contexts.c.last_id, max(lost_commits, _SKIPPED_IDS)
                connection.execute(update(tables.contexts).values(last_id=last + skipped))
        opened.close()

    found.rows = salvage(file, make, mend, fresh=(tables.migrations.name,))
    return found


def skip_ids(store: str, count: int) -> None:
    """Let every context skip `count` ids."""
    opened = RegistryStore(store)
    with opened.write() as connection:
        last = tables.contexts.c.last_id
        connection.execute(update(tables.contexts).values(last_id=last + count))
    opened.close()


def _remove_incomplete(connection: Connection) -> None:
    """Remove the schemas that have lost a reference, and the references without a schema."""
    s, r = tables.schemas.c, tables.references.c
    for context, schema_id, digest in connection.execute(select(s.context, s.id, s.digest)).all():
        stored = schema_by_id(connection, context, schema_id)
        if stored is None or stored.definition.digest != digest:
            one = (r.context == context) & (r.schema_id == schema_id)
            connection.execute(delete(tables.references).where(one))
            connection.execute(
                delete(tables.schemas).where((s.context == context) & (s.id == schema_id))
            )
    known = select(s.id).where((s.context == r.context) & (s.id == r.schema_id)).exists()
    connection.execute(delete(tables.references).where(~known))


def _remove_without_schema(connection: Connection) -> list[str]:
    s, v = tables.schemas.c, tables.versions.c
    known = select(s.id).where((s.context == v.context) & (s.id == v.schema_id)).exists()
    lost = connection.execute(
        select(v.context, v.subject, v.version, v.schema_id).where(~known).order_by(v.schema_id)
    ).all()
    connection.execute(delete(tables.versions).where(~known))
    return [f"{Subject(row[0], row[1])} version {row[2]}, id {row[3]}" for row in lost]


def _skip_lost_ids(connection: Connection) -> None:
    c, s, a = tables.contexts.c, tables.schemas.c, tables.audit.c
    highest: defaultdict[str, int] = defaultdict(int)
    for context, schema_id in connection.execute(select(s.context, s.id)):
        highest[context] = max(highest[context], schema_id)
    for subject, schema_id in connection.execute(select(a.subject, a.schema_id)):
        context = Subject.parse(subject).context
        highest[context] = max(highest[context], schema_id or 0)
    known = set(connection.scalars(select(c.name)))
    for context, last in highest.items():
        if context not in known:
            row = {"name": context, "last_id": last + _SKIPPED_IDS}
            connection.execute(insert(tables.contexts).values(row))
