"""The server: listens, applies retention and grants on time, and stops without losing anything.

Rules: `start` opens every log, tells the other brokers, and only then accepts clients.
`stop` tells the other brokers first, takes no more requests, and flushes every log. It then sends
the replies that waited for the flush, and closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headworks._broker.coordination import ClusterMember, Coordination, LocalCoordination
from headworks._broker.coordination.folder import refuse_cluster_folder
from headworks._broker.groups import GroupCoordinator, GroupSettings
from headworks._broker.handlers import REQUIRED_ROLES, Authorizer, Node
from headworks._broker.handlers.api_versions import api_versions
from headworks._broker.handlers.counters import BrokerCounters
from headworks._broker.handlers.leadership import coordinates
from headworks._broker.log import MAX_PRODUCERS
from headworks._broker.open_file_limit import raise_limit, refuse_low_limit
from headworks._broker.server.acceptor import Acceptor
from headworks._broker.server.authentication import Authenticator
from headworks._broker.server.clock_guard import ClockGuard
from headworks._broker.server.connection import Connection
from headworks._broker.server.context import ServerContext
from headworks._broker.server.folder_lock import FolderLock
from headworks._broker.server.limits import ClientLimits, MemoryPool
from headworks._broker.topics import (
    MAX_PARTITIONS,
    PRODUCER_SECONDS,
    SCRUB_MB_PER_SECOND,
    Flusher,
    HostedTopics,
    InvalidConfigError,
    SubjectRule,
    TopicChanges,
    TopicLookup,
    open_offsets_topic,
)
from headworks._broker.transactions import TransactionCoordinator, TransactionSettings
from headworks._host_port import join_host_port
from headworks._kafka.protocol.apis import APIS, ApiKey
from headworks._server.metrics_page import MetricsEndpoint
from headworks._server.security import Access, Users
from headworks.errors import HeadworksError, UnreachableError, UsageError

if TYPE_CHECKING:
    from headworks._broker.coordination.zookeeper import ClusterOptions

_log = logging.getLogger(__name__)
_BACKLOG = 512
_STOP_SECONDS = 5.0
_GRANTS_CHECK_SECONDS = 0.5
_RETRY_SECONDS = 0.5
_TRANSACTIONS_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of a broker. Without users and access, every client may do everything.

    `advertise` is the address that clients are told, if it is not the listening one (port 0: the
    listening port). Without `cluster` the broker is alone.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    node_id: int = 1
    advertise: tuple[str, int] | None = None
    cluster: ClusterOptions | None = None
    default_partitions: int = 4
    auto_create_topics: bool = True
    max_partitions: int = MAX_PARTITIONS
    show_unflushed: bool = False
    retention_check_seconds: float = 300.0
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    limits: ClientLimits = field(default_factory=ClientLimits)
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    metrics: tuple[str, int] | None = None
    tls: ssl.SSLContext | None = None
    users: Users | None = None
    access: Access | None = None
    registry: str | None = None
    require_subject: str | None = None
    compaction_seconds: float = 15.0
    scrub_mb_per_second: float = SCRUB_MB_PER_SECOND
    verify_fetches: bool = False
    max_producers: int = MAX_PRODUCERS
    producer_seconds: float = PRODUCER_SECONDS
    offsets_topic: bool = False


def kafka_configs(config: ServerConfig, address: str) -> dict[str, str]:
    """Return the configuration by the names that Kafka's tools look for."""
    limits, groups = config.limits, config.groups
    login, transport = config.users and "SASL_", "PLAINTEXT" if config.tls is None else "SSL"
    shown = {
        "advertised.listeners": f"{login or ''}{transport}://{address}",
        "auto.create.topics.enable": str(config.auto_create_topics).lower(),
        "broker.id": config.node_id,
        "connections.max.idle.ms": int(limits.idle_seconds * 1000),
        "default.replication.factor": 1,
        "delete.topic.enable": "true",
        "group.consumer.heartbeat.interval.ms": int(groups.consumer.interval * 1000),
        "group.consumer.session.timeout.ms": int(groups.consumer.session * 1000),
        "group.initial.rebalance.delay.ms": int(groups.initial_delay * 1000),
        "group.max.session.timeout.ms": int(groups.max_session * 1000),
        "group.max.size": groups.max_members,
        "group.min.session.timeout.ms": int(groups.min_session * 1000),
        "log.dirs": config.folder / "logs",
        "log.retention.check.interval.ms": int(config.retention_check_seconds * 1000),
        "max.connections": limits.max_connections,
        "node.id": config.node_id,
        "num.partitions": config.default_partitions,
        "transaction.max.timeout.ms": config.transactions.max_timeout_ms,
        "transactional.id.expiration.ms": config.transactions.idle_ms,
        "producer.id.expiration.ms": int(config.producer_seconds * 1000),
    }
    return {name: str(value) for name, value in shown.items()}


class BrokerServer:
    """A broker, from `start` to `stop`."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._tasks: list[asyncio.Task[None]] = []
        self._metrics: Any = None
        self._failure: asyncio.Future[HeadworksError] | None = None
        self._coordination: Coordination | None = None
        self._listener: socket.socket | None = None
        self._changed = asyncio.Event()
        self._authorizer = Authorizer(config.access, REQUIRED_ROLES)
        self.memory = MemoryPool(config.limits.memory_bytes)

    @property
    def address(self) -> str:
        """HOST:PORT that clients connect to."""
        return join_host_port(*self._advertised)

    @property
    def failure(self) -> asyncio.Future[HeadworksError] | None:
        """Completes with the error that must end the broker. None if it is alone."""
        return self._failure

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections."""
        return tuple(self._acceptor.connections)

    @property
    def node(self) -> Node:
        """The broker's parts."""
        return self._node

    async def start(self) -> None:
        """Open the logs and listen. UsageError if the folder or the address is in use."""
        config = self.config
        loop = asyncio.get_running_loop()
        raise_limit()
        refuse_low_limit(config.folder / "logs")
        self._lock = FolderLock(config.folder)
        try:
            self._bind()
            await self._open()
            if config.metrics is not None:
                from headworks._broker.server.metrics import MetricsServer, MetricsSource

                observed = MetricsSource(self._node, self.memory, lambda: self.connections)
                endpoint = MetricsEndpoint(*config.metrics, config.users, config.access, config.tls)
                self._metrics = MetricsServer(observed, loop, endpoint)
                _log.info("metrics on %s", self._metrics.url, extra={"url": self._metrics.url})
        except BaseException:
            if self._coordination is not None:
                await self._coordination.close()
            if self._listener is not None:
                self._listener.close()
            self._lock.release()
            raise
        for version in range(
            APIS[ApiKey.API_VERSIONS].maximum + 1
        ):  # else the first client waits for this
            api_versions(version, login=config.users is not None)
        self._tasks = [
            loop.create_task(self._keep_retention()),
            loop.create_task(self._acceptor.drop_slow()),
            loop.create_task(self._watch_grants()),
            loop.create_task(self._watch_transactions()),
            loop.create_task(self._follow_cluster()),
        ]
        if self._offsets_topic is not None:
            self._tasks.append(loop.create_task(self._offsets_topic.keep_up()))
        coordination = self._node.coordination
        coordination.watch(self._changed.set)
        try:
            await coordination.join(ClusterMember(config.node_id, *self._advertised))
            self._listen()
        except BaseException:
            await self.stop()
            raise
        self._acceptor.start()

    async def stop(self) -> None:
        """Flush everything, send the replies that wait for that, and close."""
        assert self._coordination is not None
        await self._coordination.leave()
        self._acceptor.stop()
        for task in self._tasks:
            task.cancel()
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.stop)
        for connection in self.connections:
            connection.stop_reading()
        if self._transactions is not None:
            await self._transactions.stop()
        if self._offsets_topic is not None:
            self._offsets_topic.close()
        for partition in self._hosted.partitions():
            partition.flush()
        await asyncio.to_thread(self._flusher.stop)
        await asyncio.sleep(0)  # let the flusher's last results arrive
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                for connection in self.connections:
                    await connection.drain()
        for connection in self.connections:
            connection.close()
        await self._topic_changes.settle()
        if self._authenticator is not None:
            self._authenticator.close()
        self._groups.close()
        self._hosted.close()
        await self._coordination.close()
        self._lock.release()

    def _bind(self) -> None:
        """Reserve the address. Until `_listen`, it refuses connections, so a probe fails."""
        host, port = self.config.host, self.config.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with self._refuse_used_address():
            self._listener.bind((host, port))
        self._listener.setblocking(False)
        bound: int = self._listener.getsockname()[1]
        told, port = self.config.advertise or (host, bound)
        self._advertised: tuple[str, int] = (told, port or bound)

    def _listen(self) -> None:
        assert self._listener is not None
        with self._refuse_used_address():  # another process may have bound it, and listened first
            self._listener.listen(_BACKLOG)

    @contextlib.contextmanager
    def _refuse_used_address(self) -> Iterator[None]:
        host, port = self.config.host, self.config.port
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                fix=f"stop what uses it (`ss -ltnp 'sport = :{port}'` shows it), or give another"
                f" --listen HOST:PORT; port 0 takes any free one",
            ) from None

    async def _open(self) -> None:
        config = self.config
        loop = asyncio.get_running_loop()
        coordination = self._coordination = await self._coordinate()
        counters = BrokerCounters()
        self._flusher = Flusher(loop, counters.flushes.observe)
        self._groups = GroupCoordinator(loop.time, loop.call_at, config.groups)
        self._groups.configure(coordination.group_configs)
        self._hosted = HostedTopics(
            config.folder / "logs",
            self._flusher,
            config.topic_defaults,
            show_unflushed=config.show_unflushed,
            max_partitions=config.max_partitions,
            registry=config.registry,
            compaction_seconds=config.compaction_seconds,
            scrub_mb_per_second=config.scrub_mb_per_second,
            max_producers=config.max_producers,
            producer_seconds=config.producer_seconds,
            broker=config.node_id,
        )
        try:
            self._hosted.config({})
        except InvalidConfigError as error:
            raise UsageError(str(error)) from None
        rule = SubjectRule(config.require_subject, self._hosted.schema_ids)
        self._topic_changes = TopicChanges(self._hosted, coordination, rule)
        await self._topic_changes.load()
        self._transactions = await self._coordinate_transactions(coordination)
        self._offsets_topic = await open_offsets_topic(
            self._hosted, self._topic_changes, coordination, time.time, wanted=config.offsets_topic
        )
        self._node = Node(
            config.node_id,
            *self._advertised,
            config.default_partitions,
            config.auto_create_topics,
            self._hosted,
            self._topic_changes,
            TopicLookup(self._hosted, self._topic_changes, coordination, loop.time),
            coordination,
            self._groups,
            self._transactions,
            time.time,
            kafka_configs(config, self.address),
            config.verify_fetches,
            counters=counters,
        )
        limits = config.limits
        self._authenticator = None
        if config.users is not None:
            self._authenticator = Authenticator(config.users, limits.failed_login_seconds)
        context = ServerContext(
            self._node, limits, self.memory, self._authorizer, self._authenticator
        )
        assert self._listener is not None
        self._acceptor = Acceptor(self._listener, context, config.tls)

    async def _coordinate_transactions(
        self, coordination: Coordination
    ) -> TransactionCoordinator | None:
        """Return the transaction coordinator with what the store has; None in a cluster."""
        store, limits = coordination.transactions, self.config.transactions
        if store is None:
            return None
        found = TransactionCoordinator(
            store, coordination, self._hosted, lambda: int(time.time() * 1000), limits
        )
        await found.load()
        return found

    async def _coordinate(self) -> Coordination:
        config = self.config
        if config.cluster is None:
            refuse_cluster_folder(config.folder)
            return LocalCoordination(config.folder / "coordination.sqlite", config.node_id)
        from headworks._broker.coordination.zookeeper import ZooKeeperCoordination

        store = await ZooKeeperCoordination.opened(config.cluster, config.node_id, config.folder)
        self._failure = store.failure
        return store

    async def _follow_cluster(self) -> None:
        """Apply the changes of other brokers, and release groups that they coordinate now."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._groups.configure(self._node.coordination.group_configs)
            self._groups.unload(lambda group: coordinates(self._node, group))
            try:
                await self._topic_changes.follow()
            except UnreachableError as error:
                about = {"error": error.message}
                _log.info("cannot follow the cluster now: %s", error, extra=about)
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()
            except Exception:  # one topic's trouble is not the others'; a later look may mend it
                _log.exception("following the cluster failed", extra={"id": self.config.node_id})

    async def _watch_grants(self) -> None:
        while True:
            await asyncio.sleep(_GRANTS_CHECK_SECONDS)
            self._authorizer.refresh()

    async def _watch_transactions(self) -> None:
        while self._transactions is not None:
            await asyncio.sleep(_TRANSACTIONS_CHECK_SECONDS)
            self._transactions.tick()

    async def _keep_retention(self) -> None:
        guard = ClockGuard(self._node.clock, asyncio.get_running_loop().time)
        while True:
            await asyncio.sleep(self.config.retention_check_seconds)
            if guard.may_expire():
                self._hosted.expire(int(self._node.clock() * 1000))
            self._node.counters.forget_topics(self._hosted.topics)
