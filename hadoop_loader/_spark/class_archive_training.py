"""`python -m hadoop_loader._spark.class_archive_training FOLDER`: build the JVM's class archive.

A Spark session of its own creates a table and a view, reads, writes, and answers SQL. Its JVM then
writes the classes that it loaded into the archive, on top of one of its own classes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hadoop_loader._config import WarehouseConfig
from hadoop_loader._spark.hiveserver2 import serve
from hadoop_loader._spark.jvm_class_archive import QUIET, ClassArchive
from hadoop_loader._spark.session import start_session, stop_session
from hadoop_loader._spark.sql import query
from hadoop_loader._tables.columns import METADATA_COLUMNS, ScalarColumn, StructField
from hadoop_loader._tables.hive_catalog import HiveCatalog
from headworks._server.java import find_java

_LONGEST_SECONDS = 900.0


def train(data: Path, archive: Path) -> None:
    """Run a session that does what a load does; its JVM writes `archive` when it ends."""
    os.environ.pop("SPARK_CONF_DIR", None)
    config = WarehouseConfig(data_dir=data, bootstrap="", registry="")
    below = _archive_of_java(archive.parent)
    options = (f"-XX:SharedArchiveFile={below}", f"-XX:ArchiveClassesAtExit={archive}", *QUIET)
    spark = start_session(config, extra=options)
    try:
        catalog = HiveCatalog(spark, config.files_database, config.database)
        catalog.prepare(config.metastore)
        columns = (StructField("n", ScalarColumn("int")), *METADATA_COLUMNS)
        catalog.put_table("t", columns, data / "t", "A table.", {"a": "b"})
        source = catalog.source_of("t")
        view = f"SELECT CASE WHEN coalesce(_load, 0) < 2 THEN 1 ELSE n END AS n FROM {source}"
        catalog.put_view("t", columns[:1], view, "A view.", {"a": "b"})
        catalog.add_days("t", ["2013-01-31"])
        catalog.relocate("t", {"2013-01-31": data / "u"})
        rows = spark.sparkContext.parallelize([(0,), (1,)], 2).flatMap(tuple).collect()
        spark.createDataFrame([rows], "n int, m int").write.parquet(f"file://{data}/u/x")
        spark.read.parquet(f"file://{data}/u/x").selectExpr("count(DISTINCT n, m)").collect()
        host, port = serve(spark, "127.0.0.1", 0)
        query(f"{host}:{port}", "SELECT n, count(*) FROM t GROUP BY n ORDER BY n")
    finally:
        stop_session(spark, wait=_LONGEST_SECONDS)


def _archive_of_java(folder: Path) -> Path:
    """Have the JVM write the archive of its own classes, and return that file."""
    java, file = find_java(), folder / "java.jsa"
    subprocess.run(
        [java.command, "-Xshare:dump", f"-XX:SharedArchiveFile={file}", "-XX:+UseSerialGC"],
        env={**os.environ, **java.environment},
        check=True,
    )
    return file


if __name__ == "__main__":
    os.nice(19)
    ClassArchive(Path(sys.argv[1])).make(train)
