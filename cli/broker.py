"""`headworks broker start`: run the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["broker_app"]

broker_app = typer.Typer(
    no_args_is_help=True, help="The broker: a log that every Kafka client can use."
)


@broker_app.callback()
def _broker() -> None:
    """The broker: a log that every Kafka client can use."""


@broker_app.command()
def start(
    listen: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT to listen on and to tell clients; port 0: any free one."
            " Default: the setting bootstrap."
        ),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Data folder; the broker's is DATA_DIR/broker.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="Join the cluster of this ZooKeeper, HOST:PORT[,HOST:PORT..][/chroot]"
            " (setting zookeeper)."
        ),
    ] = None,
    broker_id: Annotated[
        int | None,
        typer.Option(min=0, help="Who this broker is in its cluster; the id stays with the data."),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(help="HOST:PORT that clients and brokers are told; default: --listen."),
    ] = None,
    session_seconds: Annotated[
        float,
        typer.Option(min=0.5, help="ZooKeeper takes the broker for dead after so much silence."),
    ] = 6.0,
    take_over: Annotated[
        bool,
        typer.Option(help="The data folder of this broker id is lost: go on with an empty one."),
    ] = False,
    default_partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Partitions of topics created by being used.")
    ] = 4,
    auto_create: Annotated[
        bool, typer.Option(help="Create a topic when a producer asks for it.")
    ] = True,
    max_partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of all topics together; no more are created.")
    ] = 10_000,
    segment_bytes: Annotated[
        int | None, typer.Option(min=1024, help="Start a new segment file at this size.")
    ] = None,
    retention_ms: Annotated[
        int | None, typer.Option(min=-1, help="Remove segments so long after their last write.")
    ] = None,
    retention_bytes: Annotated[
        int | None, typer.Option(min=-1, help="Keep at most so many bytes of a partition.")
    ] = None,
    flush_messages: Annotated[
        int | None, typer.Option(min=1, help="Put a partition on disk after so many messages.")
    ] = None,
    flush_ms: Annotated[
        int | None, typer.Option(min=0, help="Put a partition on disk after so many ms.")
    ] = None,
    max_message_bytes: Annotated[
        int | None, typer.Option(min=0, help="Largest record batch that is taken.")
    ] = None,
    show_unflushed: Annotated[
        bool, typer.Option(help="Let consumers see what is written but not on disk yet.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option(help="URL of the registry, for topics that check ids (setting registry)."),
    ] = None,
    retention_check_seconds: Annotated[
        float, typer.Option(min=0.1, help="Look so often for what retention should remove.")
    ] = 300.0,
    compaction_seconds: Annotated[
        float, typer.Option(min=0.1, help="Look so often for what log compaction should do.")
    ] = 15.0,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at a time.")] = 2000,
    max_connections_per_address: Annotated[
        int | None,
        typer.Option(min=1, help="Connections at a time from one IP address; default: no limit."),
    ] = None,
    max_producers: Annotated[
        int, typer.Option(min=1, help="Idempotent producers remembered, of all partitions.")
    ] = 200_000,
    producer_id_expiration_ms: Annotated[
        int, typer.Option(min=1, help="Forget an idempotent producer that is silent for so long.")
    ] = 86_400_000,
    idle_seconds: Annotated[
        float, typer.Option(min=0.1, help="Close a connection that is silent for so long.")
    ] = 600.0,
    stall_seconds: Annotated[
        float,
        typer.Option(
            min=0.1, help="Close a connection that leaves a request or its replies half way."
        ),
    ] = 60.0,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate, PEM: speak TLS (setting tls_cert).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's key, PEM (setting tls_key).")
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(help="File of users: ask everybody who they are (setting users)."),
    ] = None,
    access: Annotated[
        Path | None, typer.Option(help="File of grants: who may do what (setting access).")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Serve Prometheus metrics on this HOST:PORT.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option(help="Listen beyond loopback without users, or without TLS.")
    ] = False,
    log_format: Annotated[
        str | None, typer.Option(help="Log to stderr as text or json (setting log_format).")
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(help="debug, info, warning or error (setting log_level)."),
    ] = None,
    format: Annotated[str, typer.Option(help="How to say that it serves: text or json.")] = "text",
) -> None:
    """Serve until SIGTERM or Ctrl-C. Prints one line when clients may come."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()

    from headworks._broker.coordination.zookeeper import ClusterOptions
    from headworks._broker.server.run import StartOptions, run
    from headworks._settings import lookup, resolve, resolve_optional

    def file(setting: str, flag: Path | None) -> Path | None:
        found = resolve_optional(setting, flag)
        return None if found is None else Path(found)

    ensemble = resolve_optional("zookeeper", zookeeper) or None
    asked = lookup("registry", registry)  # its default is somebody else's: it must be said
    defaults = {
        "segment.bytes": segment_bytes,
        "retention.ms": retention_ms,
        "retention.bytes": retention_bytes,
        "flush.messages": flush_messages,
        "flush.ms": flush_ms,
        "max.message.bytes": max_message_bytes,
    }
    run(
        StartOptions(
            listen=resolve("bootstrap", listen),
            folder=Path(resolve("data_dir", data_dir)) / "broker",
            default_partitions=default_partitions,
            auto_create_topics=auto_create,
            max_partitions=max_partitions,
            show_unflushed=show_unflushed,
            topic_defaults={k: str(v) for k, v in defaults.items() if v is not None},
            max_connections=max_connections,
            max_connections_per_address=max_connections_per_address,
            max_producers=max_producers,
            producer_seconds=producer_id_expiration_ms / 1000,
            idle_seconds=idle_seconds,
            stall_seconds=stall_seconds,
            metrics=metrics,
            tls_cert=file("tls_cert", tls_cert),
            tls_key=file("tls_key", tls_key),
            users=file("users", users),
            access=file("access", access),
            log_format=resolve("log_format", log_format),
            log_level=resolve("log_level", log_level),
            insecure=insecure,
            registry=None if asked.source == "default" else asked.value,
            retention_check_seconds=retention_check_seconds,
            compaction_seconds=compaction_seconds,
            broker_id=_broker_id(broker_id, ensemble),
            advertise=advertise,
            cluster=None
            if ensemble is None
            else ClusterOptions(ensemble, session_seconds, take_over),
            json=_is_json(format),
        )
    )


def _broker_id(asked: int | None, zookeeper: str | None) -> int:
    from headworks.errors import UsageError

    if zookeeper is not None and asked is None:
        raise UsageError(
            "a broker of a cluster needs a --broker-id: the number that its data belongs to",
            fix="give every broker one of its own, 1 for the first",
        )
    return 1 if asked is None else asked


def _is_json(format_: str) -> bool:
    from headworks.errors import UsageError

    if format_ not in ("text", "json"):
        raise UsageError(f"--format is text or json, not {format_!r}")
    return format_ == "json"
