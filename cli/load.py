"""`headworks load`: load topics into Hive tables, correct what was loaded, and show it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.broker_address import BrokerOptions
from headworks._cli.load_policy import PolicyOptions
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import DataDirOption, WarehouseOption
from headworks._cli.output import Format, FormatOption, number_of, print_json, print_status
from headworks._cli.server_options import LogOptions
from headworks._cli.times import parse_duration_ms
from headworks._cli.warehouse_options import (
    WarehouseOptions,
    open_warehouse,
    phases,
    print_report,
    warehouse_folder,
)
from headworks._cli.warehouse_status import print_warehouse_status
from headworks.errors import FindingsError, UnreachableError, UsageError

if TYPE_CHECKING:
    from hadoop_loader import LoadReport, Warehouse
    from hadoop_loader._operations.service import RunRecorder, WarehouseService

load_app = typer.Typer(no_args_is_help=True, help="Load topics into Hive tables.")
TopicArgument = Annotated[str, typer.Argument(help="the topic")]
OptionalTopic = Annotated[str | None, typer.Argument(help="the topic (default: all topics)")]


@load_app.callback()
def load() -> None:
    """Load topics into Hive tables."""


StandbyOption = Annotated[
    bool,
    typer.Option(
        "--standby",
        help="with --every: wait while another loader holds the warehouse, then take over",
    ),
]


@load_app.command()
@expand_groups
def run(
    source: WarehouseOptions,
    rules: PolicyOptions,
    serve: Annotated[
        str | None,
        typer.Option(help="keep running, and serve HiveServer2 on this HOST:PORT (loopback)"),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="load again at this interval: 30s, 10m, 1h")
    ] = None,
    standby: StandbyOption = False,
    metrics: Annotated[
        str | None, typer.Option(help="serve Prometheus metrics on this HOST:PORT")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="let other machines read the metrics")
    ] = False,
    metrics_file: Annotated[
        Path | None, typer.Option(help="write Prometheus metrics to this file after each run")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Load everything that is new in every topic. Exit 1 if a topic or partition was skipped."""
    from hadoop_loader._operations.service import RunRecorder, WarehouseService, load_until_signal
    from hadoop_loader._spark.hiveserver2 import parse_address
    from hadoop_loader._spark.session import prepare_class_archive
    from headworks._server.metrics_page import MetricsEndpoint

    interval_ms = _interval_ms(every, standby=standby)
    hive = None if serve is None else parse_address(serve, "--serve")
    endpoint = None if metrics is None else MetricsEndpoint.parse(metrics, insecure=insecure)
    config = replace(source.config(rules.policy), long_queries=hive is not None)
    runs = RunRecorder(lambda report: print_report(report, format), metrics_file)
    service = WarehouseService(
        lambda: open_warehouse(config), lambda opened: _serve(opened, hive), phases
    )
    try:
        if not standby:
            service.open()
        if endpoint is not None or metrics_file is not None:
            url = runs.measure(config.root, endpoint)
            if url is not None:
                print_status(f"metrics are at {url}")
        if interval_ms is not None:
            LogOptions().configure()
            load_until_signal(interval_ms / 1000, service, runs, standby=standby)
            return
        report = _load_once(service, runs)
        if hive is not None:
            print_status("serving until Ctrl-C")
            service.wait_until_dead()
    finally:
        service.close()
    prepare_class_archive()
    if report.left_out is not None:
        raise FindingsError(
            f"not everything was loaded ({report.left_out}); all else was loaded and committed",
            fix="remove the causes printed above, then run `headworks load run` for the rest",
        )


def _interval_ms(every: str | None, *, standby: bool) -> int | None:
    if every is not None:
        return parse_duration_ms("--every", every, zero=False)
    if standby:
        raise UsageError("--standby is for a loader that goes on", fix="give --every, too")
    return None


def _load_once(service: WarehouseService[Warehouse], runs: RunRecorder) -> LoadReport:
    try:
        report = service.load()
    except Exception:  # the command reports it; the metrics count it
        runs.count_failure()
        raise
    runs.loaded(report)
    return report


@load_app.command()
@expand_groups
def status(
    brokers: BrokerOptions,
    data_dir: DataDirOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Show the table, offsets, rows, files, schema version, and lag of each topic."""
    from hadoop_loader._operations.status import warehouse_status
    from hadoop_loader._storage.filesystem import parse_path

    root = parse_path(warehouse_folder(data_dir, warehouse))
    try:
        found = warehouse_status(root, brokers.servers)
    except UnreachableError as error:  # only the lag needs a broker
        found = {**warehouse_status(root), "broker_error": error.message}
    if format is Format.JSON:
        print_json(found)
    else:
        print_warehouse_status(found)


@load_app.command()
@expand_groups
def rewind(
    source: WarehouseOptions,
    topic: TopicArgument,
    to: Annotated[
        str, typer.Option(help="1200, 2:1200 (partition 2), 2026-05-01T12:00:00Z, or earliest")
    ],
    format: FormatOption = Format.TEXT,
) -> None:
    """Load a topic again from a position, and replace the rows that were loaded from there on."""
    from hadoop_loader._fetch.position import RewindPosition
    from hadoop_loader._operations.refusals import check_table

    position = RewindPosition.parse(to)
    with source.open(lambda c: check_table(c.root, topic)) as opened, phases() as progress:
        report = opened.rewind(topic, position, progress)
    print_report(report, format)


@load_app.command()
@expand_groups
def requeue(
    source: WarehouseOptions, topic: OptionalTopic = None, format: FormatOption = Format.TEXT
) -> None:
    """Decode quarantined messages again, after their schemas were registered.

    Exit 1 if some cannot be decoded. They stay in quarantine.
    """
    from hadoop_loader._operations.refusals import check_table

    with source.open(lambda c: check_table(c.root, topic)) as opened:
        for name in opened.quarantined() if topic is None else [topic]:
            with phases() as progress:
                report = opened.requeue(name, progress)
            print_report(report, format)
        left = opened.quarantined()
    if left if topic is None else topic in left:
        raise FindingsError(
            f"messages of {', '.join(left)} are still in quarantine",
            fix='`headworks sql "SELECT topic, reason, count(*) FROM headworks_quarantine GROUP '
            'BY topic, reason"` says why',
        )


@load_app.command()
@expand_groups
def rebuild(
    source: WarehouseOptions, topic: TopicArgument, format: FormatOption = Format.TEXT
) -> None:
    """Rewrite a topic's table in its latest schema, if the files cannot follow it in place.

    Exit 1 without a change if Avro does not resolve the old rows. After an interruption, run it
    again.
    """
    from hadoop_loader._operations.refusals import check_table

    with source.open(lambda c: check_table(c.root, topic)) as opened, phases() as progress:
        report = opened.rebuild(topic, progress)
    print_report(report, format)


@load_app.command()
@expand_groups
def compact(
    source: WarehouseOptions,
    topic: OptionalTopic = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="also rewrite every file that is in an older schema"),
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Merge the small files of each partition, in the latest schema. Readers are not disturbed."""
    from hadoop_loader._operations.refusals import check_table

    with source.open(lambda c: check_table(c.root, topic)) as opened, phases() as progress:
        done = opened.compact(topic, progress, every=every)
    if format is Format.JSON:
        print_json(asdict(done))
    nothing = "nothing to do: no partition has two small files"
    nothing += ", or a file in an older schema" * every
    print_status(str(done) if done.number else nothing)
    for refusal in done.refused:
        print_status(f"topic {refusal.topic} was not compacted: {refusal.reason}")
    if done.refused:
        raise FindingsError(
            f"{len(done.refused)} tables or partitions were not compacted; all others were",
            fix="remove the causes printed above, then run again",
        )


@load_app.command()
@expand_groups
def move(
    source: WarehouseOptions,
    old: Annotated[str, typer.Option("--from", help="the cluster that was loaded: HOST:PORT")],
    new: Annotated[str, typer.Option("--to", help="the cluster to continue with: HOST:PORT")],
    start: Annotated[
        str | None,
        typer.Option(
            help="where the new topics' messages begin to be new: beginning, or end if all of them"
            " are copies of loaded ones"
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="move the consumer groups whose whole names match this regex, too"),
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Continue with the topics of another cluster, after all of the old one is loaded."""
    config = replace(source.config(), bootstrap=new)
    with open_warehouse(config, same_cluster=False) as opened, phases() as progress:
        report = opened.move(old, start, progress, groups=groups)
    if format is Format.JSON:
        print_json(asdict(report))
    if report.groups:
        print_status(f"moved consumer groups: {', '.join(report.groups)}")
    topics = number_of(len(report.offsets), "topic")
    print_status(f"move {report.number}: the next load reads {topics} of {new}")


@load_app.command()
@expand_groups
def drop(
    source: WarehouseOptions,
    topic: TopicArgument,
    reload: Annotated[
        bool, typer.Option("--reload", help="although the topic exists: load it again afterwards")
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Drop a topic's table with its files, and forget the topic's offsets."""
    from hadoop_loader._operations.refusals import check_drop

    with (
        source.open(lambda c: check_drop(c.root, c.bootstrap, topic, reload=reload)) as opened,
        phases() as progress,
    ):
        report = opened.drop(topic, progress, reload=reload)
    if format is Format.JSON:
        print_json(asdict(report))
    rows = number_of(report.rows, "row")
    print_status(f"drop {report.number}: table {report.table} with {rows} is gone")


@load_app.command()
@expand_groups
def acknowledge(
    source: WarehouseOptions, topic: TopicArgument, format: FormatOption = Format.TEXT
) -> None:
    """Give up what can never be done for a topic, so that loads no longer fail for it.

    A refused topic stays refused. A held part of a commit is given up, and its messages are lost.
    """
    from hadoop_loader._operations.refusals import check_acknowledge

    with source.open(lambda c: check_acknowledge(c.root, topic)) as opened, phases() as progress:
        report = opened.acknowledge(topic, progress)
    if format is Format.JSON:
        print_json(asdict(report))
    elif report.reason is not None:
        print_status(f"loads no longer fail for topic {topic}: {report.reason}")
    else:
        print_status(f"given up for topic {topic}: {report.lost:,} messages are lost")


@load_app.command()
@expand_groups
def erase(
    source: WarehouseOptions,
    where: Annotated[str, typer.Option(help="user_id = 42, or user.name = 'Ann'")],
    format: FormatOption = Format.TEXT,
) -> None:
    """Erase the rows with one value of a field from every table that has the field."""
    from hadoop_loader._operations.erase import EraseCondition

    condition = EraseCondition.parse(where)
    with source.open() as opened, phases() as progress:
        report = opened.erase(condition, progress)
    if format is Format.JSON:
        print_json(asdict(report))
        return
    rows = number_of(sum(report.rows.values()), "row")
    bad = number_of(sum(report.quarantined.values()), "quarantined message")
    print_status(f"erased {rows} and {bad}")
    print_status(f"searched the tables of {', '.join(report.searched)}")


def _serve(warehouse: Warehouse, address: tuple[str, int] | None) -> None:
    """Serve HiveServer2, if there is an address for it."""
    if address is not None:
        host, port = warehouse.serve(*address)
        print_status(f"HiveServer2 serves {host}:{port}: try `headworks sql --hive {host}:{port}`")
