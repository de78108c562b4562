"""A store in PostgreSQL that is filled at once: its statements use the indexes."""

from __future__ import annotations

import logging

import psycopg
import pytest
from sqlalchemy import create_engine

from headworks._registry.store import tables
from headworks._server.database.planner_statistics import FIRST, PlannerStatistics
from tests.registry.conftest import start_on
from tests.registry.postgresql import Cluster
from tests.registry.rest import Rest, record
from tests.tools import needs
from tests.waiting import until

pytestmark = [pytest.mark.e2e, needs("postgresql")]

TABLES = tables.metadata.tables.values()
ANALYSES = "SELECT avg(analyze_count) FROM pg_stat_user_tables"
BY_DIGEST = "EXPLAIN SELECT id FROM schemas WHERE context = '.' AND digest = 'no such digest'"


def test_the_rows_are_counted_after_so_many_changes_and_after_twice_as_many(
    cluster: Cluster,
) -> None:
    store = cluster.new_store()
    with start_on(store) as running, psycopg.connect(store, autocommit=True) as database:
        rest = Rest(running.url)

        def register(first: int, last: int) -> None:
            for number in range(first, last):
                assert rest.register(f"s-{number}", record(f"f{number}:int")).status == 200

        def times() -> float:
            return float((database.execute(ANALYSES).fetchone() or (0,))[0])

        register(0, FIRST - 1)
        assert times() == 0
        register(FIRST - 1, FIRST)
        until(lambda: times() == 1)
        register(FIRST, 3 * FIRST)
        until(lambda: times() == 2)
        plan = "\n".join(row[0] for row in database.execute(BY_DIGEST))
        assert "schemas_by_digest" in plan
        rest.close()


def test_a_locked_table_is_left_out(cluster: Cluster) -> None:
    store = cluster.new_store()
    with start_on(store), psycopg.connect(store) as locker:
        locker.execute("LOCK TABLE schemas")
        engine = create_engine(store, isolation_level="AUTOCOMMIT")
        PlannerStatistics(engine, TABLES)._run()
        locker.rollback()
        with engine.connect() as connection:
            found = connection.exec_driver_sql(
                "SELECT relname FROM pg_stat_user_tables WHERE analyze_count = 0"
            )
            assert found.scalars().all() == ["schemas"]
        engine.dispose()


def test_an_error_is_logged_only(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    engine = create_engine(cluster.new_store(), isolation_level="AUTOCOMMIT")
    with caplog.at_level(logging.WARNING):
        PlannerStatistics(engine, TABLES)._run()  # a database without the tables
    assert "statistics are not up to date" in caplog.text
    assert "does not exist" in caplog.text
    engine.dispose()
