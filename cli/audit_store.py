"""The audit store as commands open it: up to date with the audit topic.

Rules: a question leaves nothing behind. If a reconciler keeps a store (`headworks up` or
`headworks audit run`), the command brings that store up to date. Otherwise it reads the whole topic
into a temporary store.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headworks._cli.broker_address import bootstrap_servers, cluster_metadata
from headworks._cli.options import BootstrapOption, RegistryOption, StoreOption, ZooKeeperOption
from headworks._cli.server_options import make_data_dir
from headworks._settings import resolve, resolve_optional

if TYPE_CHECKING:
    from headworks._audit.store import AuditStore


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Where the audit is kept, and the broker and registry that it reads."""

    store: StoreOption = None
    bootstrap: BootstrapOption = None
    zookeeper: ZooKeeperOption = None
    registry: RegistryOption = None

    @property
    def servers(self) -> str:
        """The bootstrap servers, HOST:PORT[,..]."""
        return bootstrap_servers(self.bootstrap, self.zookeeper)

    @property
    def registry_url(self) -> str:
        """The URL of the registry, from the option or the setting."""
        return resolve("registry", self.registry)

    @property
    def store_url(self) -> str:
        """The store of the option or the setting, or audit.db in the data folder."""
        found = resolve_optional("audit_store", self.store)
        return found or f"sqlite:///{(make_data_dir() / 'audit.db').resolve()}"

    @contextmanager
    def reconciled_store(self) -> Iterator[AuditStore]:
        """Open the store with everything that the audit topic holds now.

        Raises UnreachableError with the reason if no broker answers.
        """
        from headworks._audit.reconciler import Reconciler
        from headworks._audit.store import AuditStore

        servers, registry = self.servers, self.registry_url
        cluster_metadata(servers)
        with tempfile.TemporaryDirectory(prefix="headworks-audit-") as folder:
            url = existing_store_url(self.store) or f"sqlite:///{folder}/audit.db"
            opened = AuditStore(url, whole_check=False)
            try:
                with Reconciler(servers, registry, opened) as reconciler:
                    reconciler.settle()
                yield opened
            finally:
                opened.close()


def existing_store_url(store: str | None, data_dir: str | None = None) -> str | None:
    """Return the URL of the store, or None if no reconciler keeps one."""
    found = resolve_optional("audit_store", store)
    if found is not None:
        return found
    file = Path(resolve("data_dir", data_dir)) / "audit.db"
    return f"sqlite:///{file.resolve()}" if file.exists() else None
