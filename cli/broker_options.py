"""The options of `headworks broker start`, by theme."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.server_options import AccessOptions
from headworks._settings import lookup, resolve_optional
from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks._broker.server.limits import ClientLimits

_SINGLE_BROKER_ID = 1


@dataclass(frozen=True, slots=True)
class ClusterMemberOptions:
    """Whether the broker belongs to a cluster, and under which id."""

    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="join the cluster of this ZooKeeper, HOST:PORT[,HOST:PORT..][/chroot]"
            " (setting zookeeper)"
        ),
    ] = None
    broker_id: Annotated[
        int | None,
        typer.Option(min=0, help="id of this broker in its cluster; the id stays with the data"),
    ] = None
    advertise: Annotated[
        str | None,
        typer.Option(help="HOST:PORT that clients and brokers connect to (default: --listen)"),
    ] = None
    session_seconds: Annotated[
        float, typer.Option(min=0.5, help="time out the ZooKeeper session after this many seconds")
    ] = 6.0
    take_over: Annotated[
        bool, typer.Option(help="start with an empty folder: the data of this broker id is lost")
    ] = False

    @property
    def server_config(self) -> dict[str, Any]:
        """The fields of ServerConfig. Raises UsageError for a cluster member without an id."""
        from headworks._broker.coordination.zookeeper import ClusterOptions

        ensemble = resolve_optional("zookeeper", self.zookeeper) or None
        if ensemble is not None and self.broker_id is None:
            raise UsageError(
                "a broker of a cluster needs a --broker-id: the number that its data belongs to",
                fix="give every broker one of its own, 1 for the first",
            )
        cluster = None
        if ensemble is not None:
            cluster = ClusterOptions(ensemble, self.session_seconds, self.take_over)
        return {
            "node_id": _SINGLE_BROKER_ID if self.broker_id is None else self.broker_id,
            "cluster": cluster,
        }


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """How topics are created, and the defaults of their settings."""

    default_partitions: Annotated[
        int,
        typer.Option(
            min=1, max=10_000, help="create this many partitions for an auto-created topic"
        ),
    ] = 4
    auto_create: Annotated[
        bool, typer.Option(help="create a topic when a producer asks for it")
    ] = True
    max_partitions: Annotated[
        int, typer.Option(min=1, help="create at most this many partitions in all topics")
    ] = 10_000
    segment_bytes: Annotated[
        int | None, typer.Option(min=1024, help="roll a segment at this size")
    ] = None
    retention_ms: Annotated[
        int | None,
        typer.Option(min=-1, help="remove a segment this long after its last write (-1: never)"),
    ] = None
    retention_bytes: Annotated[
        int | None,
        typer.Option(min=-1, help="retain at most this many bytes per partition (-1: unlimited)"),
    ] = None
    flush_messages: Annotated[
        int | None, typer.Option(min=1, help="flush a partition after this many messages")
    ] = None
    flush_ms: Annotated[
        int | None, typer.Option(min=0, help="flush a partition after this many milliseconds")
    ] = None
    max_message_bytes: Annotated[
        int | None, typer.Option(min=0, help="reject record batches above this size")
    ] = None
    show_unflushed: Annotated[
        bool, typer.Option(help="let consumers read messages before they are flushed")
    ] = False
    registry: Annotated[
        str | None,
        typer.Option(help="URL of the registry, for topics that check ids (setting registry)"),
    ] = None

    require_subject: Annotated[
        str | None,
        typer.Option(
            help="create a topic whose whole name matches this regular expression only if"
            " TOPIC-value is registered",
            metavar="PATTERN",
        ),
    ] = None

    @property
    def server_config(self) -> dict[str, Any]:
        """The fields of ServerConfig."""
        defaults = {
            "segment.bytes": self.segment_bytes,
            "retention.ms": self.retention_ms,
            "retention.bytes": self.retention_bytes,
            "flush.messages": self.flush_messages,
            "flush.ms": self.flush_ms,
            "max.message.bytes": self.max_message_bytes,
        }
        # The default of the setting is the address of `headworks up`: a broker checks ids only
        # with a registry that was named.
        registry = lookup("registry", self.registry)
        return {
            "default_partitions": self.default_partitions,
            "auto_create_topics": self.auto_create,
            "max_partitions": self.max_partitions,
            "topic_defaults": {k: str(v) for k, v in defaults.items() if v is not None},
            "show_unflushed": self.show_unflushed,
            "registry": None if registry.source == "default" else registry.value,
            "require_subject": self.require_subject,
        }


@dataclass(frozen=True, slots=True)
class UpkeepOptions:
    """How often retention and compaction run, what is verified, and how long producers are kept."""

    retention_check_seconds: Annotated[
        float, typer.Option(min=0.1, help="check retention every this many seconds")
    ] = 300.0
    compaction_seconds: Annotated[
        float, typer.Option(min=0.1, help="check for log compaction every this many seconds")
    ] = 15.0
    scrub_mb_per_second: Annotated[
        float,
        typer.Option(min=0, help="verify sealed segments at this rate, once a day (0: never)"),
    ] = 8.0
    verify_fetches: Annotated[
        bool,
        typer.Option(
            "--verify-fetches",
            help="verify the CRC of every batch that is served, at three times the CPU time",
        ),
    ] = False
    max_producers: Annotated[
        int,
        typer.Option(min=1, help="remember at most this many idempotent producers per broker"),
    ] = 200_000
    producer_id_expiration_ms: Annotated[
        int,
        typer.Option(
            min=1,
            help="expire an idempotent producer after this long without a write to the partition",
        ),
    ] = 86_400_000

    offsets_topic: Annotated[
        bool,
        typer.Option(
            "--offsets-topic",
            help="serve committed offsets as the topic __consumer_offsets, too, to read only",
        ),
    ] = False

    @property
    def server_config(self) -> dict[str, Any]:
        """The fields of ServerConfig."""
        options = asdict(self)
        producer_seconds = options.pop("producer_id_expiration_ms") / 1000
        return {**options, "producer_seconds": producer_seconds}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections the broker accepts, and when it closes one."""

    max_connections: Annotated[
        int, typer.Option(min=1, help="accept at most this many connections")
    ] = 2000
    max_connections_per_address: Annotated[
        int | None,
        typer.Option(
            min=1, help="accept at most this many connections per IP address (default: unlimited)"
        ),
    ] = None
    idle_seconds: Annotated[
        float, typer.Option(min=0.1, help="close a connection after this long without a request")
    ] = 600.0
    stall_seconds: Annotated[
        float,
        typer.Option(
            min=0.1, help="close a connection that stops for this long within a request or response"
        ),
    ] = 60.0

    @property
    def client_limits(self) -> ClientLimits:
        """The limits; the broker's own defaults for all others."""
        from headworks._broker.server.limits import ClientLimits

        return ClientLimits(**asdict(self))


@dataclass(frozen=True, slots=True)
class BrokerAccessOptions(AccessOptions):
    """The broker's users, grants, and TLS."""

    # The broker has --no-insecure, too.
    insecure: Annotated[
        bool, typer.Option(help="let other machines connect without users or without TLS")
    ] = False
