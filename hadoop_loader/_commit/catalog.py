"""The metastore as commits see it: which changes there are, and that each can be repeated.

Rule: this is a protocol without SQL. `_tables.hive_catalog` writes the changes as statements for
Spark's metastore, knows its limits, and prepares it. Commits never import that module, so that they
run without Spark: tests apply them to a metastore in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._tables.columns import StructField


class Catalog(Protocol):
    """The metastore, as far as the loader uses it. Every method can be repeated."""

    def tables(self) -> set[str]:
        """Return the names of the tables over files."""
        ...

    def check(self) -> None:
        """Raise the metastore's error if it does not answer at all."""
        ...

    def put_table(
        self,
        name: str,
        columns: Sequence[StructField],
        location: AnyPath,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create a table over files, or set its columns and properties."""
        ...

    def put_view(
        self,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create or replace a view."""
        ...

    def masked_view(self, name: str) -> str | None:
        """Return what defined a masked view, "" if there is none, or None if none is wanted."""
        ...

    def put_masked_view(
        self,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create or replace a masked view; its property MASKED_BY says what defined it."""
        ...

    def check_masked_query(self, query: str) -> None:
        """Raise the error for a masked view that the metastore cannot store."""
        ...

    def drop_masked_view(self, name: str) -> None:
        """Drop a masked view, if it exists and one is wanted."""
        ...

    def add_days(self, name: str, days: Iterable[str]) -> None:
        """Add the partitions of these days that the table lacks."""
        ...

    def relocate(self, name: str, folders: Mapping[str, AnyPath]) -> None:
        """Point partitions at other folders, one after the other."""
        ...

    def drop_table(self, name: str) -> None:
        """Drop a table over files, if it exists; the files stay."""
        ...

    def drop_days(self, name: str, days: Iterable[str]) -> None:
        """Drop the partitions of these days, if they exist."""
        ...

    def drop_view(self, name: str) -> None:
        """Drop a view and its masked view, if they exist."""
        ...

    def set_properties(self, name: str, properties: dict[str, str]) -> None:
        """Set properties of a table over files."""
        ...

    def source_of(self, name: str) -> str:
        """Return the name of a table over files in SQL."""
        ...

    def view_of(self, name: str) -> str:
        """Return the name of a view in SQL."""
        ...
