"""The thresholds by which findings, pages, and metrics judge: one set for each store.

Rules: the reconciler that keeps a store writes its thresholds there, and every reader uses them. A
store without any has the defaults.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sqlalchemy import delete, insert, select

from headworks._audit.store import AuditStore, tables


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits of a finding: a share of 1, and times in milliseconds."""

    sla: float = 0.999
    complete_within_ms: int = 1_800_000
    silent_after_ms: int = 1_800_000
    max_skew_ms: int = 60_000


def save_thresholds(store: AuditStore, thresholds: Thresholds) -> None:
    """Write the thresholds of the store."""
    _put(store, tables.THRESHOLDS, json.dumps(asdict(thresholds), sort_keys=True))


def stored_thresholds(store: AuditStore) -> Thresholds:
    """Return the thresholds of the store."""
    found = _get(store, tables.THRESHOLDS)
    return Thresholds() if found is None else Thresholds(**json.loads(found))


def save_check(store: AuditStore, now: int) -> None:
    """Write that the reconciler has checked the store at `now`, in ms."""
    _put(store, tables.CHECKED, str(now))


def checked_at(store: AuditStore) -> int | None:
    """Return when a reconciler last checked the store, in ms; None if none keeps it."""
    found = _get(store, tables.CHECKED)
    return None if found is None else int(found)


def _put(store: AuditStore, name: str, value: str) -> None:
    facts = tables.facts
    with store.write() as connection:
        connection.execute(delete(facts).where(facts.c.name == name))
        connection.execute(insert(facts).values(name=name, value=value))


def _get(store: AuditStore, name: str) -> str | None:
    with store.read() as connection:
        return connection.scalar(select(tables.facts.c.value).where(tables.facts.c.name == name))
