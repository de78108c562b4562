"""The configs of groups in the coordination store of a single broker.

Rule: every change is one transaction of the store, and on disk when the call returns.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from headworks._broker.coordination.interface import ConfigChange

TABLE = """
CREATE TABLE IF NOT EXISTS group_configs (
    member_group TEXT PRIMARY KEY, configs TEXT NOT NULL) WITHOUT ROWID;
"""


class LocalGroupConfigs:
    """The configs, which are in memory too. `transaction` runs one transaction of the store."""

    def __init__(
        self,
        db: sqlite3.Connection,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        rows = db.execute("SELECT member_group, configs FROM group_configs")
        self.all: Mapping[str, Mapping[str, str]] = {
            group: json.loads(configs) for group, configs in rows
        }  # by group, those with own configs; replaced, not changed
        self._transaction = transaction

    def change(self, group: str, change: ConfigChange) -> None:
        """Change the configs of a group. Raises what `change` raises, and StoreFailureError."""
        configs = dict(change(self.all.get(group, {})))
        others = {name: own for name, own in self.all.items() if name != group}
        with self._transaction() as db:
            if configs:
                row = group, json.dumps(configs)
                db.execute("INSERT OR REPLACE INTO group_configs VALUES (?, ?)", row)
            else:
                db.execute("DELETE FROM group_configs WHERE member_group = ?", (group,))
        self.all = {**others, group: configs} if configs else others
