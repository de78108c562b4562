"""The audit log: the author, the time, and the content of every change.

Rules: rows are added and read, never changed. A row is written in the transaction of its change, so
that every committed change has exactly one row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, insert, select

from headworks._registry.model.definition import JsonObject
from headworks._registry.store.tables import audit
from headworks._server.database import PreparedStatement

_COLUMNS = ("who", "at_ms", "action", "subject", "version", "schema_id", "detail")
# Not RETURNING: nobody asks for the number of a row.
NEW_AUDIT_ENTRY = insert(audit).inline().values({name: bindparam(name) for name in _COLUMNS})
ADD_AUDIT_ENTRY = PreparedStatement(NEW_AUDIT_ENTRY)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change; `subject` is "" for a global one, and `detail` depends on `action`."""

    action: str
    subject: str
    version: int | None = None
    schema_id: int | None = None
    detail: JsonObject = field(default_factory=dict)


def add_audit_entry(connection: Connection, change: AuditEntry, *, who: str, at_ms: int) -> None:
    """Append an entry inside the transaction of its change."""
    ADD_AUDIT_ENTRY.run(connection, audit_values(change, who=who, at_ms=at_ms))


def audit_values(change: AuditEntry, *, who: str, at_ms: int) -> dict[str, object]:
    """Return the values of an entry's row."""
    return {
        "who": who,
        "at_ms": at_ms,
        "action": change.action,
        "subject": change.subject,
        "version": change.version,
        "schema_id": change.schema_id,
        "detail": json.dumps(change.detail, ensure_ascii=False),
    }


def changes(
    connection: Connection, *, subject: str | None, after: int, limit: int
) -> list[dict[str, object]]:
    """Return at most `limit` changes after number `after`, oldest first."""
    statement = select(audit).where(audit.c.seq > after).order_by(audit.c.seq).limit(limit)
    if subject is not None:
        statement = statement.where(audit.c.subject == subject)
    return [
        {
            "seq": row.seq,
            "at": row.at_ms,
            "who": row.who,
            "action": row.action,
            "subject": row.subject,
            "version": row.version,
            "id": row.schema_id,
            "detail": json.loads(row.detail),
        }
        for row in connection.execute(statement)
    ]
