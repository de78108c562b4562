"""A snapshot of one Iceberg table, and a change that makes one, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hadoop_loader._iceberg.table_schema import TableSchema

COMMIT_PROPERTY = "headworks.commit"  # of a snapshot: the id of its commit


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """An Iceberg table as it is in the catalog."""

    snapshot: str  # the id of the commit of its current snapshot; empty if another tool made it
    declared: Mapping[int, Any]  # the defaults of its fields by id, as JSON; None if without
    with_defaults: bool  # its format has defaults


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A Parquet file of a table."""

    uri: str
    bytes: int
    day: str  # the value of the partition column: a day, or an hour of one


@dataclass(frozen=True, slots=True)
class TableChange:
    """A new snapshot: its files, and the schema that reads them."""

    table: str
    schema: TableSchema
    operation: str  # append, replace (the same rows in other files), or overwrite
    added: tuple[PublishedFile, ...]
    removed: tuple[str, ...]  # the folders whose files leave the table
    all_files: bool  # `added` are all files of the table: others leave it
    summary: Mapping[str, str]
    properties: Mapping[str, str] = field(default_factory=dict)
