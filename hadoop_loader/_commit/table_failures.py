"""Failures of single tables: one table that cannot be changed stops no other one.

Rules:

- Only a failure that belongs to a table is kept here. A lost lock, a metastore that answers nobody,
  and a JVM that has ended concern all tables: they are raised.
- A table that has failed is not touched again by the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headworks.errors import FindingsError, HeadworksError, UsageError

# Returns the error of one table for an exception, or None if the exception concerns all tables.
TableError = Callable[[Exception], HeadworksError | None]


def table_error(error: Exception) -> HeadworksError | None:
    """Return the error of one table for an error of ours or of the disk."""
    if isinstance(error, HeadworksError):
        return error
    if not isinstance(error, OSError):
        return None
    where = f" ({error.filename})" if error.filename else ""
    return UsageError(
        f"{error.strerror or error}{where}",
        fix="make room, or give back the right to write there, then run again",
    )


@dataclass(slots=True)
class TableFailures:
    """The tables that a transaction could not change."""

    to_error: TableError
    check: Callable[[], None]  # raises what concerns all tables
    errors: dict[str, HeadworksError]  # the first one of each table

    def attempt(self, table: str, step: Callable[[], None]) -> bool:
        """Take a step on a table, unless it has failed before; return whether the step is done."""
        if table in self.errors:
            return False
        try:
            step()
        except Exception as error:
            found = self.to_error(error)
            if found is None:
                raise
            self.check()
            self.errors[table] = found
            return False
        return True

    def require(self, *tables: str) -> None:
        """Raise FindingsError if one of these tables could not be changed."""
        for table in tables:
            if error := self.error_of(table):
                raise error

    def error_of(self, table: str) -> FindingsError | None:
        """Return the error for a table that could not be changed, or None."""
        error = self.errors.get(table)
        if error is None:
            return None
        return FindingsError(
            f"table {table} cannot be changed: {error.message}; what is committed for it waits, "
            "and every run tries again",
            fix=error.fix,
        )
