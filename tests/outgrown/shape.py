"""Every server of the large shape, started in order, and the settings file that names them.

    with running_shape(folder) as shape:
        subprocess.run(["headworks", "demo", "--on", shape.settings], env=shape.environment)

Three nodes of Apache Kafka, two registries and two reconcilers on one PostgreSQL, an ensemble of
three ZooKeepers, a Spark master with two workers, a Hive metastore on PostgreSQL, and HDFS with two
data nodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyspark

from headworks._cli.stack.ports import free_ports
from headworks._cli.stack.stack import register_platform_schemas
from headworks.errors import RefusedError
from tests.ensemble import Ensemble
from tests.interop import maven
from tests.outgrown.hdfs_nodes import HdfsNodes
from tests.outgrown.kafka_nodes import NODES, KafkaNodes
from tests.outgrown.network import network, possible
from tests.outgrown.servers import Server, listens
from tests.registry import postgresql
from tests.soak.hive import METASTORE_SETTINGS, write_site

_SPARK_HOME = Path(pyspark.__file__).parent
_WORKERS = 2
_DATANUCLEUS = "org.datanucleus"


@dataclass(slots=True)
class Shape:
    """The running servers, by what they do."""

    folder: Path
    postgresql: postgresql.Cluster
    kafka: KafkaNodes
    hdfs: HdfsNodes
    zookeeper: Ensemble
    registries: list[Server]
    reconcilers: list[Server]
    metastore: Server
    spark_master: Server
    spark_workers: list[Server]
    settings: Path  # headworks.toml of the installation

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command that uses the installation."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("HEADWORKS_")}
        conf = {"HADOOP_CONF_DIR": str(self.hdfs.conf), "SPARK_LOCAL_IP": "127.0.0.1"}
        return {**own, **conf, "HEADWORKS_CONFIG": str(self.settings)}


@contextmanager
def running_shape(folder: Path) -> Iterator[Shape]:
    """Start everything, and kill it afterwards; takes about a minute on two cores."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stores = stack.enter_context(postgresql.running_cluster())
        started = _Started(folder, stack)
        hosts = stack.enter_context(network(NODES)) if possible() else []
        kafka, hdfs = KafkaNodes(folder / "kafka", hosts), HdfsNodes(folder / "hdfs")
        zookeeper = Ensemble(folder / "zookeeper", size=3)
        for server in (*kafka.nodes, hdfs.name_node, *hdfs.data_nodes):
            stack.callback(server.kill)
        stack.callback(zookeeper.stop)
        # In this thread: the kernel ends a server with the thread that started it.
        kafka.launch()
        hdfs.launch()
        zookeeper.start()
        kafka.wait()
        hdfs.wait()
        registry_store, audit_store, tables = (stores.new_store() for _ in range(3))
        registries = [started.registry(n, registry_store) for n in (1, 2)]
        urls = ",".join(f"http://{address}" for _, address in registries)
        register_platform_schemas(urls)
        metastore, metastore_uri = started.metastore(stores.port, tables, hdfs.conf)
        master, master_url = started.spark_master()
        workers = [started.spark_worker(n + 1, master_url, hdfs.conf) for n in range(_WORKERS)]
        reconcilers = [started.reconciler(n, audit_store, kafka.address, urls) for n in (1, 2)]
        settings = {
            "bootstrap": kafka.address,
            "registry": urls,
            "zookeeper": zookeeper.address,
            "audit_store": audit_store,
            "metastore": metastore_uri,
            "spark_master": master_url,
            "warehouse": f"{hdfs.uri}/warehouse",
            "data_dir": str(folder / "data"),
        }
        file = folder / "outgrown.toml"
        file.write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))
        yield Shape(
            folder=folder,
            postgresql=stores,
            kafka=kafka,
            hdfs=hdfs,
            zookeeper=zookeeper,
            registries=[server for server, _ in registries],
            reconcilers=reconcilers,
            metastore=metastore,
            spark_master=master,
            spark_workers=workers,
            settings=file,
        )


class _Started:
    """Starts servers of one process in a folder, and kills them at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack

    def registry(self, number: int, store: str) -> tuple[Server, str]:
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        command = _ours("registry", "start", "--listen", address, "--store", store)
        server = self._start(f"registry-{number}", command, port)
        # It listens before it has opened its store, and ends if the store is away then.
        server.answers = partial(_lists_subjects, f"http://{address}/subjects")
        server.wait()
        return server, address

    def reconciler(self, number: int, store: str, bootstrap: str, registries: str) -> Server:
        (port,) = free_ports(1)
        where = ["--bootstrap", bootstrap, "--registry", registries, "--store", store]
        command = _ours("audit", "run", *where, "--metrics", f"127.0.0.1:{port}")
        return self._start(f"reconciler-{number}", command, port)

    def metastore(self, sql_port: int, store: str, hadoop: Path) -> tuple[Server, str]:
        (port,) = free_ports(1)
        conf = self._folder / "metastore"
        conf.mkdir()
        name = store.rpartition("/")[2]
        database = {
            "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://127.0.0.1:{sql_port}/{name}",
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": "postgres",
        }
        folder = {"hive.metastore.warehouse.dir": f"file://{conf}/managed"}
        write_site(conf / "hive-site.xml", {**METASTORE_SETTINGS, **database, **folder})
        jars = maven.postgresql_driver()
        before = os.pathsep.join([str(conf), str(hadoop), *map(str, jars)])
        _make_metastore_tables(conf, database, before)
        main = ("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port))
        server = self._start("metastore", _java("384m", *main, before=before), port)
        return server, f"thrift://127.0.0.1:{port}"

    def spark_master(self) -> tuple[Server, str]:
        (port,) = free_ports(1)
        main = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1")
        command = _java("256m", *main, "--port", str(port), "--webui-port", "0")
        return self._start("spark-master", command, port), f"spark://127.0.0.1:{port}"

    def spark_worker(self, number: int, master: str, hadoop: Path) -> Server:
        (port,) = free_ports(1)
        main = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m")
        options = ("1g", "--port", str(port), "--webui-port", "0", master)
        work = {"SPARK_WORKER_DIR": str(self._folder / f"spark-worker-{number}")}
        work["HADOOP_CONF_DIR"] = str(hadoop)
        return self._start(f"spark-worker-{number}", _java("256m", *main, *options), port, work)

    def _start(
        self, name: str, command: list[str], port: int, env: dict[str, str] | None = None
    ) -> Server:
        spark = {
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",  # its launcher does not find it in a wheel
            "PYSPARK_PYTHON": sys.executable,
        }
        log = self._folder / f"{name}.log"
        server = Server(name, command, log, partial(listens, port), {**spark, **(env or {})})
        self._stack.callback(server.kill)
        server.launch()
        server.wait()
        return server


def _make_metastore_tables(conf: Path, database: Mapping[str, str], before: str) -> None:
    """Make all tables of a Hive metastore, as an administrator does before it starts.

    One that makes them when it needs them waits for its own transaction for ever: PostgreSQL has
    locked the tables that a new one refers to.
    """
    (jar,) = (_SPARK_HOME / "jars").glob("hive-metastore-*.jar")
    with zipfile.ZipFile(jar) as archive:
        classes = archive.extract("package.jdo", conf)
    factory = f"{_DATANUCLEUS}.api.jdo.JDOPersistenceManagerFactory"
    settings = {
        "javax.jdo.PersistenceManagerFactoryClass": factory,
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.identifierFactory": "datanucleus1",
        **database,
    }
    file = conf / "tables.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    tool = (f"{_DATANUCLEUS}.store.schema.SchemaTool", "-create", "-api", "JDO")
    command = _java("256m", *tool, "-props", str(file), classes, before=before)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or "completed successfully" not in done.stdout:
        raise RefusedError(f"the metastore's tables cannot be made:\n{done.stdout}{done.stderr}")


def _ours(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "headworks._cli", *arguments]


def _java(heap: str, *main: str, before: str = "") -> list[str]:
    classpath = f"{before}{os.pathsep}{_SPARK_HOME}/jars/*"
    return ["java", f"-Xmx{heap}", "-cp", classpath, *main]


def _lists_subjects(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
