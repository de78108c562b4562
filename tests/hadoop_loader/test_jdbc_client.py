"""A JDBC client, beeline, at the loader's HiveServer2: the documented address gives the rows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pyspark
import pytest

from headworks._server.java import find_java
from tests.tools import needs

pytestmark = [pytest.mark.contract, pytest.mark.spark]


@needs("javac")  # in CI's second stage: a JVM more would be too much for a machine with nothing
def test_beeline_reads_a_view(spark: Any, hive: str) -> None:
    spark.sql("CREATE OR REPLACE VIEW read_by_jdbc AS SELECT 'ada' AS customer, 3 AS items")
    beeline = str(Path(pyspark.__file__).parent / "bin" / "beeline")
    address = f"jdbc:hive2://{hive}/default;auth=noSasl"
    query = "SELECT customer, items FROM read_by_jdbc"
    done = subprocess.run(
        [
            beeline,
            "-u",
            address,
            "-n",
            "anyone",
            "--silent=true",
            "--outputformat=csv2",
            "-e",
            query,
        ],
        env={**os.environ, **find_java().environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["customer,items", "ada,3"], done.stdout  # after a prompt
