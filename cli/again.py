"""`headworks load rewind|requeue|rebuild|compact`: what changes tables that are already there."""

from __future__ import annotations

from typing import Annotated

import typer

from headworks._cli.broker_address import ZooKeeper, bootstrap_servers
from headworks._cli.output import Format, FormatOption, print_json, print_status
from headworks._cli.warehouse_options import (
    Bootstrap,
    Database,
    DataDir,
    Master,
    Metastore,
    Registry,
    WarehouseOption,
    config_of,
    open_warehouse,
    phases,
    print_report,
)
from headworks.errors import FindingsError

__all__ = ["again_app"]

again_app = typer.Typer()
Topic = Annotated[str, typer.Argument(help="the topic")]


@again_app.command()
def rewind(
    topic: Topic,
    to: Annotated[
        str, typer.Option(help="1200, 2:1200 (partition 2), 2026-05-01T12:00:00Z or earliest")
    ],
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    data_dir: DataDir = None,
    warehouse: WarehouseOption = None,
    database: Database = None,
    master: Master = None,
    metastore: Metastore = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Read a topic again from there on, in place of the rows that were loaded from there."""
    from hadoop_loader._fetch.position import Position

    position = Position.parse(to)
    config = config_of(
        bootstrap_servers(bootstrap, zookeeper),
        registry,
        data_dir,
        warehouse,
        database,
        master,
        metastore,
    )
    with open_warehouse(config) as opened, phases() as tell:
        report = opened.rewind(topic, position, tell)
    print_report(report, format)


@again_app.command()
def requeue(
    topic: Annotated[str | None, typer.Argument(help="the topic; without, all of them")] = None,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    data_dir: DataDir = None,
    warehouse: WarehouseOption = None,
    database: Database = None,
    master: Master = None,
    metastore: Metastore = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Decode quarantined messages again, after what they lacked was registered.

    Exit 1 if some are still bad; they stay in quarantine.
    """
    config = config_of(
        bootstrap_servers(bootstrap, zookeeper),
        registry,
        data_dir,
        warehouse,
        database,
        master,
        metastore,
    )
    with open_warehouse(config) as opened:
        for name in opened.quarantined() if topic is None else [topic]:
            with phases() as tell:
                report = opened.requeue(name, tell)
            print_report(report, format)
        left = opened.quarantined()
    if left if topic is None else topic in left:
        raise FindingsError(
            f"messages of {', '.join(left)} are still in quarantine",
            fix='`headworks sql "SELECT topic, reason, count(*) FROM headworks_quarantine GROUP '
            'BY topic, reason"` says why',
        )


@again_app.command()
def rebuild(
    topic: Topic,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    data_dir: DataDir = None,
    warehouse: WarehouseOption = None,
    database: Database = None,
    master: Master = None,
    metastore: Metastore = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Write a topic's table anew in its latest schema, when files cannot follow it in place.

    Exit 1, and nothing changed, if Avro does not resolve the old rows. Interrupted, run it again.
    """
    config = config_of(
        bootstrap_servers(bootstrap, zookeeper),
        registry,
        data_dir,
        warehouse,
        database,
        master,
        metastore,
    )
    with open_warehouse(config) as opened, phases() as tell:
        report = opened.rebuild(topic, tell)
    print_report(report, format)


@again_app.command()
def compact(
    topic: Annotated[str | None, typer.Argument(help="the topic; without, all of them")] = None,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    data_dir: DataDir = None,
    warehouse: WarehouseOption = None,
    database: Database = None,
    master: Master = None,
    metastore: Metastore = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Make one large file of the small ones of each partition; readers notice nothing."""
    from dataclasses import asdict

    config = config_of(
        bootstrap_servers(bootstrap, zookeeper),
        registry,
        data_dir,
        warehouse,
        database,
        master,
        metastore,
    )
    with open_warehouse(config) as opened, phases() as tell:
        done = opened.compact(topic, tell)
    if format is Format.JSON:
        print_json(asdict(done))
    print_status(
        str(done) if done.partitions else "nothing to do: no partition has two small files"
    )
