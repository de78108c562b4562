"""Where a warehouse is and what it reads: the one value that the loader is configured with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from hadoop_loader._commit.policy import Policy
from hadoop_loader._storage.filesystem import AnyPath, parse_path
from headworks.errors import UsageError

__all__ = ["WarehouseConfig"]


@dataclass(frozen=True, slots=True)
class WarehouseConfig:
    """A warehouse on this machine.

    `data_dir` holds the metastore, `warehouse` (default: in data_dir) the tables and the commit
    log. Users find their tables in `database`; the files' own tables are in `<database>_files`
    (`headworks_files` for "default"). `tasks`: bins of a load (default: Spark's parallelism).
    `metastore_uri`: a Hive metastore (thrift://HOST:PORT) instead of the embedded one.
    `policy`: which topics, which partitions, how much that is bad.
    `audit_store`: where the audit is reconciled; tables are marked with how far they are complete.
    `long_queries`: the session will serve them; it starts more slowly and scans faster.
    """

    data_dir: Path
    bootstrap: str
    registry: str
    warehouse: str | None = None
    database: str = "default"
    master: str = "local[2,3]"
    metastore_uri: str | None = None
    tasks: int | None = None
    policy: Policy = field(default_factory=Policy)
    audit_store: str | None = None
    long_queries: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.database):
            raise UsageError(
                f"Hive has no database {self.database!r}: names are of letters, digits and _",
                fix="give --database (or the setting `database`) such a name",
            )

    @property
    def root(self) -> AnyPath:
        """The folder of the tables, absolute; UsageError if it is where no warehouse can be."""
        return parse_path(self.warehouse or str(Path(self.data_dir) / "warehouse"))

    @property
    def metastore(self) -> Path:
        """The folder of the embedded metastore, absolute."""
        return Path(self.data_dir).resolve() / "metastore"

    @property
    def files_database(self) -> str:
        """The database of the tables that point at the files."""
        return "headworks_files" if self.database == "default" else f"{self.database}_files"
