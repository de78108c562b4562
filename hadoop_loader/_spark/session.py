"""A Spark session for the loader: one JVM, quiet, on loopback, with an embedded metastore.

Rules:

- Java and the metastore's lock are checked before the JVM starts, because a JVM takes seconds to
  start, and its errors are hard to read. Closing a session ends its JVM.
- Under `spark-submit` there is a JVM already. Its master, its Java, and its options count.
- A JVM that only loads uses the first compiler alone. It lives for seconds and runs small
  statements, so the second compiler would cost more time than it saves.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hadoop_loader._config import WarehouseConfig
from hadoop_loader._spark.errors import first_line
from hadoop_loader._spark.jvm_class_archive import ClassArchive
from hadoop_loader._spark.jvm_stderr import JvmStderr
from hadoop_loader._storage.filesystem import AnyPath, spark_file_system, spark_settings
from headworks import _system_calls
from headworks._server.java import Java, find_java
from headworks.errors import UnreachableError, UsageError

_LOG_SETTINGS = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
"""
# On a cluster, the modules may reach workers with the job only, after the daemon has started.
_DAEMON = {"spark.python.daemon.module": "hadoop_loader._spark.worker_daemon"}
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    **_DAEMON,
}
# Java would reserve 48 MB for this compiler's code. Spark alone takes 35 MB, and a statement for
# which there is no room fails (VirtualMachineError).
_FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=192m")
_ADDRESS_VARIABLE = "SPARK_LOCAL_IP"
# PySpark logs these exceptions to stderr, with stack traces, and also raises them.
_DUPLICATE_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_FLOCK = struct.Struct("hhqqi4x")


def check_java() -> Java:
    """Have Spark use the Java that there is, and return it.

    Raises UsageError if there is none, or it is too old.
    """
    java = find_java()
    os.environ.update(java.environment)
    return java


def check_metastore_free(metastore: Path, *, wait: float = 15.0) -> None:
    """Raise UsageError, with the process, if another one holds the metastore for `wait` seconds.

    The JVM of a loader that was killed takes a moment to end.
    """
    lock = metastore / "db" / "dbex.lck"
    deadline = time.monotonic() + wait
    while (holder := _lock_holder(lock)) is not None:
        if time.monotonic() > deadline:
            raise UsageError(
                f"the metastore {metastore} is in use by process {holder} ({_command_of(holder)})",
                fix="an embedded metastore serves one process: stop that one, or query it through "
                "its HiveServer2 (`headworks sql --hive HOST:PORT`)",
            )
        time.sleep(0.2)


def start_session(config: WarehouseConfig, *, extra: Sequence[str] | None = None) -> Any:
    """Start Spark with the metastore of `config`, and return the SparkSession.

    `extra`: JVM options in place of those that make it start faster.
    """
    if config.metastore_uri is None:
        check_metastore_free(config.metastore)
    _quiet_python()
    if is_submitted():
        return _checked(_submitted_session(config), config)
    classes = ClassArchive.of(check_java())
    options = classes.options() if extra is None else extra
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    log_settings = _log_settings(config.metastore)
    builder = SparkSession.builder.master(config.master).appName("headworks-loader")
    for name, value in _settings(config, log_settings, options).items():
        builder = builder.config(name, value)
    from py4j.protocol import Py4JError

    stderr = JvmStderr()
    try:
        with stderr, _local_address(config.master):
            spark = builder.enableHiveSupport().getOrCreate()
            spark.sparkContext.setLogLevel("OFF" if config.master.startswith("local") else "ERROR")
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        if options and extra is None:
            spark = start_session(config, extra=())
            classes.discard()  # it starts without the archive
            return spark
        reason = stderr.reason()
        raise UnreachableError(
            f"Spark's JVM ended before it was up{reason and f': {reason}'}",
            fix="see that there is memory for it, that it was not killed, and that JAVA_HOME, "
            "JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS and SPARK_HOME, if set, suit it; nothing was read",
        ) from None
    except Py4JError as error:
        raise _not_started(config.master, error) from None
    except socket.gaierror as error:  # PySpark listens there for what its tasks count
        raise UnreachableError(
            f"Spark does not start, because the name localhost has no address: {error.strerror}",
            fix="add the line `127.0.0.1 localhost` to /etc/hosts; nothing was read",
        ) from None
    return _checked(spark, config)


@contextmanager
def _local_address(master: str) -> Iterator[None]:
    """Tell a local session's JVM its address; a session on a cluster may follow in this process.

    Spark would otherwise look up the name of this machine, which need not resolve.
    """
    if not _is_local_master(master) or _ADDRESS_VARIABLE in os.environ:
        yield
        return
    os.environ[_ADDRESS_VARIABLE] = _LOCAL["spark.driver.host"]
    try:
        yield
    finally:
        del os.environ[_ADDRESS_VARIABLE]


def is_submitted() -> bool:
    """Return whether `spark-submit` has started this process, beside a JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted_session(config: WarehouseConfig) -> Any:
    """Start Spark in the JVM of `spark-submit`."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    master = SparkConf().get("spark.master") or config.master
    here = master.startswith("local")
    jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone("UTC"))
    jvm.System.setProperty("derby.stream.error.file", f"{config.metastore}/derby.log")
    config.metastore.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.appName("headworks-loader")
    for name, value in {**(_DAEMON if here else {}), **_session_settings(config)}.items():
        builder = builder.config(name, value)
    try:
        return builder.enableHiveSupport().getOrCreate()
    except Py4JError as error:
        raise _not_started(master, error) from None


def _not_started(master: str, error: Exception) -> UnreachableError:
    return UnreachableError(
        f"Spark does not start on {master}: {first_line(error)}",
        fix="see the logs of the cluster's workers, or load with --master 'local[2,3]'; "
        "nothing was read, offsets are where they were",
    )


def _quiet_python() -> None:
    """Keep PySpark and Py4J from logging the exceptions that they also raise."""
    from pyspark.logger import PySparkLogger

    logging.getLogger().addFilter(_drop_py4j_records)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for words in _DUPLICATE_LOGGERS:
        PySparkLogger.getLogger(words).setLevel(logging.CRITICAL)


def _checked(spark: Any, config: WarehouseConfig) -> Any:
    """Return the session, or stop it if it cannot read the warehouse's file system."""
    try:
        check_file_system_class(spark, config.root)
    except BaseException:
        stop_session(spark)
        raise
    return spark


def check_file_system_class(spark: Any, root: AnyPath) -> None:
    """Raise UsageError if the session lacks the class that reads the warehouse's file system.

    Classes of `spark.jars` do not count: their loader is closed by HiveServer2's first connection.
    """
    wanted = spark_file_system(root)
    if wanted is None:
        return
    name, package = wanted
    jvm = spark.sparkContext._jvm
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    if loader.getResource(f"{name.replace('.', '/')}.class") is None:
        release = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        raise UsageError(
            f"Spark cannot read {root}: its class path has no {name}",
            fix=f"put {package}:{release} and what it needs into a folder, and that folder into "
            "spark-defaults.conf, in the folder that SPARK_CONF_DIR names: "
            "spark.driver.extraClassPath FOLDER/* and spark.executor.extraClassPath FOLDER/*",
        )


def prepare_class_archive() -> None:
    """Build the archive of the JVM's classes in the background, if that is useful here."""
    if not is_submitted():
        java = check_java()
        if ClassArchive.suits(java):
            ClassArchive.of(java).build_if_useful()


def stop_session(spark: Any, *, wait: float = 10.0) -> None:
    """Stop Spark, and end its JVM within `wait` seconds, so that the next session starts clean.

    A JVM that was killed before is no error.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()
    # If the JVM is dead, this clears the names that the next session would find in use.
    spark.sparkContext.stop()
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        process.stdin.close()
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _log_settings(state: Path) -> Path:
    """Write the log settings beside the metastore, and return the file; UsageError if it fails."""
    settings = state / "log4j2.properties"
    try:
        state.mkdir(parents=True, exist_ok=True)
        settings.write_text(_LOG_SETTINGS, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the metastore's folder {state} cannot be written: {error.strerror or error}",
            fix="give --data-dir a folder that you may write to, and that has room; nothing was "
            "read, offsets are where they were",
        ) from None
    return settings


def _settings(
    config: WarehouseConfig, log_settings: Path, options: Sequence[str]
) -> dict[str, str]:
    state = config.metastore
    jvm = (
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
        f"-Dderby.stream.error.file={state}/derby.log",
        "-XX:+UseSerialGC",
        *(() if config.long_queries else _FIRST_COMPILER),
        *options,
    )
    return {
        **(_LOCAL if _is_local_master(config.master) else {}),
        "spark.driver.extraJavaOptions": " ".join(map(_quote_option, jvm)),
        **_session_settings(config),
    }


def _session_settings(config: WarehouseConfig) -> dict[str, str]:
    """Return what every session needs, also one in a JVM that runs already."""
    state = config.metastore
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.sql.session.timeZone": "UTC",
        # The default of 200 suits a cluster; here each partition is a task to schedule.
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": (state / "managed").as_uri(),
        **_metastore_settings(config),
        # A serving session with cached listings would miss new files in known partitions.
        "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
        # Listing a few hundred local folders is faster in place than as a Spark job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.sql.files.openCostInBytes": "262144",
        # As in the loader's files; INT96 cannot hold years before 1678 in Arrow.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A page whose bytes have changed is an error, not other values.
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Nested and widened columns: `widening` decides which changes are allowed.
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
        "spark.hadoop.hive.stats.autogather": "false",
        **spark_settings(config.root),
    }


def _quote_option(option: str) -> str:
    """Return an option as one word, as Spark reads them, whatever characters its paths contain."""
    plain = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


def _drop_py4j_records(record: logging.LogRecord) -> bool:
    """Return False for Py4J's records: it logs stack traces of exceptions that it also raises."""
    return "/py4j/" not in record.pathname


def _is_local_master(master: str) -> bool:
    """Return whether all of Spark is on this machine, and needs no public address."""
    return master.startswith("local") or "//127.0.0.1:" in master


def _metastore_settings(config: WarehouseConfig) -> dict[str, str]:
    if config.metastore_uri is not None:
        return {"spark.hadoop.hive.metastore.uris": config.metastore_uri}
    place = f"jdbc:derby:;databaseName={config.metastore}/db;create=true"
    return {"spark.hadoop.javax.jdo.option.ConnectionURL": place}


def _lock_holder(lock: Path) -> int | None:
    """Return the process that holds Derby's lock file of an open database, or None."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        with lock.open("rb+") as file:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, holder = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else int(holder)


def _command_of(process: int) -> str:
    try:
        words = (_system_calls.PROC / str(process) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "unknown"
    return Path(words[0].decode(errors="replace")).name
