"""`headworks broker`: run the broker, and bring back what it lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headworks._cli.broker_options import (
    BrokerAccessOptions,
    ClusterMemberOptions,
    ConnectionLimits,
    TopicOptions,
    UpkeepOptions,
)
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import DataDirOption
from headworks._cli.output import Format, FormatOption, number_of, print_status
from headworks._cli.salvaged import print_salvaged
from headworks._cli.server_options import LogOptions
from headworks._settings import resolve
from headworks.errors import UsageError

broker_app = typer.Typer(no_args_is_help=True, help="Run the broker: a log for any Kafka client.")


@broker_app.callback()
def _broker() -> None:
    """Run the broker: a log for any Kafka client."""


@broker_app.command()
def adopt(data_dir: DataDirOption = None) -> None:
    """Make topics from the folders of their partitions, after the coordination store was lost.

    The broker must be stopped. Adopted topics retain everything until you set their configs.
    Committed offsets of groups were in the store and are lost.
    """
    from headworks._broker.server.folder_lock import FolderLock
    from headworks._broker.topics.adoption import adopt_topics

    data = _broker_folder(data_dir)
    lock = FolderLock(data)
    try:
        adopted = adopt_topics(data)
    finally:
        lock.release()
    for topic in adopted:
        print_status(f"adopted {topic.name} with {number_of(topic.partitions, 'partition')}")
        for index in topic.missing:
            print_status(f"{topic.name}-{index} has no folder: the broker will refuse it")
    if not adopted:
        print_status(f"every folder in {data / 'logs'} belongs to a topic already")


@broker_app.command()
def salvage(data_dir: DataDirOption = None) -> None:
    """Keep the intact rows of a damaged coordination store, and adopt the topics it has lost.

    The broker must be stopped. The damaged store is moved beside the new one.
    """
    from headworks._broker.server.folder_lock import FolderLock
    from headworks._broker.topics.adoption import salvage_store

    data = Path(resolve("data_dir", data_dir)) / "broker"
    lock = FolderLock(data)
    try:
        found, adopted = salvage_store(data)
    finally:
        lock.release()
    print_salvaged(found)
    for topic in adopted:
        print_status(f"adopted {topic.name} with {number_of(topic.partitions, 'partition')}")


@broker_app.command()
def recreate(
    partition: Annotated[str, typer.Argument(help="the partition, as TOPIC-NUMBER")],
    first_offset: Annotated[
        int | None,
        typer.Option(
            min=0, help="begin at this offset (default: 1,000,000,000 or more above all groups)"
        ),
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Recreate a partition whose folder is lost, with no messages and at a higher offset.

    The broker must be stopped. Consumers and loads then notice that their offset is gone.
    """
    from headworks._broker.server.folder_lock import FolderLock
    from headworks._broker.topics.adoption import recreate_partition

    data = _broker_folder(data_dir)
    lock = FolderLock(data)
    try:
        first = recreate_partition(data, partition, first_offset)
    finally:
        lock.release()
    print_status(f"{partition} begins again at offset {first}")


@broker_app.command()
@expand_groups
def start(
    member: ClusterMemberOptions,
    topics: TopicOptions,
    upkeep: UpkeepOptions,
    limits: ConnectionLimits,
    guard: BrokerAccessOptions,
    log: LogOptions,
    listen: Annotated[
        str | None,
        typer.Option(
            help="listen on this HOST:PORT, and advertise it; port 0: any free one"
            " (setting bootstrap)"
        ),
    ] = None,
    data_dir: DataDirOption = None,
    metrics: Annotated[
        str | None, typer.Option(help="serve Prometheus metrics on this HOST:PORT")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Print one line when the broker is ready."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()

    from headworks._broker.server.run import StartOptions, run
    from headworks._broker.server.server import ServerConfig

    server = ServerConfig(
        Path(resolve("data_dir", data_dir)) / "broker",
        **member.server_config,
        **topics.server_config,
        **upkeep.server_config,
        limits=limits.client_limits,
    )
    certificate, key = guard.tls_files
    log_format, log_level = log.resolved
    run(
        StartOptions(
            listen=resolve("bootstrap", listen),
            server=server,
            advertise=member.advertise,
            metrics=metrics,
            tls_cert=certificate,
            tls_key=key,
            users=guard.users_file,
            access=guard.access_file,
            insecure=guard.insecure,
            log_format=log_format,
            log_level=log_level,
            json=format is Format.JSON,
        )
    )


def _broker_folder(data_dir: str | None) -> Path:
    """Return the folder of an existing broker. Raises UsageError if there is none."""
    data = Path(resolve("data_dir", data_dir)) / "broker"
    if not data.is_dir():
        raise UsageError(f"{data} is not the folder of a broker", fix="give its --data-dir")
    return data
