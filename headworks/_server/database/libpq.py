"""Runs statements on PostgreSQL by the library below psycopg, which psycopg gives out.

psycopg takes longer to send a short statement and to read its few rows than PostgreSQL to run it.

Rules:

- A statement runs inside an open transaction, or on a connection without transactions. psycopg
  itself begins them, so the first statement of each one is left to it.
- Values are texts, integers, Booleans, and None. Rows are of the same.
- Only connections on which psycopg prepares nothing: it discards all prepared statements when a
  transaction is rolled back.
- All else is left to psycopg: `rows` returns None or `run` False, and nothing has been sent.
- Errors are those of psycopg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.sql import ClauseElement

__all__ = ["NumberedStatement", "rows", "run"]

_Row = tuple[Any, ...]
_PREPARED: Final = "headworks_prepared"  # the statements of a connection, in its `info`


def _text(value: bytes) -> str:
    return value.decode()


_READ: Mapping[int, Callable[[bytes], object]] = {  # by the number of a type
    16: b"t".__eq__,  # bool
    20: int,
    21: int,
    23: int,
    25: _text,
    1043: _text,  # varchar
}
_IDLE, _IN_TRANSACTION = 0, 2  # libpq's PGTransactionStatusType
_DONE = (1, 2)  # libpq's ExecStatusType: without rows, and with rows
_numbers = count()


class NumberedStatement:
    """A statement whose values are numbered, as PostgreSQL itself has them."""

    def __init__(
        self, statement: ClauseElement, columns: list[str] | None, connection: Connection
    ) -> None:
        kind: Any = type(connection.dialect)
        dialect = kind(paramstyle="numeric_dollar")
        compiled: Any = statement.compile(dialect=dialect, column_keys=columns)
        self.name = b"headworks_%d" % next(_numbers)
        self.text = str(compiled).encode()
        self._order: Sequence[str] = compiled.positiontup
        self._constants = {k: v for k, v in compiled.params.items() if v is not None}

    def arguments(self, values: Mapping[str, object]) -> list[bytes | None] | None:
        """Return the values as the library takes them, or None if it cannot take one."""
        found: list[bytes | None] = []
        for name in self._order:
            value = values[name] if name in values else self._constants[name]
            if isinstance(value, str):
                if "\0" in value:
                    return None  # the library would cut it
                found.append(value.encode())
            elif value is None:
                found.append(None)
            elif isinstance(value, bool):
                found.append(b"t" if value else b"f")
            elif isinstance(value, int):
                found.append(b"%d" % value)
            else:
                return None
        return found


def rows(
    connection: Connection, statement: NumberedStatement, values: Mapping[str, object]
) -> list[_Row] | None:
    """Run a statement, and return its rows; None if it is left to psycopg."""
    pooled = connection.connection
    driver = pooled.driver_connection
    library = _library(driver)
    arguments = None if library is None else statement.arguments(values)
    if library is None or arguments is None:
        return None
    prepared = pooled.info.setdefault(_PREPARED, {})
    if statement.name not in prepared:
        prepared[statement.name] = _prepare(driver, statement)
    readers = prepared[statement.name]
    if readers is None:
        return None
    result = _checked(library.exec_prepared(statement.name, arguments))
    get, columns = result.get_value, tuple(enumerate(readers))
    return [
        tuple(
            None if (value := get(row, column)) is None else read(value) for column, read in columns
        )
        for row in range(result.ntuples)
    ]


def run(connection: Connection, script: str) -> bool:
    """Run several statements without values and rows; return whether that was possible here."""
    library = _library(connection.connection.driver_connection)
    if library is None:
        return False
    _checked(library.exec_(script.encode()))
    return True


def _library(driver: Any) -> Any:
    """Return the library's side of a connection, if it may run the next statement."""
    library = driver.pgconn
    state = library.transaction_status
    return library if state == _IN_TRANSACTION or (state == _IDLE and driver.autocommit) else None


def _prepare(driver: Any, statement: NumberedStatement) -> tuple[Any, ...] | None:
    """Prepare a statement on a connection; return the readers of its columns, if all are known."""
    if driver.info.encoding != "utf-8" or driver.prepare_threshold is not None:
        return None
    library = driver.pgconn
    _checked(library.prepare(statement.name, statement.text))
    described = _checked(library.describe_prepared(statement.name))
    types = [described.ftype(column) for column in range(described.nfields)]
    return tuple(_READ[one] for one in types) if all(one in _READ for one in types) else None


def _checked(result: Any) -> Any:
    """Return a result; raises psycopg's error if it is one."""
    if result.status in _DONE:
        return result
    from psycopg.errors import error_from_result

    raise error_from_result(result, "utf-8")
