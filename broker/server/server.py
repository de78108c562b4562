"""The server: listen, accept, keep time for retention, stop without losing anything.

Rules: start opens every log before the first client is accepted. Stop takes no more requests,
flushes every log, lets the replies that were waiting for that leave, and closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.coordination import LocalCoordination
from broker.groups import GroupCoordinator, GroupSettings
from broker.handlers import Node
from broker.server.connection import Connection
from broker.server.counters import Counters
from broker.server.limits import Limits, Memory
from broker.server.lock import FolderLock
from broker.topics import Catalogue, Flusher, InvalidConfigError
from headworks.errors import UsageError

__all__ = ["BrokerServer", "ServerConfig"]

_log = logging.getLogger(__name__)
_BACKLOG = 512
_ACCEPTS = 64  # connections taken per turn of the loop
_STOP_SECONDS = 5.0
_ACCEPT_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What a broker is started with."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    node_id: int = 1
    default_partitions: int = 4
    auto_create_topics: bool = True
    show_unflushed: bool = False
    retention_check_seconds: float = 300.0
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    groups: GroupSettings = field(default_factory=GroupSettings)
    metrics: tuple[str, int] | None = None


class BrokerServer:
    """A broker; `start` serves, `stop` ends it."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._connections: set[Connection] = set()
        self._memory = Memory(config.limits.buffer_bytes)
        self._tasks: list[asyncio.Task[None]] = []
        self._metrics: Any = None
        self.counters = Counters()

    @property
    def address(self) -> str:
        """HOST:PORT that clients reach it at."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    @property
    def node(self) -> Node:
        """The broker's parts."""
        return self._node

    async def start(self) -> None:
        """Open the logs and listen. UsageError if the folder or the address is taken."""
        config = self.config
        _raise_file_limit()
        self._lock = FolderLock(config.folder)
        try:
            self._listen()
            await self._open()
            if config.metrics is not None:
                from broker.server.metrics import MetricsServer

                self._metrics = MetricsServer(self, *config.metrics)
                _log.info("metrics on http://%s:%d/metrics", config.metrics[0], self._metrics.port)
        except BaseException:
            self._lock.release()
            raise
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept)
        self._tasks = [
            loop.create_task(self._keep_retention()),
            loop.create_task(self._drop_idle()),
        ]

    async def stop(self) -> None:
        """Flush everything, answer who waits for it, close."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.stop)
        for connection in self._connections:
            connection.stop_reading()
        for partition in self._catalogue.partitions():
            partition.flush()
        await asyncio.to_thread(self._flusher.stop)
        await asyncio.sleep(0)  # the flusher's last results
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                for connection in tuple(self._connections):
                    await connection.drain()
        for connection in tuple(self._connections):
            connection.close()
        self._groups.close()
        self._catalogue.close()
        await self._coordination.close()
        self._lock.release()

    def _listen(self) -> None:
        host, port = self.config.host, self.config.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((host, port))
            self._listener.listen(_BACKLOG)
        except OSError as error:
            self._listener.close()
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                fix=f"stop what uses it (`ss -ltnp 'sport = :{port}'` shows it), or give another"
                f" --listen HOST:PORT; port 0 takes any free one",
            ) from None
        self._listener.setblocking(False)
        self._host, self._port = host, self._listener.getsockname()[1]

    async def _open(self) -> None:
        config = self.config
        loop = asyncio.get_running_loop()
        self._coordination = LocalCoordination(config.folder / "coordination.sqlite")
        self._flusher = Flusher(loop)
        self._groups = GroupCoordinator(loop.time, loop.call_at, config.groups)
        self._catalogue = Catalogue(
            config.folder / "logs",
            self._coordination,
            self._flusher,
            config.topic_defaults,
            show_unflushed=config.show_unflushed,
        )
        try:
            self._catalogue.config({})
        except InvalidConfigError as error:
            raise UsageError(str(error)) from None
        await self._catalogue.load()
        self._node = Node(
            config.node_id,
            self._host,
            self._port,
            config.default_partitions,
            config.auto_create_topics,
            self._catalogue,
            self._coordination,
            self._groups,
            time.time,
        )

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of files: the others must close some first
                _log.error("accept failed, again in %s s: %s", _ACCEPT_PAUSE, error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                loop.call_later(_ACCEPT_PAUSE, self._accept_again)
                return
            peer = f"{address[0]}:{address[1]}"
            if len(self._connections) >= self.config.limits.connections:
                self.counters.refused += 1
                _log.warning("refusing %s: %d connections are open", peer, len(self._connections))
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.counters.accepted += 1
            self._connections.add(
                Connection(
                    self._node,
                    sock,
                    peer,
                    self.config.limits,
                    self._memory,
                    self.counters,
                    self._connections.discard,
                )
            )

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def _drop_idle(self) -> None:
        idle = self.config.limits.idle_seconds
        while True:
            await asyncio.sleep(idle / 10)
            since = asyncio.get_running_loop().time() - idle
            for connection in tuple(self._connections):
                connection.close_if_idle(since)

    async def _keep_retention(self) -> None:
        while True:
            await asyncio.sleep(self.config.retention_check_seconds)
            self._catalogue.expire(int(self._node.clock() * 1000))


def _raise_file_limit() -> None:
    """Every segment and connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
