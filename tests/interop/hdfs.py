"""HDFS itself, for tests of the loader: fetched by Maven, run as a child process.

    with start(folder) as hdfs:
        os.environ["HADOOP_CONF_DIR"] = str(folder / "conf")
        root = parse_path(f"hdfs://{hdfs.address}/warehouse")

`HEADWORKS_TEST_WAREHOUSE=hdfs pytest tests/hadoop_loader` puts the warehouses of the loader's tests
there, which runs what they state of a load against another file system than this machine's.

Rules: see `maven`; a name node and a data node in one process on loopback, with free ports;
`start` returns when they are one, and they do not outlive the process that started them.
"""

from __future__ import annotations

import os
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

from headworks._cli.stack.ports import free_ports
from headworks._server.child_process import Service
from headworks.errors import RefusedError, UnreachableError
from tests.interop import maven

VARIABLE = "HEADWORKS_TEST_WAREHOUSE"
_POM = Path(__file__).parent / "hdfs.xml"
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_SITE = """<configuration>
  <property><name>dfs.namenode.http-address</name><value>127.0.0.1:{port}</value></property>
</configuration>
"""


def version() -> str:
    """The release of Hadoop that `hdfs.xml` names."""
    found = ElementTree.parse(_POM).findtext("properties/hadoop.version")
    assert found is not None
    return found


@cache
def fetch() -> list[Path]:
    """The jars of HDFS and of all it needs; fetched once, then from the cache."""
    return maven.fetch(_POM, f"hdfs-{version()}", f"Hadoop {version()}")


def start(folder: Path, *, timeout: float = 120.0) -> Service:
    """Start HDFS, empty, with its data, its log and the `conf` of its clients in `folder`.

    Raises RefusedError with its own words if it ends, UnreachableError if it does not come up
    within `timeout` seconds.
    """
    conf, ready = folder / "conf", folder / "ready.xml"
    conf.mkdir(parents=True)
    port, http = free_ports(2)
    conf.joinpath("hdfs-site.xml").write_text(_SITE.format(port=http))
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += [f"-Dtest.build.data={folder / 'data'}", f"-Dhdfs.minidfs.basedir={folder / 'data'}"]
    arguments = ["-datanodes", "1", "-format", "-nnport", str(port), "-httpport", str(http)]
    arguments += ["-writeConfig", str(ready)]
    classpath = os.pathsep.join(map(str, fetch()))
    log = (folder / "hdfs.log").open("a+", encoding="utf-8")
    process = subprocess.Popen(
        [*maven.bound(), "java", *options, "-cp", classpath, _MAIN, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        text=True,
        start_new_session=True,
    )
    running = Service("hdfs", f"127.0.0.1:{port}", process, log)
    try:
        _await(running, ready, timeout)
    except BaseException:
        running.kill()
        raise
    return running


def _await(running: Service, ready: Path, timeout: float) -> None:
    """Return when the cluster has said that its data node is there."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if ready.exists():
            return
        code = running.process.poll()
        if code is not None:
            raise RefusedError(f"HDFS ended with exit code {code}:\n{running.words()[-4000:]}")
        time.sleep(0.1)
    raise UnreachableError(f"HDFS did not come up within {timeout:.0f} s:\n{running.words()}")
