"""Spark's own way: its Kafka source and from_avro, `python -m bench.loader.spark_peer JSON`.

Rules: the jars are Spark's, of the version that is installed, fetched from Maven Central once into
the user's cache; Headworks never depends on them. It writes what the loader writes: Parquet (zstd)
by day of the event, with partition, offset and timestamp, on one core.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headworks.errors import UnreachableError, UsageError

__all__ = ["fetch_jars", "main"]

_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>headworks</groupId><artifactId>bench-loader</artifactId><version>0</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-avro_2.13</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""
# What the jars of PySpark do not have yet.
_ARTIFACTS = (
    "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,spark-avro_2.13,"
    "kafka-clients,commons-pool2"
)


def fetch_jars() -> list[Path]:
    """Spark's jars for Kafka and Avro. UsageError, UnreachableError: they cannot be had."""
    import pyspark

    version = pyspark.__version__
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "headworks" / f"spark-kafka-{version}"
    if not folder.is_dir():
        if shutil.which("mvn") is None:
            raise UsageError("Spark's jars are fetched by Maven, and there is no `mvn`")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            pom, jars = Path(temporary) / "pom.xml", Path(temporary) / "jars"
            pom.write_text(_POM.format(version=version), encoding="utf-8")
            done = subprocess.run(
                [
                    *("mvn", "--batch-mode", "--quiet", "--file", str(pom)),
                    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies",
                    f"-DincludeArtifactIds={_ARTIFACTS}",
                    f"-DoutputDirectory={jars}",
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode or not jars.is_dir():
                why = next((line for line in done.stdout.splitlines() if "ERROR" in line), "")
                raise UnreachableError(f"Maven gives no jars of {version}: {why[-300:]}")
            jars.rename(folder)
    return sorted(folder.glob("*.jar"))


def main(text: str) -> None:
    """Load the topic twice in one session, and print what the second time took."""
    from pyspark.sql import SparkSession

    given: dict[str, Any] = json.loads(text)
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
