"""Everything that needs Spark's JVM, and SQL over HiveServer2.

- `session`: one quiet JVM with an embedded metastore. `jobs`: tasks as one Spark job.
- `datasource`: topics as DataFrames. `hiveserver2`: the server. `sql`: its client.
- `event_time_pruning`: filters on the event time that read the partitions of their days alone.
- `jvm_class_archive`, `class_archive_training`: a faster start.
- `errors`: exceptions of Spark and its JVM as errors of ours.
"""
