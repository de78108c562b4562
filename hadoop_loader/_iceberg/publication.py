"""The record of the published commits: one small file beside the commit log.

Rule: the file only saves work. If it is lost, or is of another catalog, every table is compared
with its files once, and then published as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from hadoop_loader._commit.log_files import read_json
from hadoop_loader._storage.filesystem import AnyPath, write_atomically
from headworks.errors import CorruptError


@dataclass(frozen=True, slots=True)
class Publication:
    """The last published commit, and the commit of each table's snapshot."""

    catalog: str  # its URL
    number: int = 0
    tables: Mapping[str, str] = field(default_factory=dict)  # the id of a commit, by Iceberg table

    @classmethod
    def read(cls, file: AnyPath, catalog: str) -> Publication:
        """Return what the file says of a catalog; nothing if it says nothing of it."""
        try:
            found = cls(**read_json(file))
        except (FileNotFoundError, CorruptError, TypeError):
            return cls(catalog)
        return found if found.catalog == catalog else cls(catalog)

    def write(self, file: AnyPath) -> None:
        """Replace the file."""
        body = {"catalog": self.catalog, "number": self.number, "tables": dict(self.tables)}
        write_atomically(file, json.dumps(body, sort_keys=True), durable=False)
