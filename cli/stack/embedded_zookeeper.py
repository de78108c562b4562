"""An embedded ZooKeeper: one server on this machine, for trials.

Rules:

- It is the real ZooKeeper, from the jars of PySpark, run by Java. Nothing is downloaded.
- A server never outlives its parent: a shell between them reads a pipe that the kernel closes
  however the parent dies.
- It listens on loopback only. `start` returns when the server answers and knows its role.
- The data stays in the folder: a restarted server continues with it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from headworks._cli.stack.ports import free_ports
from headworks._server.java import Java, find_java
from headworks.errors import UnreachableError, UsageError

_NEEDED = ("zookeeper", "slf4j-api", "log4j", "netty", "snappy-java", "metrics-core")
_SCRIPT = (
    'exec 3<&0; "$@" & java=$!; (cat <&3 >/dev/null; kill $java 2>/dev/null) & watch=$!;'
    " wait $java; code=$?; kill $watch 2>/dev/null; exit $code"
)
_LOGGING = """\
status = off
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class EmbeddedZooKeeper:
    """One server: its folder, its port (0: any free one), and its process while it runs."""

    def __init__(self, folder: Path, port: int = 0, settings: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = port or free_ports(1)[0]
        self._settings = tuple(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def address(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process. Raises UsageError if there is none."""
        if self._process is None:
            raise UsageError(f"the ZooKeeper in {self.folder} is not running")
        return self._process

    def launch(self, tick_ms: int = 500) -> None:
        """Start the process without waiting."""
        java = _java()
        classpath = _classpath()
        self.folder.mkdir(parents=True, exist_ok=True)
        logging = self.folder / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        config = self.folder / "zoo.cfg"
        config.write_text("\n".join((*self._config(tick_ms), "")), encoding="utf-8")
        self._log = (self.folder / "zookeeper.log").open("ab")
        self._process = subprocess.Popen(
            [
                *(
                    "sh",
                    "-c",
                    _SCRIPT,
                    "zookeeper",
                    java.command,
                    "-Xmx256m",
                    "-XX:TieredStopAtLevel=1",
                ),
                *(f"-Dlog4j2.configurationFile={logging}", "-cp", classpath),
                *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **java.environment},
            start_new_session=True,
        )

    def wait(self, timeout: float = 120.0) -> None:
        """Wait until the server answers. Raises UnreachableError with its log if it does not."""
        end = time.monotonic() + timeout
        while not self.status("Mode"):
            if self.process.poll() is not None or time.monotonic() > end:
                log_text = self.log_text()
                self.end(signal.SIGKILL)
                raise UnreachableError(
                    f"the ZooKeeper in {self.folder} did not start:\n{log_text[-3000:]}"
                )
            time.sleep(0.05)

    def start(self, timeout: float = 120.0) -> None:
        """Start the server, and wait until it answers."""
        self.launch()
        self.wait(timeout)

    def status(self, what: str) -> str:
        """Return a field of the server's status; "" while it has no role or does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as asked:
                asked.sendall(b"srvr")
                answer = b"".join(iter(lambda: asked.recv(4096), b"")).decode()
        except OSError:
            return ""
        return answer.partition(f"{what}: ")[2].partition("\n")[0]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)

    def log_text(self) -> str:
        """Return its log."""
        return (self.folder / "zookeeper.log").read_text(encoding="utf-8", errors="replace")

    def end(self, number: signal.Signals) -> None:
        """End the process with a signal, and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdin is not None
        assert self._log is not None
        process.stdin.close()
        self._log.close()

    def _config(self, tick_ms: int) -> list[str]:
        return [
            f"tickTime={tick_ms}",
            "maxSessionTimeout=60000",  # else 20 ticks: clients on a slow machine may ask for more
            "initLimit=20",
            "syncLimit=5",
            f"dataDir={self.folder.resolve() / 'data'}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            "maxClientCnxns=0",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=24",
            *self._settings,
        ]


def _java() -> Java:
    try:
        return find_java()
    except UsageError as error:
        fix = f"{error.fix}, or give --zookeeper HOST:PORT of your own"
        raise UsageError(error.message, fix=fix) from None


def _classpath() -> str:
    found = importlib.util.find_spec("pyspark")
    jars: list[str] = []
    if found is not None and found.origin is not None:
        every = (Path(found.origin).parent / "jars").glob("*.jar")
        jars = [str(jar) for jar in every if jar.name.startswith(_NEEDED)]
    if not any(Path(jar).name.startswith("zookeeper-") for jar in jars):
        raise UsageError(
            "an embedded ZooKeeper runs from the jars of PySpark, which is not installed",
            fix="pip install 'headworks[hadoop]', or give --zookeeper HOST:PORT of your own",
        )
    return os.pathsep.join(sorted(jars))
