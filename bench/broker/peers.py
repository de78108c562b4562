"""RabbitMQ, ActiveMQ and NATS JetStream, from Debian's packages: how each starts and is used.

Rules: everything is in the folder that `start` gets and on loopback, nothing of the machine's own
installation is read or changed. A server ends with the process that started it (Linux).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bench.broker.clients import Answer, Clients, collect, spawn
from bench.broker.contender import SIZE, stored
from bench.processes import Spent, Usage
from headworks.errors import UnreachableError

_PATIENCE = 90.0


class _Server:
    """A server process that answers on a port of loopback."""

    name = ""
    client = ""
    batches: tuple[str, ...] = ("batch 1",)
    rereads = False
    warming = 0

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command to run."""
        raise UnreachableError(f"{self.name} has no command")

    def environment(self) -> Mapping[str, str]:
        """Return the variables to add to the environment."""
        return {}

    def start(self, folder: Path) -> None:
        """See `Contender`."""
        folder.mkdir(parents=True)
        self._folder = folder
        self._port = _free_port()
        with (folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*_bound(), *self.command()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment()},
                start_new_session=True,
            )
        self._usage = Usage(self._process.pid)
        try:
            self._await(self._process)
        except BaseException:
            self.stop()
            raise

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        tail = (self._folder / "server.log").read_text(errors="replace").strip()[-1000:]
        raise UnreachableError(f"{self.name} does not start:\n{tail}")

    def stop(self) -> None:
        """See `Contender`."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    continue
        if process.stdin is not None:
            process.stdin.close()

    def spent(self) -> Spent:
        """See `Contender`."""
        return self._usage.now()

    def stored(self, queue: str) -> int:  # noqa: ARG002 - all queues share the files
        """See `Contender`."""
        return stored(self._folder)

    def drop(self, queue: str) -> None:
        """See `Contender`: what was read is gone, or lies in files that nobody reads."""


class RabbitMq(_Server):
    """RabbitMQ, configured by nothing but where it lives."""

    name = "RabbitMQ"
    client = "our C client on librabbitmq: persistent messages, no confirms, automatic ack"

    def command(self) -> list[str]:
        """The package's script; its wrapper would change to another user."""
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def environment(self) -> Mapping[str, str]:
        """All that RabbitMQ and Erlang keep, in our folder; Erlang's port mapper our own too."""
        folder = self._folder
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self._port}\n")
        (folder / "advanced.config").write_text(
            "[{kernel, [{inet_dist_use_interface, {127,0,0,1}}]}].\n"
        )
        (folder / "plugins").write_text("[].\n")
        self._mapper = str(_free_port())
        return {
            "RABBITMQ_NODENAME": f"bench{self._port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": self._mapper,
            "HOME": str(folder),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server: no shell in between
        }

    def stop(self) -> None:
        """End the server, then the port mapper that it has started beside itself."""
        running = self._process is not None
        super().stop()
        if running and shutil.which("epmd"):
            command = ["epmd", "-port", self._mapper, "-kill"]
            subprocess.run(command, capture_output=True, check=False)

    def produce(self, queue: str, count: int, batch: str) -> Answer:  # noqa: ARG002 - it has none
        """See `Contender`."""
        where = ("127.0.0.1", str(self._port), queue)
        return collect(spawn(self._clients.rabbitmq("produce", *where, str(count), str(SIZE))))

    def consume(self, queue: str, count: int) -> Answer:
        """See `Contender`."""
        where = ("127.0.0.1", str(self._port), queue)
        return collect(spawn(self._clients.rabbitmq("consume", *where, str(count))))

    def stored(self, queue: str) -> int:  # noqa: ARG002 - all queues share the files
        """See `Contender`."""
        size, before = stored(self._folder / "data"), -1
        while size != before:  # it writes what it has taken a little later
            time.sleep(0.5)
            size, before = stored(self._folder / "data"), size
        return size


class ActiveMq(_Server):
    """ActiveMQ with KahaDB, the journal flushed by the operating system."""

    name = "ActiveMQ"
    client = "our JMS client: persistent, asynchronous sends, automatic ack, prefetch 1,000"
    warming = 10_000

    def command(self) -> list[str]:
        """The broker, embedded in our Java program."""
        return self._clients.activemq("serve", str(self._port), str(self._folder / "data"))

    def produce(self, queue: str, count: int, batch: str) -> Answer:  # noqa: ARG002 - it has none
        """See `Contender`."""
        where = (self._url, queue, str(count), str(SIZE), str(self.warming))
        return collect(spawn(self._clients.activemq("produce", *where)))

    def consume(self, queue: str, count: int) -> Answer:
        """See `Contender`."""
        where = (self._url, queue, str(count), str(self.warming))
        return collect(spawn(self._clients.activemq("consume", *where)))

    def stored(self, queue: str) -> int:  # noqa: ARG002 - all queues share the files
        """See `Contender`."""
        return stored(self._folder / "data")

    @property
    def _url(self) -> str:
        options = "jms.useAsyncSend=true&jms.prefetchPolicy.queuePrefetch=1000"
        return f"tcp://127.0.0.1:{self._port}?{options}"


class Nats(_Server):
    """NATS JetStream with its file store."""

    name = "NATS JetStream"
    client = "our C client on libnats: asynchronous publishing, pull consumer of 1,000, no acks"

    def command(self) -> list[str]:
        """The server, with nothing but its place."""
        where = ["-a", "127.0.0.1", "-p", str(self._port), "-sd", str(self._folder / "data")]
        return ["/usr/sbin/nats-server", "-js", *where]

    def produce(self, queue: str, count: int, batch: str) -> Answer:  # noqa: ARG002 - it has none
        """See `Contender`."""
        return collect(
            spawn(self._clients.nats("produce", self._url, queue, str(count), str(SIZE)))
        )

    def consume(self, queue: str, count: int) -> Answer:
        """See `Contender`."""
        return collect(spawn(self._clients.nats("consume", self._url, queue, str(count))))

    def stored(self, queue: str) -> int:  # noqa: ARG002 - one folder, all streams
        """See `Contender`."""
        return stored(self._folder / "data")

    @property
    def _url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"


def _bound() -> list[str]:
    """Return the command prefix with which the kernel ends a server together with us."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
