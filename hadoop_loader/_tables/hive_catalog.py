"""The Hive metastore through Spark: the one module that knows Spark's catalog and its internals.

Rules:

- It uses SQL wherever SQL is enough. SQL cannot alter nested or widened columns: those go through
  `externalCatalog().alterTableDataSchema`, an internal method of Spark 4.
- `self_test` tries that method when a metastore is first used. A Spark without it fails at once
  and not in the middle of a load.
- One statement adds many partitions, because one at a time costs more than 100 ms each. Only
  partitions that the metastore lacks are added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hadoop_loader._storage.filesystem import AnyPath, hadoop_uri
from hadoop_loader._tables.columns import (
    PARTITION_COLUMN,
    ROW_COUNT,
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
    ddl,
    quoted,
)
from hadoop_loader._tables.sensitive import MASKED_BY
from headworks.errors import UsageError

_DAYS_PER_STATEMENT = 400
# The metastore keeps comments in columns of 256 characters, as Java counts them.
_MAX_COMMENT_CHARACTERS = 250
SELF_TEST_TABLE = "headworks_self_test"
_TYPES_REFUSED = "types incompatible"  # Hive's words
# The longest text of a view in the embedded metastore, less the name of the table that it reads.
MAX_VIEW_CHARACTERS = 32_700 - 400


class HiveCatalog:
    """Tables over files in `files_database`, views for users in `database`.

    `masked_database`: where the masked views are; None: there are none. `embedded`: the metastore
    is the embedded one.
    """

    def __init__(
        self,
        spark: Any,
        files_database: str,
        database: str,
        masked_database: str | None = None,
        *,
        embedded: bool = False,
    ) -> None:
        self._spark = spark  # the session that runs every statement
        self._files = files_database  # database of the tables over files
        self._views = database  # database of the views
        # Names of the tables over files, read once: no other process can change an embedded
        # metastore while this one has it open.
        self._known: set[str] | None = None
        self._masked = masked_database
        self._embedded = embedded
        self._masked_by: dict[str, str] | None = None  # by masked view, read once

    def prepare(self, state: Path) -> None:
        """Create the databases, and run the self-test once for each Spark version.

        `state` is a folder that lives as long as the metastore; it remembers the self-test.
        """
        for name in filter(None, (self._files, self._views, self._masked)):
            self._sql(f"CREATE DATABASE IF NOT EXISTS {quoted(name)}")
        passed = state / f"self-test-{self._spark.version}.passed"
        if not passed.exists():
            self.self_test()
            passed.touch()

    def self_test(self) -> None:
        """Widen and nest a column of a table without files; UsageError if this Spark cannot."""
        name = f"{quoted(self._files)}.{SELF_TEST_TABLE}"
        before = [StructField("a", StructColumn((StructField("b", ScalarColumn("int")),)))]
        inner = (StructField("b", ScalarColumn("bigint")), StructField("c", ScalarColumn("string")))
        after = [StructField("a", StructColumn(inner))]
        self._sql(f"DROP TABLE IF EXISTS {name}")
        location = f"{self._spark.conf.get('spark.sql.warehouse.dir')}/{SELF_TEST_TABLE}"
        # A metastore that tries a request again finds the table of its first try.
        self._sql(create_table(f"IF NOT EXISTS {name}", before, location, None, {}))
        self._alter(self._files, SELF_TEST_TABLE, after)
        found = [row[1] for row in self._sql(f"DESCRIBE {name}").collect()][:1]
        self._sql(f"DROP TABLE IF EXISTS {name}")
        if found != ["struct<b:bigint,c:string>"]:
            raise UsageError(
                f"Spark {self._spark.version} does not alter nested columns of Hive tables",
                fix="install the Spark it was built for: pip install 'headworks[hadoop]'",
            )

    def tables(self) -> set[str]:
        """Return the names of the tables over files."""
        if self._known is None:
            rows = self._sql(f"SHOW TABLES IN {quoted(self._files)}").collect()
            self._known = {row["tableName"] for row in rows}
        return self._known

    def check(self) -> None:
        """Raise the metastore's error if it does not answer at all."""
        self._sql(f"SHOW TABLES IN {quoted(self._files)} LIKE '{SELF_TEST_TABLE}'").collect()

    def put_table(
        self,
        name: str,
        columns: Sequence[StructField],
        location: AnyPath,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create a table over files, or give an existing one these columns and properties."""
        if name not in self.tables():
            self._create(name, columns, hadoop_uri(location), comment, properties)
            self.tables().add(name)
            return
        self._alter(self._files, name, columns)
        if properties:
            self.set_properties(name, properties)

    def put_view(
        self,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create a view, or give an existing one this query, these columns, and properties.

        `query` names its columns as `columns` do.
        """
        self._put_view(self._views, name, columns, query, comment, properties)

    def masked_view(self, name: str) -> str | None:
        """Return what defined a masked view, "" if there is none, or None if none is wanted."""
        if self._masked is None:
            return None
        if self._masked_by is None:
            self._masked_by = self._properties_of_views(self._masked, MASKED_BY)
        return self._masked_by.get(name, "")

    def put_masked_view(
        self,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create a masked view, or replace it as `put_view` does."""
        assert self._masked is not None
        self._put_view(self._masked, name, columns, query, comment, properties)
        if self._masked_by is not None:
            self._masked_by[name] = properties[MASKED_BY]

    def check_masked_query(self, query: str) -> None:
        """Raise UsageError for a masked view that the metastore cannot store."""
        if self._embedded and len(query) > MAX_VIEW_CHARACTERS:
            raise UsageError(
                f"the masked view would have a text of {len(query):,} characters, and the embedded "
                f"metastore takes {MAX_VIEW_CHARACTERS:,}",
                fix="use a metastore of its own (`--metastore`), which stores longer texts; or "
                "keep the schema to fewer columns",
            )

    def drop_masked_view(self, name: str) -> None:
        """Drop a masked view if it exists."""
        if self._masked is not None:
            self._sql(f"DROP VIEW IF EXISTS {quoted(self._masked)}.{quoted(name)}")
            if self._masked_by is not None:
                self._masked_by.pop(name, None)

    def _properties_of_views(self, database: str, key: str) -> dict[str, str]:
        """Return a property of all views of a database that have it, by name."""
        rows = self._sql(f"SHOW VIEWS IN {quoted(database)}").collect()
        jvm, catalog = self._spark._jvm, self._external_catalog()
        names = jvm.PythonUtils.toSeq([row["viewName"] for row in rows])
        found = catalog.getTablesByName(database, names)
        views = (found.apply(i) for i in range(found.size()))
        values = ((v.identifier().table(), v.properties().get(key)) for v in views)
        return {name: value.get() for name, value in values if value.isDefined()}

    def _external_catalog(self) -> Any:
        return self._spark._jsparkSession.sharedState().externalCatalog()

    def _put_view(
        self,
        database: str,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        view = f"{quoted(database)}.{quoted(name)}"
        if self._spark.catalog.tableExists(view):
            # CREATE OR REPLACE drops the view first: readers would find none for a moment.
            self._sql(f"ALTER VIEW {view} AS {query}")
            table_properties = {**properties, "comment": _short_comment(comment)}
            self._sql(f"ALTER VIEW {view} SET TBLPROPERTIES ({_pairs(table_properties)})")
            self._alter(database, name, columns)
            return
        named = ", ".join(f"{quoted(c.name)}{_comment(c.comment)}" for c in columns)
        clause = f" TBLPROPERTIES ({_pairs(properties)})" if properties else ""
        self._sql(f"CREATE VIEW {view} ({named}){_comment(comment)}{clause} AS {query}")

    def add_days(self, name: str, days: Iterable[str]) -> None:
        """Add the partitions of these days that the table does not have."""
        table = self.source_of(name)
        wanted = list(days)
        if not wanted:
            return
        known = {
            row[0].partition("=")[2] for row in self._sql(f"SHOW PARTITIONS {table}").collect()
        }
        new = [day for day in wanted if day not in known]
        for i in range(0, len(new), _DAYS_PER_STATEMENT):
            parts = " ".join(
                f"PARTITION ({PARTITION_COLUMN}='{day}')"
                for day in new[i : i + _DAYS_PER_STATEMENT]
            )
            self._sql(f"ALTER TABLE {table} ADD IF NOT EXISTS {parts}")

    def relocate(self, name: str, folders: Mapping[str, AnyPath]) -> None:
        """Point these partitions at other folders, one partition after the other."""
        table = self.source_of(name)
        for day, folder in sorted(folders.items()):
            part, place = f"PARTITION ({PARTITION_COLUMN}='{day}')", _string(hadoop_uri(folder))
            self._sql(f"ALTER TABLE {table} ADD IF NOT EXISTS {part} LOCATION {place}")
            self._sql(f"ALTER TABLE {table} {part} SET LOCATION {place}")

    def drop_table(self, name: str) -> None:
        """Drop a table over files if it exists; the files stay."""
        self._sql(f"DROP TABLE IF EXISTS {self.source_of(name)}")
        self.tables().discard(name)

    def drop_days(self, name: str, days: Iterable[str]) -> None:
        """Drop the partitions of these days that exist; the files stay."""
        wanted = sorted(days)
        for i in range(0, len(wanted), _DAYS_PER_STATEMENT):
            parts = ", ".join(
                f"PARTITION ({PARTITION_COLUMN}='{day}')"
                for day in wanted[i : i + _DAYS_PER_STATEMENT]
            )
            self._sql(f"ALTER TABLE {self.source_of(name)} DROP IF EXISTS {parts}")

    def drop_view(self, name: str) -> None:
        """Drop a view and its masked view if they exist."""
        self.drop_masked_view(name)
        self._sql(f"DROP VIEW IF EXISTS {self.view_of(name)}")

    def set_properties(self, name: str, properties: dict[str, str]) -> None:
        """Set properties of a table over files."""
        self._sql(f"ALTER TABLE {self.source_of(name)} SET TBLPROPERTIES ({_pairs(properties)})")
        if ROW_COUNT in properties:
            self._forget_computed_statistics(name, properties[ROW_COUNT])

    def _forget_computed_statistics(self, name: str, rows: str) -> None:
        """Drop what ANALYZE computed, as Spark's INSERT does: to Spark it hides the table's own."""
        catalog = self._external_catalog()
        known = catalog.getTable(self._files, name).stats()
        counted = known.get().rowCount() if known.isDefined() else known
        if counted.isDefined() and str(counted.get()) != rows:
            nothing = self._spark._jvm.scala.Option.empty()
            catalog.alterTableStats(self._files, name, nothing)

    def source_of(self, name: str) -> str:
        """Return the name of a table over files as SQL writes it."""
        return f"{quoted(self._files)}.{quoted(name)}"

    def view_of(self, name: str) -> str:
        """Return the name of a view as SQL writes it."""
        return f"{quoted(self._views)}.{quoted(name)}"

    def _create(
        self,
        name: str,
        columns: Sequence[StructField],
        location: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        self._sql(create_table(self.source_of(name), columns, location, comment, properties))

    def _alter(self, database: str, name: str, columns: Sequence[StructField]) -> None:
        jvm = self._spark._jvm
        schema = {"type": "struct", "fields": [_spark_column(c) for c in columns]}
        type_ = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(schema))
        try:
            self._external_catalog().alterTableDataSchema(database, name, type_)
        except Exception as error:  # Spark's, which quotes the metastore
            if _TYPES_REFUSED not in str(error):
                raise
            raise UsageError(
                f"the metastore refuses to change column types (table {name}): it runs with "
                "hive.metastore.disallow.incompatible.col.type.changes=true, Hive's default",
                fix="set it to false in the metastore's hive-site.xml, and restart the metastore",
            ) from None
        self._spark.catalog.refreshTable(f"{quoted(database)}.{quoted(name)}")

    def _sql(self, statement: str) -> Any:
        return self._spark.sql(statement)


def create_table(
    table: str,
    columns: Sequence[StructField],
    location: str | None,
    comment: str | None,
    properties: Mapping[str, str],
) -> str:
    """Return the statement that creates a table over files; `table` is a quoted name."""
    clause = f" TBLPROPERTIES ({_pairs(properties)})" if properties else ""
    place = "" if location is None else f" LOCATION {_string(location)}"
    return (
        f"CREATE EXTERNAL TABLE {table} ({column_list(columns)}){_comment(comment)} "
        f"PARTITIONED BY ({PARTITION_COLUMN} string) STORED AS PARQUET{place}{clause}"
    )


def column_list(columns: Sequence[StructField], local: str = "timestamp") -> str:
    """Return columns with type and comment as DDL lists them; `local`: see `ddl`."""
    return ", ".join(f"{quoted(c.name)} {ddl(c.type, local)}{_comment(c.comment)}" for c in columns)


def _spark_column(f: StructField) -> dict[str, Any]:
    comment = _short_comment(f.comment)
    return _spark_field(f) | {"metadata": {"comment": comment} if comment else {}}


def _spark_field(f: StructField) -> dict[str, Any]:
    """Return a field without its comment, as Spark's JSON writes it.

    To Spark, a comment inside a struct is part of the type. A session that has read the table
    refuses it once the comment has changed.
    """
    return {"name": f.name, "type": _spark_type(f.type), "nullable": True, "metadata": {}}


def _spark_type(type_: ColumnType) -> Any:
    """Return a type as Spark's JSON writes it."""
    if isinstance(type_, StructColumn):
        return {"type": "struct", "fields": [_spark_field(f) for f in type_.fields]}
    if isinstance(type_, ListColumn):
        return {"type": "array", "elementType": _spark_type(type_.item), "containsNull": True}
    if isinstance(type_, MapColumn):
        value = _spark_type(type_.value)
        return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}
    if isinstance(type_, DecimalColumn):
        return ddl(type_)
    return {"int": "integer", "bigint": "long"}.get(type_.name, type_.name)


def _comment(comment: str | None) -> str:
    cut = _short_comment(comment)
    return f" COMMENT {_string(cut)}" if cut else ""


def _short_comment(comment: str | None) -> str:
    """Return a comment on one line, cut to the length that the metastore takes."""
    line = " ".join((comment or "").split())
    java = line.encode("utf-16-le", "replace")  # two bytes a character of Java
    if len(java) <= 2 * _MAX_COMMENT_CHARACTERS:
        return line
    return java[: 2 * (_MAX_COMMENT_CHARACTERS - 1)].decode("utf-16-le", "ignore") + "…"


def _string(value: str) -> str:
    """Return a string constant for places where the grammar takes no expression.

    Spark replaces `${..}` by settings and the environment, in strings as well.
    """
    plain = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{plain}'"


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_string(k)} = {_string(v)}" for k, v in sorted(properties.items()))
