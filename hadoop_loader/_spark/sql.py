"""SQL over HiveServer2 with PyHive, as any Hive client would send it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headworks._host_port import split_host_port
from headworks.errors import RefusedError, UnreachableError, UsageError

_TIMEOUT_MS = 600_000
# HiveServer2 puts this before a message of Spark, which names its kind again.
_BEFORE_MESSAGE = re.compile(r"^Error running query: \[[\w.]+\] [\w.]+: (?=\[)")
_SHOW_TABLES = '`headworks sql "SHOW TABLES"` lists the tables of the last load'


class QueryError(RefusedError):
    """HiveServer2 accepted the query, and failed to answer it."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query: column names, and values by row."""

    names: tuple[str, ...]  # of the columns
    rows: list[tuple[Any, ...]]


def parse_hiveserver2_address(text: str) -> tuple[str, int]:
    """Return HOST:PORT as a pair; UsageError if it is not one."""
    found = split_host_port(text)
    if found is None:
        raise UsageError(f"{text!r} is not an address", fix="give HOST:PORT")
    return found


@contextmanager
def connect(address: str, *, database: str = "default") -> Iterator[Any]:
    """Open a PyHive connection to the HiveServer2 at `address` (HOST:PORT), and close it
    afterwards.

    Raises UnreachableError if there is no server, if it asks for a login, or if it stops, and
    QueryError if the database cannot be used.
    """
    from pyhive import hive
    from pyhive.exc import Error
    from thrift.transport import TSocket, TTransport

    host, port = parse_hiveserver2_address(address)
    transport_socket = TSocket.TSocket(host, port)
    transport_socket.setTimeout(_TIMEOUT_MS)
    transport = TTransport.TBufferedTransport(transport_socket)
    try:
        socket.create_connection((host, port), 5).close()
    except OSError as error:
        raise UnreachableError(
            f"no HiveServer2 answers at {address}: {error}",
            fix="start one with `headworks load run --serve HOST:PORT`",
        ) from None
    try:
        connection = hive.connect(thrift_transport=transport, database=database)
    except (OSError, TTransport.TTransportException) as error:
        raise UnreachableError(
            f"the server at {address} answers no client without a login: {error}",
            fix="use PyHive or beeline if it asks for passwords (docs/hadoop_loader.md); "
            "otherwise give the address of `headworks load run --serve`",
        ) from None
    except Error as error:
        raise QueryError(
            f"database {database} cannot be used: {_server_message(error)}",
            fix="give --database one that `SHOW DATABASES` lists, and see that the metastore works",
        ) from None
    try:
        yield connection
    except (OSError, TTransport.TTransportException) as error:
        raise UnreachableError(
            f"HiveServer2 at {address} closed the connection before it answered: {error}",
            fix="see what ended it, start it again, and ask again",
        ) from None
    finally:
        with suppress(OSError, TTransport.TTransportException):
            connection.close()


def query(address: str, statement: str, *, database: str = "default") -> QueryResult:
    """Return the result of one statement; QueryError, with the server's message, if it fails."""
    from pyhive.exc import Error

    with connect(address, database=database) as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(statement)
            if cursor.description is None:
                return QueryResult((), [])
            names = tuple(str(column[0]) for column in cursor.description)
            return QueryResult(names, list(cursor.fetchall()))
        except Error as error:
            message = _server_message(error)
            unknown = message.startswith("[TABLE_OR_VIEW_NOT_FOUND]")
            raise QueryError(
                f"the query failed: {message}", fix=_SHOW_TABLES if unknown else None
            ) from None
        finally:
            cursor.close()


def _server_message(error: Exception) -> str:
    status = getattr(error.args[0], "status", None) if error.args else None
    message = getattr(status, "errorMessage", None) or str(error)
    lines = [line.strip() for line in str(message).splitlines() if line.strip()] or ["no reason"]
    more = lines[1:2] if lines[0].endswith(":") else []  # Spark names a class on the first line
    return _BEFORE_MESSAGE.sub("", " ".join([lines[0], *more]))
