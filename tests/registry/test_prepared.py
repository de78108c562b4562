"""Prepared statements: the same rows and the same errors as SQLAlchemy's own, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import pytest
from sqlalchemy import Float, Integer, bindparam, cast, insert, literal_column, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from headworks._registry.store import RegistryStore
from headworks._registry.store.tables import audit, configs
from headworks._server.database import PreparedStatement
from tests.registry.conftest import STORES

pytestmark = pytest.mark.contract

PUT = PreparedStatement(insert(configs))
NEWEST = select(audit).where(audit.c.who == bindparam("who")).order_by(audit.c.seq.desc()).limit(2)


@pytest.fixture
def opened(store: str) -> Iterator[RegistryStore]:
    database = RegistryStore(store)
    yield database
    database.close()


def test_a_query_returns_the_rows_that_sqlalchemy_returns(opened: RegistryStore) -> None:
    columns = ("who", "at_ms", "action", "subject", "version", "schema_id", "detail")
    add = PreparedStatement(insert(audit), columns)
    with opened.write() as connection:
        for number in range(5):
            values = ("ann", number, "é'%s?", ":.c:s", number, None, "{}")
            add.run(connection, dict(zip(columns, values, strict=True)))
    with opened.read() as connection:
        theirs = [tuple(row) for row in connection.execute(NEWEST, {"who": "ann"})]
        prepared = PreparedStatement(NEWEST)
        assert prepared.rows(connection, {"who": "ann"}) == theirs
        assert [row[1] for row in theirs] == [4, 3]
        assert prepared.scalar(connection, {"who": "nobody"}) is None
        assert prepared.rows(connection, {"who": "nobody"}) == []


def test_a_refused_statement_raises_the_error_of_sqlalchemy(opened: RegistryStore) -> None:
    with opened.write() as connection:
        PUT.run(connection, {"scope": "s", "content": "{}"})

    def put(*scopes: str) -> None:
        with opened.write() as connection:
            for scope in scopes:
                PUT.run(connection, {"scope": scope, "content": "{}"})

    with pytest.raises(IntegrityError):
        put("t", "s")
    with opened.write() as connection:
        change = update(configs).where(configs.c.scope == bindparam("of"))
        PreparedStatement(change.values(content="new")).run(connection, {"of": "s"})
    with opened.read() as connection:
        assert [tuple(row) for row in connection.execute(select(configs))] == [("s", "new")]


def test_a_statement_runs_once_for_each_row_or_not_at_all(opened: RegistryStore) -> None:
    def put(*scopes: str) -> None:
        with opened.write() as connection:
            rows = [{"content": f"of {scope}", "scope": scope} for scope in scopes]
            PUT.run_each(connection, rows)

    put("a", "é'%s?")
    put("b")
    with pytest.raises(IntegrityError):
        put("c", "a")
    with opened.read() as connection:
        found = connection.execute(select(configs).order_by(configs.c.scope))
        assert [tuple(row) for row in found] == [
            (scope, f"of {scope}") for scope in ("a", "b", "é'%s?")
        ]


@pytest.mark.parametrize("store", STORES[1:], indirect=True)
def test_a_connection_that_is_lost_is_not_used_again(opened: RegistryStore) -> None:
    reads = PreparedStatement(select(configs))

    def read_after_the_end() -> None:
        with opened.read() as connection:
            own = connection.scalar(text("SELECT pg_backend_pid()"))
            with opened.write() as other:
                other.execute(text("SELECT pg_terminate_backend(:own, 60000)"), {"own": own})
            reads.rows(connection, {})

    with pytest.raises(DBAPIError) as lost:
        read_after_the_end()
    assert lost.value.connection_invalidated
    with opened.read() as connection:
        assert reads.rows(connection, {}) == []


@pytest.mark.parametrize("store", STORES[1:], indirect=True)
def test_statements_in_a_transaction_go_past_the_driver(
    opened: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver begins the transaction with the first one, and takes what its library cannot."""
    from psycopg import Connection

    sent: list[str] = []
    execute: Any = Connection.execute

    def noted(driver: Any, text: str, *values: Any, **options: Any) -> Any:
        sent.append(text)
        return execute(driver, text, *values, **options)

    monkeypatch.setattr(Connection, "execute", noted)
    contents = ["é'%s?$1", '{"a": "\\u0000"}', "", "1" * 70_000]
    with opened.write() as connection:
        sent.clear()
        for number, content in enumerate(contents):
            PUT.run(connection, {"scope": f"s{number}", "content": content})
    assert sent == []
    reads = PreparedStatement(select(configs).order_by(configs.c.scope))
    with opened.read() as connection:
        found = [reads.rows(connection, {}) for _ in range(2)]
    assert len(sent) == 1
    assert found == [[(f"s{number}", one) for number, one in enumerate(contents)]] * 2


@pytest.mark.parametrize("store", STORES[1:], indirect=True)
def test_a_text_that_would_be_cut_is_refused(opened: RegistryStore) -> None:
    def put() -> None:
        with opened.write() as connection:
            PUT.run(connection, {"scope": "s", "content": "before\0after"})

    with pytest.raises(DBAPIError, match="NUL"):
        put()
    with opened.read() as connection:
        assert list(connection.execute(select(configs))) == []


@pytest.mark.parametrize("store", STORES[1:], indirect=True)
def test_prepared_statements_outlive_a_rollback(opened: RegistryStore) -> None:
    reads = PreparedStatement(select(configs))

    def fails() -> None:
        with opened.write() as connection:
            PUT.run(connection, {"scope": "s", "content": "{}"})
            for _ in range(10):  # more often than psycopg runs a statement before it prepares it
                connection.execute(select(configs))
            raise RuntimeError("rolled back")

    for _ in range(3):
        with pytest.raises(RuntimeError):
            fails()
        with opened.read() as connection:
            assert [reads.rows(connection, {}) for _ in range(2)] == [[], []]


@pytest.mark.parametrize("store", STORES[1:], indirect=True)
def test_a_type_that_the_library_is_not_asked_for_is_left_to_the_driver(
    opened: RegistryStore,
) -> None:
    halves = PreparedStatement(select(cast(literal_column("0.5"), Float)))
    with opened.read() as connection:
        assert [halves.rows(connection, {}) for _ in range(3)] == [[(0.5,)]] * 3


def test_a_number_with_a_name_is_that_number(opened: RegistryStore) -> None:
    class Level(IntEnum):
        HIGH = 7

    same = PreparedStatement(select(cast(bindparam("level"), Integer)))
    with opened.read() as connection:
        assert [same.rows(connection, {"level": Level.HIGH}) for _ in range(2)] == [[(7,)]] * 2
