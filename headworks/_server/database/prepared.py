"""Statements that are compiled once and run by the database's driver.

SQLAlchemy takes longer to prepare a short statement than SQLite to run it. The busiest statements
of a server are therefore prepared once.

Rules:

- A statement is SQLAlchemy Core. Each value that changes is a `bindparam`, or a column of `insert`.
- It runs inside the transaction of the SQLAlchemy connection, and begins it if there is none,
  except on connections that ask (`ASKS`). `scalar_alone` runs outside of one.
- Statements whose rows nobody needs one by one are joined for a database over the network.
- Rows are tuples of the driver's own values: a Boolean may be 0 or 1.
- Errors are those of SQLAlchemy, as if it had run the statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Insert, Select, Update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.selectable import CompoundSelect

from headworks._server.database import libpq
from headworks._server.database.libpq import NumberedStatement

__all__ = ["ASKS", "PreparedChanges", "PreparedStatement", "run_script", "run_text"]

# The execution option of connections on which each statement is a transaction by itself.
ASKS: Final = "headworks_asks"
_Change = Insert | Update
_Statement = Select[Any] | CompoundSelect[Any] | _Change


def run_text(
    connection: Connection,
    text: str,
    values: Any = (),
    *,
    fetched: bool = False,
    each: bool = False,
) -> list[tuple[Any, ...]]:
    """Let the driver run SQL, with `values` as it takes them; return the rows if `fetched`.

    With `each`, run it once for each of the values.
    """
    driver: Any = connection.connection.driver_connection
    try:
        cursor = (driver.executemany if each else driver.execute)(text, values)
        return list(cursor.fetchall()) if fetched else []
    except connection.dialect.loaded_dbapi.Error as error:
        raise _as_sqlalchemy(connection, error, text, values) from error


def takes_several(dialect: Dialect) -> bool:
    """Return whether the database runs several statements in one round trip.

    SQLite runs in this process, so it has no round trips to save.
    """
    return dialect.name == "postgresql"


def run_script(connection: Connection, texts: Sequence[str]) -> None:
    """Let the driver run SQL without values and rows, in one round trip if that is possible."""
    if not takes_several(connection.dialect):
        for one in texts:
            run_text(connection, one)
        return
    driver: Any = connection.connection.driver_connection
    script = "; ".join(texts)
    try:
        if not libpq.run(connection, script):
            driver.execute(script, prepare=False)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _as_sqlalchemy(connection, error, script, ()) from error


def _as_sqlalchemy(connection: Connection, error: Any, text: str, values: Any) -> Exception:
    """Return the driver's error as SQLAlchemy's, and give up a connection that is lost."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection.driver_connection, None)
    if lost:
        connection.invalidate(error)
    instance: Exception = DBAPIError.instance(
        text,
        values,
        error,
        dialect.loaded_dbapi.Error,
        connection_invalidated=lost,
        dialect=dialect,
    )
    return instance


class PreparedStatement:
    """A statement for any database; `columns` are those that an `insert` gives."""

    def __init__(self, statement: _Statement, columns: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._columns = columns
        self._compiled: dict[str, _Compiled] = {}  # by the name of a dialect

    def run(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Run a statement that changes rows."""
        self._rows(connection, values, fetched=False)

    def run_each(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement that changes rows once for each of the values, which have equal names."""
        if takes_several(connection.dialect):
            connection.execute(self._statement, rows)
            return
        if not connection.in_transaction():
            connection.begin()
        compiled = self._compile(connection)
        run_text(connection, compiled.text, compiled.arguments_of(rows), each=True)

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a query; return its rows."""
        return self._rows(connection, values, fetched=True)

    def scalar(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        """Run a query; return the first value of its first row, or None."""
        return _first(self._rows(connection, values, fetched=True))

    def scalar_alone(self, connection: Connection) -> Any:
        """Do the same for a query without values, on a connection without a transaction."""
        return _first(self._run(connection, {}, fetched=True))

    def _rows(
        self, connection: Connection, values: Mapping[str, Any], *, fetched: bool
    ) -> list[tuple[Any, ...]]:
        if not connection.in_transaction() and ASKS not in connection.get_execution_options():
            connection.begin()
        return self._run(connection, values, fetched=fetched)

    def _run(
        self, connection: Connection, values: Mapping[str, Any], *, fetched: bool
    ) -> list[tuple[Any, ...]]:
        compiled = self._compile(connection)
        if compiled.numbered is not None:
            try:
                found = libpq.rows(connection, compiled.numbered, values)
            except connection.dialect.loaded_dbapi.Error as error:
                raise _as_sqlalchemy(connection, error, compiled.text, values) from error
            if found is not None:
                return found
        return run_text(connection, compiled.text, compiled.arguments(values), fetched=fetched)

    def _compile(self, connection: Connection) -> _Compiled:
        name = connection.dialect.name
        compiled = self._compiled.get(name)
        if compiled is None:
            compiled = _Compiled(self._statement, self._columns, connection)
            self._compiled[name] = compiled
        return compiled


class PreparedChanges:
    """Statements that change rows, each by values of the same names.

    They are one statement of a database that `takes_several`. So none may need what another one
    writes, except for its foreign keys.
    """

    def __init__(self, *changes: _Change) -> None:
        self._each = [PreparedStatement(one) for one in changes]
        nested = [one.cte(f"change_{number}") for number, one in enumerate(changes[:-1])]
        self._together = PreparedStatement(changes[-1].add_cte(*nested))

    def run(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Run all of them."""
        if takes_several(connection.dialect):
            self._together.run(connection, values)
            return
        for one in self._each:
            one.run(connection, values)


def _first(rows: Sequence[tuple[Any, ...]]) -> Any:
    return rows[0][0] if rows else None


class _Compiled:
    """The text of a statement in one dialect, and its values in the order of the text."""

    def __init__(
        self, statement: _Statement, columns: Sequence[str] | None, connection: Connection
    ) -> None:
        dialect, keys = connection.dialect, None if columns is None else list(columns)
        compiled = statement.compile(dialect=dialect, column_keys=keys)
        self.numbered: NumberedStatement | None = None
        if dialect.driver == "psycopg":
            self.numbered = NumberedStatement(statement, keys, connection)
        self.text = str(compiled)
        self._constants = {k: v for k, v in compiled.params.items() if v is not None}
        self._order = compiled.positiontup if dialect.positional else None

    def arguments(self, values: Mapping[str, Any]) -> Any:
        """Return the values as the driver takes them."""
        given = {**self._constants, **values}
        return given if self._order is None else [given[name] for name in self._order]

    def arguments_of(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the arguments for each of the rows."""
        if self._constants or self._order is None or len(self._order) == 1:
            return [self.arguments(row) for row in rows]
        return list(map(itemgetter(*self._order), rows))
