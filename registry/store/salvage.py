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
            found.lost_versions = _remove_incomplete(connection)
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


def _remove_incomplete(connection: Connection) -> list[str]:
    """Remove the schemas that have lost a reference, and all that has lost its schema.

    Return the removed versions. They go first: a schema to which one refers cannot be deleted.
    """
    s, r, v = tables.schemas.c, tables.references.c, tables.versions.c
    intact = set()
    for context, schema_id, digest in connection.execute(select(s.context, s.id, s.digest)).all():
        stored = schema_by_id(connection, context, schema_id)
        if stored is not None and stored.definition.digest == digest:
            intact.add((context, schema_id))
    lost = []
    listed = select(v.context, v.subject, v.version, v.schema_id).order_by(v.schema_id)
    for context, subject, version, schema_id in connection.execute(listed).all():
        if (context, schema_id) not in intact:
            one = (v.context == context) & (v.subject == subject) & (v.version == version)
            connection.execute(delete(tables.versions).where(one))
            lost.append(f"{Subject(context, subject)} version {version}, id {schema_id}")
    for table, columns in (
        (tables.references, (r.context, r.schema_id)),
        (tables.schemas, (s.context, s.id)),
    ):
        kept = {tuple(row) for row in connection.execute(select(*columns))}
        for context, schema_id in kept - intact:
            one = (columns[0] == context) & (columns[1] == schema_id)
            connection.execute(delete(table).where(one))
    return lost


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
