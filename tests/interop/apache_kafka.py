"""Apache Kafka itself, for tests and benchmarks: fetched by Maven, run as a child process.

    jars = fetch()
    with start(folder) as kafka:
        print(kafka.address)

`python -m tests.interop.apache_kafka` only fetches, and exits with 2 or 3 if it cannot.

Rules:

- Headworks never depends on it: `pom.xml` beside this module pins the version (see `maven`).
- One node in KRaft mode, broker and controller in one, on loopback; `start` returns when it
  answers, `Service.stop` ends it, and it does not outlive the process that started it.
- The server runs with the JVM options and the settings of Kafka's own scripts, but for what one
  node needs (replication factors of one); what a test or a benchmark wants is its own to say.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headworks._cli.stack.ports import free_ports
from headworks._server.child_process import Service
from headworks.errors import HeadworksError, RefusedError, UnreachableError, UsageError
from tests.interop import maven

_POM = Path(__file__).parent / "pom.xml"
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
# What bin/kafka-run-class.sh of a Kafka release gives a server.
SERVER_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# A short-lived program starts fastest with these.
_TOOL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")


def version() -> str:
    """The release of Apache Kafka that `pom.xml` names."""
    found = ElementTree.parse(_POM).findtext("properties/kafka.version")
    assert found is not None
    return found


def _cluster_id(folder: Path) -> str:
    """The id of the cluster in `folder`, as Kafka writes them: 16 bytes, no hyphen at first."""
    name = hashlib.sha256(str(folder.resolve()).encode()).digest()[:15]
    return base64.urlsafe_b64encode(b"h" + name).decode().rstrip("=")


@cache
def fetch() -> list[Path]:
    """The jars of Apache Kafka and of all it needs; fetched once, then from the cache.

    Raises UsageError without `mvn`, UnreachableError if Maven cannot fetch.
    """
    return maven.fetch(_POM, f"kafka-{version()}", f"Apache Kafka {version()}")


def java(
    main: str,
    *arguments: str,
    options: tuple[str, ...] = _TOOL,
    classes: Path | None = None,
) -> list[str]:
    """The command that runs a class of Apache Kafka, or of the folder `classes`."""
    if shutil.which("java") is None:
        raise UsageError("there is no `java` on the path", fix="install a JDK, 17 or newer")
    own = [] if classes is None else [classes]
    classpath = os.pathsep.join(map(str, [*own, *fetch()]))
    return ["java", *options, _QUIET, "-cp", classpath, main, *arguments]


def start(
    folder: Path,
    *,
    config: Mapping[str, str] | None = None,
    heap: str = "512m",
    timeout: float = 120.0,
) -> Service:
    """Start one node with its data and its log in `folder`; `config` adds to server.properties.

    Raises RefusedError with the server's own words if it ends, UnreachableError if it does not
    answer within `timeout` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_ports(2)
    properties = folder / "server.properties"
    settings = _settings(folder, port, controller) | dict(config or {})
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    format_storage(properties, folder)
    log = (folder / "kafka.log").open("a+", encoding="utf-8")
    process = subprocess.Popen(
        [
            *maven.bound(),
            *java("kafka.Kafka", str(properties), options=(*SERVER_OPTIONS, f"-Xmx{heap}")),
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        text=True,
        start_new_session=True,
    )
    running = Service("apache-kafka", f"127.0.0.1:{port}", process, log)
    try:
        _await(running, Path(log.name), timeout)
    except BaseException:
        running.kill()
        raise
    return running


def _settings(folder: Path, port: int, controller: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def format_storage(properties: Path, folder: Path) -> None:
    """Write the id of the cluster of `folder` into a node's data folder, unless it is there."""
    cluster = _cluster_id(folder)
    options = ["--cluster-id", cluster, "--config", str(properties), "--ignore-formatted"]
    done = subprocess.run(
        java("kafka.tools.StorageTool", "format", *options),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RefusedError(f"Kafka cannot use {properties}:\n{done.stdout}{done.stderr}".strip())


def _await(running: Service, log: Path, timeout: float) -> None:
    """Return when the broker answers and has told its clients of itself."""
    end = time.monotonic() + timeout
    admin = AdminClient({"bootstrap.servers": running.address, "log_level": 0})
    while time.monotonic() < end:
        code = running.process.poll()
        if code is not None:
            raise RefusedError(f"Apache Kafka ended with exit code {code}:\n{_tail(log)}")
        try:
            if admin.list_topics(timeout=1).brokers:
                return
        except KafkaException:
            time.sleep(0.1)
    raise UnreachableError(f"Apache Kafka did not answer within {timeout:.0f} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-4000:]


def _main() -> int:
    try:
        print(f"Apache Kafka {version()}: {len(fetch())} jars in {fetch()[0].parent}")
    except HeadworksError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
