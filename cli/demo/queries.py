"""The demo's queries to the warehouse, over HiveServer2 with PyHive, as any Hive client would."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_TABLES = ("flights", "weather", "airlines", "airports", "planes")
_DEFAULTS = {"reporting_system": "legacy", "punctuality": "UNKNOWN"}


@dataclass(frozen=True, slots=True)
class HiveAnswers:
    """The answers of Hive.

    `months`: (year-month, schema version, flights). `carriers`: (airline's name, flights), the
    busiest first. `old_values`: the values of version-1 rows in the fields that version 2 added.
    """

    tables: dict[str, int]
    months: list[tuple[str, int, int]]
    old_values: list[dict[str, Any]]
    carriers: list[tuple[str, int]]

    @property
    def rows_by_version(self) -> dict[str, int]:
        """The flights of each version of their schema."""
        found = Counter[str]()
        for _, version, count in self.months:
            found[str(version)] += count
        return dict(found)

    @property
    def old_rows_show_default(self) -> bool:
        """Return whether version-1 rows exist and all show the schema's defaults."""
        expected = [{**_DEFAULTS, "rows": self.rows_by_version.get("1", 0)}]
        return self.old_values == expected and expected[0]["rows"] != 0


def ask(address: str, *, database: str) -> HiveAnswers:
    """Run the demo's queries on HiveServer2 at `address` (HOST:PORT)."""
    from hadoop_loader._spark.sql import connect

    with connect(address, database=database) as connection:
        cursor = connection.cursor()

        def rows(sql: str) -> list[tuple[Any, ...]]:
            cursor.execute(sql)
            return list(cursor.fetchall())

        return HiveAnswers(
            tables={name: rows(f"SELECT count(*) FROM {name}")[0][0] for name in _TABLES},
            months=[
                (month, version, count)
                for month, version, count in rows(
                    "SELECT date_format(flight_date, 'yyyy-MM') AS month, _schema_version, "
                    "count(*) FROM flights GROUP BY 1, 2 ORDER BY 1, 2"
                )
            ],
            old_values=[
                {"reporting_system": system, "punctuality": punctuality, "rows": count}
                for system, punctuality, count in rows(
                    "SELECT reporting_system, departure.punctuality, count(*) FROM flights "
                    "WHERE _schema_version = 1 GROUP BY 1, 2 ORDER BY 1, 2"
                )
            ],
            carriers=[
                (name, count)
                for name, count in rows(
                    "SELECT a.name, count(*) AS flights FROM flights f "
                    "JOIN airlines a ON a.carrier = f.carrier "
                    "GROUP BY a.name ORDER BY flights DESC, a.name LIMIT 5"
                )
            ],
        )


def drop_databases(address: str, database: str) -> list[str]:
    """Drop the database of the demo's views, and that of the tables below them.

    Return those that are still there.
    """
    from pyhive.exc import Error

    from hadoop_loader._spark.sql import connect

    names = (database, f"{database}_files")
    with connect(address) as connection:
        cursor = connection.cursor()
        for name in names:
            # Hive's client asks again after a slow answer, and is told that nothing is there.
            with suppress(Error):
                cursor.execute(f"DROP DATABASE IF EXISTS {name} CASCADE")
        cursor.execute("SHOW DATABASES")
        there = {row[0] for row in cursor.fetchall()}
    return sorted(there & {*names})
