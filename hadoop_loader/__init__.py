"""The Hadoop loader: every topic into Hive tables, in its latest schema, exactly once.

- pure: `columns` (Avro types to column types), `resolution` (writer and reader schema to a
  program), `codegen` (a program to Python), `widening` (what a table's files can follow), `views`
  (the SQL that shows old rows the schema's defaults), `plan` (ranges into bins);
- a task, without Spark: `fetch`, `decode`, `task`;
- the commit: `commits` (numbered records, the only home of offsets), `roll_forward`, `catalog`;
- the edge: `session`, `serve`, `sql`, `warehouse`.

Rule: importing this package starts nothing and imports neither Spark nor Arrow.
"""

from hadoop_loader.config import WarehouseConfig
from hadoop_loader.report import LoadReport, TopicReport
from hadoop_loader.warehouse import Warehouse

__all__ = ["LoadReport", "TopicReport", "Warehouse", "WarehouseConfig"]
