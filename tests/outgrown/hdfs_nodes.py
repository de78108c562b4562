"""HDFS of a name node and two data nodes, each a process of its own, with two copies of a block."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

from headworks._cli.stack.ports import free_ports
from headworks.errors import RefusedError
from tests.interop import hdfs
from tests.outgrown.servers import Server
from tests.soak.hive import write_site

_DATA_NODES = 2
_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SERVERS = "org.apache.hadoop.hdfs.server"
_DEAD_AFTER_MS = 5_000  # and twice that many, and ten heartbeats


class HdfsNodes:
    """The nodes of one file system; clients read `conf` by HADOOP_CONF_DIR."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._http = free_ports(2)
        self.conf = self._configured("name", {})
        self.name_node = self._server(
            "name node", self.conf, f"{_SERVERS}.namenode.NameNode", self._answers
        )
        self.data_nodes = [self._data_node(number) for number in range(_DATA_NODES)]

    @property
    def uri(self) -> str:
        """The root of the file system."""
        return f"hdfs://127.0.0.1:{self._port}"

    def launch(self) -> None:
        """Format the name node, start all, and return at once."""
        done = subprocess.run(
            [*self.name_node.command, "-format", "-force", "-nonInteractive"],
            env={**os.environ, "HADOOP_CONF_DIR": str(self.conf)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RefusedError(f"HDFS cannot be formatted:\n{done.stderr[-4000:]}")
        for server in (self.name_node, *self.data_nodes):
            server.launch()

    def wait(self) -> None:
        """Return when both data nodes are known."""
        for server in (self.name_node, *self.data_nodes):
            server.wait()

    def _data_node(self, number: int) -> Server:
        data, http, ipc = free_ports(3)
        conf = self._configured(
            f"data-{number + 1}",
            {
                "dfs.datanode.address": f"127.0.0.1:{data}",
                "dfs.datanode.http.address": f"127.0.0.1:{http}",
                "dfs.datanode.ipc.address": f"127.0.0.1:{ipc}",
            },
        )
        return self._server(
            f"data node {number + 1}",
            conf,
            f"{_SERVERS}.datanode.DataNode",
            lambda: f"127.0.0.1:{data}" in self._live(),
        )

    def _configured(self, name: str, settings: dict[str, str]) -> Path:
        """Write the configuration of a node, and return its folder."""
        folder = self._folder / name
        conf = folder / "conf"
        conf.mkdir(parents=True)
        every = {
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
            "dfs.namenode.name.dir": str(folder / "names"),
            "dfs.datanode.data.dir": str(folder / "blocks"),
            "dfs.replication": str(_DATA_NODES),
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": str(_DEAD_AFTER_MS),
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.permissions.enabled": "false",
            "hadoop.tmp.dir": str(folder / "tmp"),
            **settings,
        }
        write_site(conf / "hdfs-site.xml", every)
        write_site(conf / "core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{self._port}"})
        return conf

    def _server(self, name: str, conf: Path, main: str, answers: Callable[[], bool]) -> Server:
        classpath = os.pathsep.join([str(conf), *map(str, hdfs.fetch())])
        log = conf.parent / "node.log"
        return Server(name, [*_JAVA, "-cp", classpath, main], log, answers)

    def _answers(self) -> bool:
        return self._asked("NameNodeStatus") is not None

    def _live(self) -> str:
        found = self._asked("NameNodeInfo")
        return "" if found is None else str(found.get("LiveNodes", ""))

    def _asked(self, bean: str) -> dict[str, object] | None:
        url = f"http://127.0.0.1:{self._http}/jmx?qry=Hadoop:service=NameNode,name={bean}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                beans: list[dict[str, object]] = json.load(answer)["beans"]
        except OSError:
            return None
        return beans[0] if beans else None
