"""The Hadoop loader: every topic into Hive tables, in its latest schema, exactly once.

- pure: `columns` (Avro types to column types), `codegen` (a program to Python), `widening` (what a
  table's files can follow), `views` (the SQL that shows old rows the schema's defaults), `plan`
  (ranges into bins), `policy` (which topics, which partitions), `manifests`, `draft`;
- a task, without Spark: `fetch`, `decode`, `task`, `rewrite`;
- what changes a warehouse, each a commit: `loading`, `reloading`, `rebuilding`, `compacting`, on
  `work` (recover, commit, apply);
- the commit: `commits` (numbered records, the only home of offsets), `roll_forward`, `catalog`;
- the edge: `session`, `spark_job`, `serve`, `sql`, `every`, `metrics`, `warehouse`.

Rule: importing this package starts nothing and imports neither Spark nor Arrow.
"""

from typing import Any

from hadoop_loader.config import WarehouseConfig
from hadoop_loader.policy import Policy
from hadoop_loader.report import LoadReport, TopicReport
from hadoop_loader.warehouse import Warehouse

__all__ = ["LoadReport", "Policy", "TopicReport", "Warehouse", "WarehouseConfig", "register"]


def register(spark: Any) -> None:
    """Let a Spark session read and write topics: `spark.read.format("headworks")`."""
    from hadoop_loader.datasource import HeadworksSource

    spark.dataSource.register(HeadworksSource)
