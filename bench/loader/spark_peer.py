"""Spark's own way: its Kafka source and from_avro; `python spark_peer.py JSON` prints the times.

Rules: it runs as a script, by the interpreter of an environment that has Spark and nothing of
Headworks (see spark_fetch). It writes what the loader writes, on one core: Parquet (zstd) by day of
the event, with partition, offset, and timestamp.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main(text: str) -> None:
    """Load the topic twice in one session, and print what the second time took."""
    from pyspark.sql import SparkSession

    given: dict[str, Any] = json.loads(text)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("bench")
    settings = {
        "spark.jars": ",".join(given["jars"]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.parquet.compression.codec": "zstd",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    wall, rows = 0.0, 0
    for turn in ("first", "second"):
        began = time.perf_counter()
        rows = _load(spark, given, str(Path(given["folder"]) / turn))
        wall = time.perf_counter() - began
    spark.stop()
    sys.stdout.write(json.dumps({"rows": rows, "wall": wall}))


def _load(spark: Any, given: dict[str, Any], folder: str) -> int:
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import col, expr, to_date

    messages = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("subscribe", given["topic"])
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    rows = messages.select(
        from_avro(expr("substring(value, 6)"), given["schema"]).alias("event"),
        col("partition").alias("_partition"),
        col("offset").alias("_offset"),
        col("timestamp").alias("_timestamp"),
    ).select("event.*", "_partition", "_offset", "_timestamp")
    dated = rows.withColumn("datepartition", to_date(col(given["event_time"])))
    dated.write.mode("overwrite").partitionBy("datepartition").parquet(folder)
    return sum(given["ends"])


if __name__ == "__main__":
    main(sys.argv[1])
