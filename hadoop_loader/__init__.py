"""The Hadoop loader: every topic into Hive tables, in its latest schema, exactly once.

Its packages; each imports only packages below it:

- `_warehouse`: the class that users open. `_config`: where a warehouse is, and what it reads.
- `_spark`: the session, tasks as Spark jobs, HiveServer2, topics as DataFrames.
- `_operations`: load, rewind, rebuild, compact; status, verify, metrics.
- `_iceberg`: each commit as a snapshot of Iceberg tables.
- `_commit`: the commit log, the transaction, and the work after a commit.
- `_tasks`: one task: fetch, decode, write files, count.
- `_decode`: Avro bytes to Arrow columns of the latest schema; quarantine.
- `_fetch`: offset ranges and messages. `_tables`: columns, views, and the metastore.
- `_storage`: files and locks, on this machine, HDFS, or S3.

Rule: importing this package starts nothing, and imports neither Spark nor Arrow.
"""

from typing import Any

from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.report import LoadReport, TopicReport
from hadoop_loader._config import WarehouseConfig
from hadoop_loader._warehouse import Warehouse

__all__ = [
    "LoadReport",
    "Policy",
    "TopicReport",
    "Warehouse",
    "WarehouseConfig",
    "prune_by_event_time",
    "register",
]


def prune_by_event_time(spark: Any) -> None:
    """Let filters on the event time read the partitions of their days alone, in a Spark session.

    It needs a classic session, not one of Spark Connect. Doing it twice changes nothing.
    """
    from hadoop_loader._spark import event_time_pruning

    event_time_pruning.prune_by_event_time(spark)


def register(spark: Any) -> None:
    """Register the Spark data source: `spark.read.format("headworks")`."""
    from hadoop_loader._spark.datasource import HeadworksSource

    spark.dataSource.register(HeadworksSource)
