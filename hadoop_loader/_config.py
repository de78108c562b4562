"""The configuration of a warehouse: where it is, and what it reads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from hadoop_loader._commit.policy import Policy
from hadoop_loader._storage.filesystem import AnyPath, parse_path
from headworks.errors import UsageError

RECURSIVE_TYPES = ("refuse", "json")


@dataclass(frozen=True, slots=True)
class WarehouseConfig:
    """A warehouse and its sources; only the first three are required."""

    data_dir: Path  # holds the embedded metastore
    bootstrap: str  # addresses of brokers
    registry: str  # URL of the registry
    warehouse: str | None = None  # folder or URI of the tables and the commit log; in data_dir
    database: str = "default"  # where users find the tables; see also files_database
    master: str = "local[2,3]"  # of Spark
    metastore_uri: str | None = None  # thrift://HOST:PORT of a Hive metastore; None: embedded
    tasks: int | None = None  # tasks of a load at most; None: Spark's parallelism
    policy: Policy = field(default_factory=Policy)  # topics, partitions, and limits
    iceberg: str | None = None  # URL of an Iceberg catalog that commits are published to
    recursive_types: str = "refuse"  # one of RECURSIVE_TYPES: refused, or JSON text from there on
    masked_database: str | None = None  # the Hive database of masked views; None: there are none
    audit_store: str | None = None  # URL of the audit's store; None: no completeness marks
    long_queries: bool = False  # the session serves queries: it starts slower and scans faster

    def __post_init__(self) -> None:
        named = {"--database (or the setting `database`)": self.database}
        named["the setting `masked_database`"] = self.masked_database or "default_masked"
        for setting, name in named.items():
            if not re.fullmatch(r"[A-Za-z0-9_]+", name):
                raise UsageError(
                    f"Hive has no database {name!r}: names are of letters, digits and _",
                    fix=f"give {setting} such a name",
                )
        taken = {self.database.lower(), self.files_database.lower()}  # Hive ignores case
        if self.masked_database is not None and self.masked_database.lower() in taken:
            raise UsageError(
                f"masked views cannot be in database {self.masked_database}: it has the others",
                fix="give the setting `masked_database` a name of its own",
            )
        if self.recursive_types not in RECURSIVE_TYPES:
            raise UsageError(
                f"setting recursive_types has no value {self.recursive_types!r}",
                fix=f"use {' or '.join(RECURSIVE_TYPES)}",
            )

    @property
    def root(self) -> AnyPath:
        """The folder of the tables, absolute; UsageError if a warehouse cannot be there."""
        return parse_path(self.warehouse or str(Path(self.data_dir) / "warehouse"))

    @property
    def metastore(self) -> Path:
        """The folder of the embedded metastore, absolute."""
        return Path(self.data_dir).resolve() / "metastore"

    @property
    def files_database(self) -> str:
        """The database of the tables over the files."""
        return "headworks_files" if self.database == "default" else f"{self.database}_files"

    @property
    def iceberg_namespace(self) -> str:
        """The namespace of the Iceberg tables, which have the names of the views."""
        return "headworks_iceberg" if self.database == "default" else f"{self.database}_iceberg"

    @property
    def embedded(self) -> bool:
        """Whether the metastore is the embedded one."""
        return self.metastore_uri is None

    @property
    def recursive_json(self) -> bool:
        """Whether recursive types become JSON text."""
        return self.recursive_types == "json"
