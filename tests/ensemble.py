"""Real ZooKeepers for tests: the product's embedded ones, in a test's own folder.

with ensemble(tmp_path) as zookeeper:            # or size=3
    with open_session(zookeeper.address) as session: ...
    zookeeper.servers[0].kill() / start() / pause() / resume() / stop()
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headworks._cli.stack.embedded_zookeeper import EmbeddedZooKeeper
from headworks._cli.stack.ports import free_ports
from headworks.errors import UnreachableError

_TRIES = 3


class Server(EmbeddedZooKeeper):
    """One server, with what a test does to it."""

    def mode(self) -> str:
        """Return standalone, leader, or follower; "" while it has no role or does not answer."""
        return self.status("Mode")

    def stop(self) -> None:
        """End it with SIGTERM."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the process."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after `pause`."""
        os.killpg(self.process.pid, signal.SIGCONT)


class Ensemble:
    """One server, or several that vote; `address` names them all."""

    def __init__(self, folder: Path, size: int = 1) -> None:
        if size == 1:
            self.servers = [Server(folder)]
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

    def start(self, timeout: float = 120.0) -> None:
        """Start every server, and return when all have their roles; each has `timeout` seconds."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait(timeout)

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


@contextmanager
def ensemble(folder: Path, size: int = 1) -> Iterator[Ensemble]:
    """A running ensemble of `size` servers; started again if somebody took one of its ports."""
    for number in range(_TRIES):
        started = Ensemble(folder / f"zookeeper-{number}", size)
        try:
            started.start()
            break
        except UnreachableError:
            started.stop()
            if number == _TRIES - 1:
                raise
    try:
        yield started
    finally:
        started.stop()
