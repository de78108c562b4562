"""A Hive metastore, and whatever else is Java, as processes of the jars in PySpark's wheel."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headworks._cli.stack.ports import free_ports

_LIMIT = 600.0
METASTORE_SETTINGS = {
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
}


@contextmanager
def metastore(folder: Path) -> Iterator[str]:
    """The address of a Hive metastore."""
    port, conf = free_ports(1)[0], folder / "conf"
    conf.mkdir()
    settings = {
        **METASTORE_SETTINGS,
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/meta;create=true",
        "hive.metastore.warehouse.dir": f"file://{folder}/managed",
    }
    write_site(conf / "hive-site.xml", settings)
    main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
    with java(folder, "metastore", f"{conf}:", main, "-p", str(port)):
        wait_for(port)
        yield f"thrift://127.0.0.1:{port}"


def write_site(file: Path, settings: Mapping[str, str]) -> None:
    """Write a configuration file of Hadoop or Hive."""
    properties = "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()
    )
    file.write_text(f"<configuration>{properties}</configuration>", encoding="utf-8")


@contextmanager
def java(
    folder: Path, name: str, before: str, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A Java process on the jars of SPARK_HOME, or of the wheel, killed at the end."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    settings = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    settings |= {"PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(folder / name)}
    # Otherwise Spark's launcher looks for it in build folders, which a wheel does not have.
    settings |= {"SPARK_SCALA_VERSION": "2.13"}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-cp", f"{before}{home}/jars/*", *arguments],
            env={**os.environ, **settings},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    """Return when something listens there."""
    deadline = time.monotonic() + _LIMIT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
