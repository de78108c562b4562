"""Iceberg's tables through its Java API in Spark's JVM: the one module that knows this API.

Rules:

- A change of schema, partitioning, and files is one transaction of the catalog: readers see all of
  it, or none.
- Data files are registered where they are. Only their footers are read, for their statistics.
- A table is loaded from the catalog once for each snapshot. TableCalls.java makes a change of it in
  few calls: py4j takes longer for a call than Iceberg for most.
- Metadata on a local disk are written without Hadoop's checksum files. Hadoop starts `chmod` for
  each file that it makes.
- Publishers ask for a table that may be new by `exists`: PySpark makes some 80 calls for an
  exception of Java.
- Nothing here removes a data file: the loader does, after the snapshots that need it have expired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hadoop_loader._iceberg.catalog_url import CATALOG, PROPERTY_PREFIX, catalog_properties
from hadoop_loader._iceberg.table_change import COMMIT_PROPERTY, PublishedTable, TableChange
from hadoop_loader._java_source import java_instance
from headworks.errors import UsageError

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13"
_FORMAT = 3
_CALLS = "TableCalls"
_NO_TABLE = (
    "org.apache.iceberg.exceptions.NoSuchTableException",
    "org.apache.iceberg.exceptions.NoSuchIcebergTableException",
)
_MOST_SNAPSHOTS = 100  # of a table; half of them are left when there are more
_TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergTables:
    """The tables of one namespace of a catalog; `location` is the folder of their metadata."""

    def __init__(self, spark: Any, url: str, namespace: str, location: str) -> None:
        check_iceberg(spark)
        self._jvm = jvm = spark.sparkContext._jvm
        given = {**catalog_properties(url, location), **_given_properties(spark)}
        api = jvm.org.apache.iceberg
        self._found: dict[str, Any] = {}  # tables that are about to change, as they were found
        self._default_format = given.get("table-default.format-version", str(_FORMAT))
        settings = _file_settings(jvm, spark.sparkContext._jsc.hadoopConfiguration())
        self._calls = java_instance(jvm, __package__, _CALLS, _CALLS, settings)
        # py4j asks the JVM for each part of a name, so names are looked up once.
        self._identifier_of = api.catalog.TableIdentifier.of
        self._metadata_only = getattr(api, "ExpireSnapshots$CleanupLevel").METADATA_ONLY
        self._catalog = api.CatalogUtil.buildIcebergCatalog(CATALOG, self._map(given), settings)
        self._location = location
        self._namespace = api.catalog.Namespace.of(self._strings([namespace]))
        if not self._catalog.namespaceExists(self._namespace):
            self._catalog.createNamespace(
                self._namespace, self._map({"location": location} if "thrift:" in url else {})
            )

    def find(self, table: str) -> PublishedTable | None:
        """Return a table as the catalog has it, or None."""
        found = self._load(table)
        if found is None:
            self._found.pop(table, None)
            return None
        self._found[table] = found
        described = json.loads(self._calls.describe(found, COMMIT_PROPERTY))
        return PublishedTable(
            described["property"] or "",
            declared_defaults(described["schema"]),
            described["format"] >= _FORMAT,
        )

    def exists(self, table: str) -> bool:
        """Return whether the catalog has a table."""
        found = bool(self._catalog.tableExists(self._name(table)))
        if not found:
            self._found.pop(table, None)
        return found

    @property
    def creates_defaults(self) -> bool:
        """Whether a new table's format has defaults."""
        return int(self._default_format) >= _FORMAT

    def drop(self, table: str) -> None:
        """Drop a table, if it exists; its data files stay."""
        self._found.pop(table, None)
        if self.exists(table):
            self._catalog.dropTable(self._name(table), False)

    def change(self, change: TableChange) -> None:
        """Make the snapshot of a change, and the table if there is none."""
        before = self._found.pop(change.table, None)
        transaction = self._creation(change) if before is None else before.newTransaction()
        table = transaction.table()
        schema = change.schema
        if before is not None:
            self._calls.leavePartition(transaction, table, schema.day_id)
        self._calls.setSchema(table, schema.fields, schema.last_id)
        if schema.day_of is not None:
            self._calls.enterPartition(transaction, table, schema.day_of)
        names = {"schema.name-mapping.default": schema.names}
        properties = {**_TABLE_PROPERTIES, **names, **change.properties}
        self._calls.setProperties(transaction, json.dumps(properties))
        self._set_files(transaction, table, before, change)
        transaction.commitTransaction()
        if before is not None and self._calls.snapshots(before) > _MOST_SNAPSHOTS:
            update = self._catalog.loadTable(self._name(change.table)).expireSnapshots()
            update.expireOlderThan(2**62).retainLast(_MOST_SNAPSHOTS // 2)
            update.cleanupLevel(self._metadata_only).commit()

    def expire(self, table: str, number: int) -> bool:
        """Expire the snapshots of commits before `number`; False if the current one is of these."""
        found = self._load(table)
        if found is None:
            return True
        current = found.currentSnapshot()
        if current is not None and _commit_number(current) < number:
            return False
        update = found.expireSnapshots().cleanupLevel(self._metadata_only)
        for one in found.snapshots():
            if _commit_number(one) < number:
                update.expireSnapshotId(one.snapshotId())
        update.commit()
        return True

    def _load(self, table: str) -> Any:
        """Return a table of the catalog, or None. Catalogs ask whether it exists by loading it."""
        from py4j.protocol import Py4JJavaError

        try:
            return self._catalog.loadTable(self._name(table))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() not in _NO_TABLE:
                raise
            return None

    def _creation(self, change: TableChange) -> Any:
        location = f"{self._location}/{change.table}"
        name = self._name(change.table)
        return self._calls.create(self._catalog, name, location, self._default_format)

    def _set_files(self, transaction: Any, table: Any, before: Any, change: TableChange) -> None:
        leaving, kept = [], set()
        wanted = {file.uri for file in change.added}
        if before is not None and (change.all_files or change.removed):
            for uri in json.loads(self._calls.locations(before)):
                if uri not in wanted if change.all_files else _is_in(uri, change.removed):
                    leaving.append(uri)
                else:
                    kept.add(uri)
        added = [file for file in change.added if file.uri not in kept]
        files = {
            "leaving": leaving,
            "added": [(file.uri, file.bytes, file.day) for file in added],
            "names": change.schema.names,
            "day_id": change.schema.day_id or None,
            "summary": dict(change.summary),
        }
        update = self._update(transaction, change, adds=bool(added), removes=bool(leaving))
        self._calls.commitFiles(update, before, table, json.dumps(files))

    def _update(self, transaction: Any, change: TableChange, *, adds: bool, removes: bool) -> Any:
        if not removes:
            return transaction.newAppend()
        if adds and change.operation == "replace":
            return transaction.newRewrite()
        return transaction.newOverwrite()

    def _name(self, table: str) -> Any:
        return self._identifier_of(self._namespace, table)

    def _map(self, values: Mapping[str, str]) -> Any:
        found = self._jvm.java.util.HashMap()
        for key, value in values.items():
            found.put(key, value)
        return found

    def _strings(self, values: list[str]) -> Any:
        found = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("java.lang.String"), len(values)
        )
        for i, value in enumerate(values):
            found[i] = value
        return found


def check_iceberg(spark: Any) -> None:
    """Raise UsageError if the session's class path has no Iceberg.

    Classes of `spark.jars` do not count: their loader is closed by HiveServer2's first connection.
    """
    loader = spark.sparkContext._jvm.java.lang.ClassLoader.getSystemClassLoader()
    if loader.getResource("org/apache/iceberg/CatalogUtil.class") is None:
        raise UsageError(
            "Spark's class path has no Iceberg, which the setting `iceberg` needs",
            fix=f"put {RUNTIME} into a folder, with the driver of a jdbc: catalog, and that "
            "folder into spark-defaults.conf, in the folder that SPARK_CONF_DIR names: "
            "spark.driver.extraClassPath FOLDER/*",
        )


def _file_settings(jvm: Any, given: Any) -> Any:
    """Return Hadoop's settings for the catalog's files, with the plain file system for `file:`."""
    found = jvm.org.apache.hadoop.conf.Configuration(given)
    found.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    # The JVM's cache holds the file system with checksums, whatever the settings say.
    found.setBoolean("fs.file.impl.disable.cache", True)
    return found


def _commit_number(snapshot: Any) -> int:
    """Return the number of a snapshot's commit; 0 if another tool made it."""
    return int((snapshot.summary().get(COMMIT_PROPERTY) or "0").partition("-")[0])


def _is_in(uri: str, folders: Iterable[str]) -> bool:
    return any(uri.startswith(f"{folder}/") for folder in folders)


def _given_properties(spark: Any) -> dict[str, str]:
    each = spark.sparkContext.getConf().getAll()
    return {
        key.removeprefix(PROPERTY_PREFIX): value
        for key, value in each
        if key.startswith(PROPERTY_PREFIX)
    }


def declared_defaults(text: str) -> dict[int, Any]:
    """Return the default of each field in a schema's JSON by id; None if it has none."""
    found: dict[int, Any] = {}
    stack = [json.loads(text)]
    while stack:
        one = stack.pop()
        for f in one.get("fields", ()):
            found[f["id"]] = f.get("initial-default")
            stack.append(f["type"] if isinstance(f["type"], dict) else {})
        stack += [one[name] for name in ("element", "value") if isinstance(one.get(name), dict)]
    return found
