"""An embedded ZooKeeper, one server or an ensemble on this machine, for trials and tests.

Rules:

- It is the real ZooKeeper, from the jars of PySpark, run by Java. Nothing is downloaded.
- A server never outlives its parent: a shell between them reads a pipe that the kernel closes
  however the parent dies.
- Servers listen on loopback only. `start` returns when the server answers and knows its role.
- The data stays in the folder: a restarted server continues with it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from headworks._cli.stack.ports import free_ports
from headworks.errors import UnreachableError, UsageError

__all__ = ["Ensemble", "Server"]

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


class Server:
    """One server: its folder, its ports, and its process while it runs."""

    def __init__(self, folder: Path, port: int, settings: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = port
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
                *("sh", "-c", _SCRIPT, "zookeeper", java, "-Xmx256m", "-XX:TieredStopAtLevel=1"),
                *(f"-Dlog4j2.configurationFile={logging}", "-cp", classpath),
                *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait(self, timeout: float = 120.0) -> None:
        """Wait until the server answers. Raises UnreachableError with its log if it does not."""
        end = time.monotonic() + timeout
        while not self.mode():
            if self.process.poll() is not None or time.monotonic() > end:
                log_text = self.log_text()
                self.kill()
                raise UnreachableError(
                    f"the ZooKeeper in {self.folder} did not start:\n{log_text[-3000:]}"
                )
            time.sleep(0.05)

    def start(self, timeout: float = 120.0) -> None:
        """Start the server, and wait until it answers."""
        self.launch()
        self.wait(timeout)

    def mode(self) -> str:
        """Return standalone, leader, or follower; "" while it has no role or does not answer."""
        return self._srvr_field("Mode")

    def transactions(self) -> int:
        """Return the number of changes of its ensemble in this term."""
        return int(self._srvr_field("Zxid") or "0", 16) & 0xFFFFFFFF

    def _srvr_field(self, what: str) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as asked:
                asked.sendall(b"srvr")
                answer = b"".join(iter(lambda: asked.recv(4096), b"")).decode()
        except OSError:
            return ""
        return answer.partition(f"{what}: ")[2].partition("\n")[0]

    def stop(self) -> None:
        """End it with SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the process."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after `pause`."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def log_text(self) -> str:
        """Return its log."""
        return (self.folder / "zookeeper.log").read_text(encoding="utf-8", errors="replace")

    def _end(self, number: signal.Signals) -> None:
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


class Ensemble:
    """One server, or several that vote; `address` names them all.

    `port` is that of a single server, 0 for any free one.
    """

    def __init__(self, folder: Path, size: int = 1, *, port: int = 0) -> None:
        if size == 1:
            self.servers = [Server(folder, port or free_ports(1)[0])]
            return
        ports = free_ports(3 * size)
        clients, rest = ports[:size], ports[size:]
        voters = [f"server.{n + 1}=127.0.0.1:{rest[2 * n]}:{rest[2 * n + 1]}" for n in range(size)]
        self.servers = [Server(folder / f"server-{n + 1}", clients[n], voters) for n in range(size)]
        for number, server in enumerate(self.servers, 1):
            data = server.folder / "data"
            data.mkdir(parents=True, exist_ok=True)
            (data / "myid").write_text(f"{number}\n", encoding="utf-8")

    @property
    def address(self) -> str:
        """HOST:PORT[,HOST:PORT..]."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start every server, and return when all have their roles."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait()

    def stop(self) -> None:
        """Kill every server."""
        for server in self.servers:
            server.kill()

    def leader(self, timeout: float = 60.0) -> Server:
        """Return the leading server. Raises UnreachableError if none leads in time."""
        end = time.monotonic() + timeout
        while True:
            for server in self.servers:
                if server.mode() in ("leader", "standalone"):
                    return server
            if time.monotonic() > end:
                raise UnreachableError(f"no server of {self.address} leads")
            time.sleep(0.05)

    def __enter__(self) -> Ensemble:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise UsageError(
            "an embedded ZooKeeper needs Java, which is not on the PATH",
            fix="install a Java runtime (17 or later), or give --zookeeper HOST:PORT of your own",
        )
    return found


def _classpath() -> str:
    found = importlib.util.find_spec("pyspark")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "jars"
    jars = [] if folder is None else [str(j) for j in folder.glob("*.jar") if _is_needed(j)]
    if not any(Path(jar).name.startswith("zookeeper-") for jar in jars):
        raise UsageError(
            "an embedded ZooKeeper runs from the jars of PySpark, which is not installed",
            fix="pip install 'headworks[hadoop]', or give --zookeeper HOST:PORT of your own",
        )
    return os.pathsep.join(sorted(jars))


def _is_needed(jar: Path) -> bool:
    return jar.name.startswith(_NEEDED)
