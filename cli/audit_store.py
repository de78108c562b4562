"""The audit's store, as commands open it: caught up with the audit topic, or made for one answer.

Rules: a question leaves nothing behind. Where a reconciler keeps a store (`headworks up`,
`headworks audit run`), the store is brought up to date and asked; where none does, the whole topic
is read into a store that is gone with the command.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headworks._settings import resolve, resolve_optional
from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks._audit.store import AuditStore

__all__ = ["existing_store_url", "reconciled_store", "store_url"]


def store_url(store: str | None) -> str:
    """Where the store is: flag, setting, or audit.db in the data folder (which is made)."""
    found = resolve_optional("audit_store", store)
    if found is not None:
        return found
    folder = Path(resolve("data_dir"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the data folder {folder}: {error.strerror}",
            fix="set data_dir, or name the store with --store",
        ) from None
    return f"sqlite:///{(folder / 'audit.db').resolve()}"


def existing_store_url(store: str | None, data_dir: str | None = None) -> str | None:
    """Where the store is, or None if nobody keeps one."""
    found = resolve_optional("audit_store", store)
    if found is not None:
        return found
    file = Path(resolve("data_dir", data_dir)) / "audit.db"
    return f"sqlite:///{file.resolve()}" if file.exists() else None


@contextmanager
def reconciled_store(store: str | None, bootstrap: str, registry: str) -> Iterator[AuditStore]:
    """The store, with everything that the audit topic holds now."""
    from headworks._audit.reconciler import Reconciler
    from headworks._audit.store import AuditStore

    with tempfile.TemporaryDirectory(prefix="headworks-audit-") as folder:
        url = existing_store_url(store) or f"sqlite:///{folder}/audit.db"
        opened = AuditStore(url)
        try:
            with Reconciler(bootstrap, registry, opened) as reconciler:
                reconciler.catch_up()
            yield opened
        finally:
            opened.close()
