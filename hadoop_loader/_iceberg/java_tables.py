"""Iceberg's tables through its Java API in Spark's JVM: the one module that knows this API.

Rules:

- A change of schema, partitioning, and files is one transaction of the catalog: readers see all of
  it, or none.
- Data files are registered where they are. Only their footers are read, for their statistics.
- A file is in the partition of its day only if its statistics prove it: no null, and every time in
  that day. Any other file is in no partition, and readers find it by its statistics.
- A table is loaded from the catalog once for each snapshot, and a class of Java is looked up once:
  both cost more than the rest of a small snapshot.
- Metadata on a local disk are written without Hadoop's checksum files. Hadoop starts `chmod` for
  each file that it makes.
- Publishers ask for a table that may be new by `exists`: PySpark makes some 80 calls for an
  exception of Java.
- All footers are read with one configuration: without one, Parquet parses Hadoop's XML for each.
- Nothing here removes a data file: the loader does, after the snapshots that need it have expired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from hadoop_loader._iceberg.catalog_url import CATALOG, PROPERTY_PREFIX, catalog_properties
from hadoop_loader._iceberg.table_change import (
    COMMIT_PROPERTY,
    PublishedFile,
    PublishedTable,
    TableChange,
)
from headworks.errors import UsageError

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13"
_FORMAT = 3
_NO_TABLE = (
    "org.apache.iceberg.exceptions.NoSuchTableException",
    "org.apache.iceberg.exceptions.NoSuchIcebergTableException",
)
_MOST_SNAPSHOTS = 100  # of a table; half of them are left when there are more
_MICROS_OF_DAY = 86_400_000_000
_TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class _IcebergApi:
    """The static methods of Iceberg's API. py4j asks the JVM for each part of a name."""

    def __init__(self, jvm: Any) -> None:
        api = jvm.org.apache.iceberg
        self.build_catalog = api.CatalogUtil.buildIcebergCatalog
        self.namespace_of = api.catalog.Namespace.of
        self.identifier_of = api.catalog.TableIdentifier.of
        self.schema = api.Schema
        self.schema_to_json = api.SchemaParser.toJson
        self.schema_from_json = api.SchemaParser.fromJson
        self.metadata_from = api.TableMetadata.buildFrom
        self.day = api.expressions.Expressions.day
        self.names_from_json = api.mapping.NameMappingParser.fromJson
        self.footer_metrics = api.parquet.ParquetUtil.footerMetrics
        self.no_field_metrics = jvm.java.util.stream.Stream.empty
        parquet = api.shaded.org.apache.parquet  # as Iceberg's runtime has it
        self.parquet_settings = parquet.conf.HadoopParquetConfiguration
        self.read_options = parquet.ParquetReadOptions.builder
        self.parquet_file = parquet.hadoop.util.HadoopInputFile.fromStatus
        self.open_parquet = parquet.hadoop.ParquetFileReader.open
        self.path = jvm.org.apache.hadoop.fs.Path
        self.file_status = jvm.org.apache.hadoop.fs.FileStatus
        self.metrics_config = api.MetricsConfig.forTable
        self.data_file = api.DataFiles.builder
        self.timestamp = getattr(api.types, "Types$TimestampType").withZone()
        self.value_of = api.types.Conversions.fromByteBuffer
        self.metadata_only = getattr(api, "ExpireSnapshots$CleanupLevel").METADATA_ONLY
        self.list = jvm.java.util.ArrayList
        self.map = jvm.java.util.HashMap


class IcebergTables:
    """The tables of one namespace of a catalog; `location` is the folder of their metadata."""

    def __init__(self, spark: Any, url: str, namespace: str, location: str) -> None:
        check_iceberg(spark)
        self._jvm = jvm = spark.sparkContext._jvm
        given = {**catalog_properties(url, location), **_given_properties(spark)}
        self._api = _IcebergApi(jvm)
        self._found: dict[str, Any] = {}  # tables that are about to change, as they were found
        self._default_format = given.get("table-default.format-version", str(_FORMAT))
        self._settings = _file_settings(jvm, spark.sparkContext._jsc.hadoopConfiguration())
        self._parquet_settings = self._api.parquet_settings(self._settings)
        self._catalog = self._api.build_catalog(CATALOG, self._map(given), self._settings)
        self._location = location
        self._namespace = self._api.namespace_of(self._strings([namespace]))
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
        metadata = found.operations().current()
        snapshot = found.currentSnapshot()
        summary = {} if snapshot is None else snapshot.summary()
        return PublishedTable(
            str(summary.get(COMMIT_PROPERTY) or ""),
            declared_defaults(self._api.schema_to_json(found.schema())),
            metadata.formatVersion() >= _FORMAT,
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
        if before is not None:
            self._leave_partition(transaction, table, change)
        self._set_schema(table, change)
        self._enter_partition(transaction, table, change)
        properties = transaction.updateProperties()
        names = {"schema.name-mapping.default": change.schema.names}
        for key, value in {**_TABLE_PROPERTIES, **names, **change.properties}.items():
            properties.set(key, value)
        properties.commit()
        self._set_files(transaction, table, before, change)
        transaction.commitTransaction()
        if (
            before is not None
            and before.operations().current().snapshots().size() > _MOST_SNAPSHOTS
        ):
            update = self._catalog.loadTable(self._name(change.table)).expireSnapshots()
            update.expireOlderThan(2**62).retainLast(_MOST_SNAPSHOTS // 2)
            update.cleanupLevel(self._api.metadata_only).commit()

    def expire(self, table: str, number: int) -> bool:
        """Expire the snapshots of commits before `number`; False if the current one is of these."""
        found = self._load(table)
        if found is None:
            return True
        current = found.currentSnapshot()
        if current is not None and _commit_number(current) < number:
            return False
        update = found.expireSnapshots().cleanupLevel(self._api.metadata_only)
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
        none = self._api.schema(self._api.list())
        builder = self._catalog.buildTable(self._name(change.table), none)
        builder.withLocation(f"{self._location}/{change.table}")
        builder.withProperty("format-version", self._default_format)
        return builder.createTransaction()

    def _set_schema(self, table: Any, change: TableChange) -> None:
        """Give the table the ids of its files, which no ordinary change of a schema allows."""
        schema = self._api.schema_from_json(change.schema.fields)
        if table.schema().sameSchema(schema):
            return
        operations = table.operations()
        base = operations.current()
        builder = self._api.metadata_from(base)
        builder.setCurrentSchema(schema, max(change.schema.last_id, base.lastColumnId()))
        operations.commit(base, builder.build())

    def _leave_partition(self, transaction: Any, table: Any, change: TableChange) -> None:
        """Stop partitioning new files by another column."""
        fields = table.spec().fields()
        for at in range(fields.size()):  # a Java iterator ends by an exception
            field = fields.get(at)
            if field.sourceId() != change.schema.day_id:
                transaction.updateSpec().removeField(field.name()).commit()

    def _enter_partition(self, transaction: Any, table: Any, change: TableChange) -> None:
        """Partition new files by the day of the change's column."""
        wanted = change.schema.day_of
        if wanted is not None and table.spec().isUnpartitioned():
            day = self._api.day(wanted)
            transaction.updateSpec().addField(self._day_name(table, wanted), day).commit()

    def _day_name(self, table: Any, column: str) -> str:
        name = f"{column}_day"
        while table.schema().findField(name) is not None:
            name += "_"
        return name

    def _set_files(self, transaction: Any, table: Any, before: Any, change: TableChange) -> None:
        leaving, kept = [], set()
        wanted = {file.uri for file in change.added}
        if before is not None and (change.all_files or change.removed):
            for file in _files(before):
                uri = file.location()
                if uri not in wanted if change.all_files else _is_in(uri, change.removed):
                    leaving.append(file)
                else:
                    kept.add(uri)
        added = [file for file in change.added if file.uri not in kept]
        update = self._update(transaction, change, adds=bool(added), removes=bool(leaving))
        for file in leaving:
            update.deleteFile(file)
        add = update.addFile if leaving else update.appendFile
        if added:
            names = self._api.names_from_json(change.schema.names)
            config, spec = self._api.metrics_config(table), table.spec()
            for new in added:
                metrics = self._metrics(new, config, names)
                add(self._data_file(table, spec, metrics, change, new))
        for key, value in change.summary.items():
            update.set(key, value)
        update.commit()

    def _metrics(self, new: PublishedFile, config: Any, names: Any) -> Any:
        """Return the statistics in a file's footer, by the ids of the table."""
        status = self._api.file_status(new.bytes, False, 1, 1, 0, self._api.path(new.uri))
        source = self._api.parquet_file(status, self._settings)
        reader = self._api.open_parquet(
            source, self._api.read_options(self._parquet_settings).build()
        )
        try:
            empty = self._api.no_field_metrics()
            return self._api.footer_metrics(reader.getFooter(), empty, config, names)
        finally:
            reader.close()

    def _update(self, transaction: Any, change: TableChange, *, adds: bool, removes: bool) -> Any:
        if not removes:
            return transaction.newAppend()
        if adds and change.operation == "replace":
            return transaction.newRewrite()
        return transaction.newOverwrite()

    def _data_file(
        self, table: Any, spec: Any, metrics: Any, change: TableChange, new: PublishedFile
    ) -> Any:
        in_day = change.schema.day_id and self._is_of_day(metrics, change.schema.day_id, new.day)
        if not in_day:
            spec = self._no_partition(table)
        # Not by the input file: Hadoop would write its URI otherwise, and compare it as text.
        builder = self._api.data_file(spec).withPath(new.uri)
        builder.withFileSizeInBytes(new.bytes)
        builder.withFormat("parquet").withMetrics(metrics)
        if in_day:
            builder.withPartitionPath(f"{spec.fields().get(0).name()}={new.day[:10]}")
        return builder.build()

    def _no_partition(self, table: Any) -> Any:
        return next(s for s in table.specs().values() if s.isUnpartitioned())

    def _is_of_day(self, metrics: Any, column: int, day: str) -> bool:
        """Return whether a file's statistics prove that each time in it is in one UTC day."""
        nulls = metrics.nullValueCounts().get(column)
        bounds = [metrics.lowerBounds().get(column), metrics.upperBounds().get(column)]
        if nulls != 0 or any(bound is None for bound in bounds):
            return False
        start = (date.fromisoformat(day[:10]) - date(1970, 1, 1)).days
        return all(
            self._api.value_of(self._api.timestamp, bound) // _MICROS_OF_DAY == start
            for bound in bounds
        )

    def _name(self, table: str) -> Any:
        return self._api.identifier_of(self._namespace, table)

    def _map(self, values: Mapping[str, str]) -> Any:
        found = self._api.map()
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


def _files(table: Any) -> Iterator[Any]:
    """Yield the data files of the current snapshot."""
    if table.currentSnapshot() is None:
        return
    tasks = table.newScan().planFiles()
    try:
        each = tasks.iterator()
        while each.hasNext():
            yield each.next().file()
    finally:
        tasks.close()


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
