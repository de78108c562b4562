"""HiveServer2 in the loader's JVM: SQL for every Hive client, on the loader's tables.

Rules: it has no authentication (NOSASL), so it listens on loopback only. Port 0 is replaced by a
free port before the server starts, because the server does not report its port.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from hadoop_loader._spark.event_time_pruning import prune_by_event_time
from headworks._server.security.exposure import is_loopback, parse_listen
from headworks.errors import UnreachableError, UsageError


def parse_address(listen: str, option: str = "HiveServer2 address") -> tuple[str, int]:
    """Return host and port. Raises UsageError, before anything starts, unless it is loopback."""
    host, port = parse_listen(listen, option)
    if not is_loopback(host):
        raise UsageError(
            f"other machines can reach {host}, and HiveServer2 does not authenticate clients",
            fix="serve on 127.0.0.1; from elsewhere, come through an SSH tunnel",
        )
    return host, port


def serve(spark: Any, host: str, port: int, *, timeout: float = 60.0) -> tuple[str, int]:
    """Start HiveServer2 in the session's JVM, and return its address once it listens."""
    host, port = parse_address(f"{host}:{port}")
    port = _free_port(host, port)
    settings = {
        "hive.server2.thrift.port": str(port),
        "hive.server2.thrift.bind.host": host,
        "hive.server2.authentication": "NOSASL",
        "hive.server2.transport.mode": "binary",
    }
    jvm = spark._jvm
    state = jvm.org.apache.hadoop.hive.ql.session.SessionState.get()
    for name, value in settings.items():
        spark.sparkContext._jsc.hadoopConfiguration().set(name, value)
        if state is not None:
            state.getConf().set(name, value)
    prune_by_event_time(spark)
    server = jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server.startWithContext(spark._jsparkSession.sqlContext())
    _wait(host, port, timeout)
    return host, port


def _free_port(host: str, port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise UsageError(
                f"address {host}:{port} is taken",
                fix="stop what listens there, or serve on port 0 for a free one",
            ) from None
        return int(probe.getsockname()[1])


def _wait(host: str, port: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host, port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"HiveServer2 does not listen on {host}:{port} after {timeout:.0f} s"
                ) from None
            time.sleep(0.1)
        else:
            return
