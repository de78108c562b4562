"""Fetches the peer: a Spark whose Kafka and Avro jars are on Maven Central, in its own folder.

Rules: everything is stored in the user's cache, once. Headworks never depends on it. The jars must
have the version of Spark, and Maven Central can lag behind the package that Headworks runs on. The
version is therefore fixed, with the libraries it was built with.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headworks.errors import UnreachableError, UsageError

SPARK_VERSION = "4.0.0"
_SPARK_JARS = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "spark-avro_2.13",
)
_ARTIFACTS = (
    *(("org.apache.spark", name, SPARK_VERSION) for name in _SPARK_JARS),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
_DEPENDENCY = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>headworks</groupId><artifactId>bench-loader</artifactId><version>0</version>
  <packaging>pom</packaging>
  <dependencies>
{}  </dependencies>
</project>
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """An interpreter that has PySpark, and the jars that PySpark lacks."""

    python: Path
    jars: tuple[Path, ...]


def fetch_peer() -> Peer:
    """The peer, fetched if need be. UsageError, UnreachableError: it cannot be had."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "headworks" / f"spark-kafka-{SPARK_VERSION}"
    if not (folder / "jars").is_dir():
        _fetch_jars(folder / "jars")
    if not (folder / "python.ready").exists():
        _make_environment(folder / "python")
        (folder / "python.ready").touch()
    return Peer(folder / "python" / "bin" / "python", tuple(sorted(folder.glob("jars/*.jar"))))


def _fetch_jars(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise UsageError("Spark's jars are fetched by Maven, and there is no `mvn`")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        pom, jars = Path(temporary) / "pom.xml", Path(temporary) / "jars"
        pom.write_text(
            _POM.format("".join(_DEPENDENCY.format(*artifact) for artifact in _ARTIFACTS)),
            encoding="utf-8",
        )
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        maven = ("mvn", "--batch-mode", "--quiet", "-U", "--file", str(pom))
        _run(
            [*maven, copy, f"-DoutputDirectory={jars}"],
            f"Maven gives no jars of Spark {SPARK_VERSION}",
        )
        jars.rename(folder)


def _make_environment(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    why = f"pip gives no PySpark {SPARK_VERSION}"
    _run([sys.executable, "-m", "venv", str(folder)], why)
    _run([str(folder / "bin" / "pip"), "install", "--quiet", f"pyspark=={SPARK_VERSION}"], why)


def _run(command: Sequence[str], why: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise UnreachableError(f"{why}: {lines[0][-300:] if lines else done.stderr[-300:]}")
