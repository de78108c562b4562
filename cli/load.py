"""`headworks load`: load topics into Hive tables, correct what was loaded, and show it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.broker_address import BrokerOptions
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import DataDirOption, WarehouseOption
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._cli.server_options import LogOptions
from headworks._cli.times import parse_duration_ms
from headworks._cli.warehouse_options import (
    WarehouseOptions,
    open_warehouse,
    phases,
    print_report,
    warehouse_folder,
)
from headworks.errors import FindingsError, UnreachableError

if TYPE_CHECKING:
    from hadoop_loader import LoadReport, Policy, Warehouse
    from hadoop_loader._operations.service import RunRecorder, WarehouseService

__all__ = ["load_app"]

load_app = typer.Typer(no_args_is_help=True, help="Load topics into Hive tables.")
TopicArgument = Annotated[str, typer.Argument(help="the topic")]
OptionalTopic = Annotated[str | None, typer.Argument(help="the topic (default: all topics)")]


@load_app.callback()
def load() -> None:
    """Load topics into Hive tables."""


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Which topics are loaded, how their tables are partitioned, and what stops a topic."""

    allow: Annotated[
        str, typer.Option(help="load only topics whose whole name matches this regex")
    ] = ".*"
    deny: Annotated[str, typer.Option(help="skip topics whose whole name matches this regex")] = ""
    partitions: Annotated[
        str, typer.Option(help="daily, hourly, or auto: hourly for topics with many messages")
    ] = "auto"
    quarantine_limit: Annotated[
        str,
        typer.Option(help="skip a topic with more than 10% (or N) bad messages; none: no limit"),
    ] = "10%"
    skip_lost: Annotated[
        bool, typer.Option(help="continue after messages that the broker has removed")
    ] = False
    compact: Annotated[
        bool,
        typer.Option(
            help="compact the partitions that this load touched, if they have many small files"
        ),
    ] = True

    @property
    def policy(self) -> Policy:
        """The policy. Raises UsageError for a limit that is none."""
        from hadoop_loader._commit.policy import Policy, QuarantineLimit

        limit = QuarantineLimit.parse(self.quarantine_limit)
        return Policy(self.allow, self.deny, self.partitions, limit, self.skip_lost, self.compact)


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
    """Load everything that is new in every topic. Exit 1 if a topic was skipped."""
    from hadoop_loader._operations.service import RunRecorder, WarehouseService, load_until_signal
    from hadoop_loader._spark.session import prepare_class_archive
    from headworks._server.metrics_page import MetricsEndpoint
    from headworks._server.security.exposure import parse_listen

    interval_ms = None if every is None else parse_duration_ms("--every", every, zero=False)
    hive = None if serve is None else parse_listen(serve, "--serve")
    endpoint = None if metrics is None else MetricsEndpoint.parse(metrics, insecure=insecure)
    config = replace(source.config(rules.policy), long_queries=hive is not None)
    runs = RunRecorder(lambda report: print_report(report, format), metrics_file)
    service = WarehouseService(
        lambda: open_warehouse(config), lambda opened: _serve(opened, hive), phases
    )
    try:
        service.open()
        if endpoint is not None or metrics_file is not None:
            url = runs.measure(config.root, endpoint)
            if url is not None:
                print_status(f"metrics are at {url}")
        if interval_ms is not None:
            LogOptions().configure()
            load_until_signal(interval_ms / 1000, service, runs)
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
        _print_status(found)


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

    position = RewindPosition.parse(to)
    with source.open() as opened, phases() as progress:
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
    with source.open() as opened:
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
    with source.open() as opened, phases() as progress:
        report = opened.rebuild(topic, progress)
    print_report(report, format)


@load_app.command()
@expand_groups
def compact(
    source: WarehouseOptions, topic: OptionalTopic = None, format: FormatOption = Format.TEXT
) -> None:
    """Merge the small files of each partition. Readers are not disturbed."""
    with source.open() as opened, phases() as progress:
        done = opened.compact(topic, progress)
    if format is Format.JSON:
        print_json(asdict(done))
    print_status(
        str(done) if done.partitions else "nothing to do: no partition has two small files"
    )


def _print_status(found: dict[str, Any]) -> None:
    applied = "" if found["applied"] else ", not finished: load again"
    print_status(f"load {found['load']}{applied}")
    if found["broker_error"]:
        print_status(f"the lag is unknown: {found['broker_error']}")
    print_table(
        ["topic", "table", "version", "rows", "files", "bad", "lost", "behind", "minutes", "load"],
        [
            [
                t["topic"],
                t["table"],
                t["schema_version"],
                t["rows"],
                t["files"],
                t["quarantined"],
                t["lost"],
                "?" if t["lag_messages"] is None else t["lag_messages"],
                "?" if t["lag_minutes"] is None else t["lag_minutes"],
                t["load"],
            ]
            for t in found["topics"]
        ],
    )
    for topic in found["ungoverned"]:
        print_status(f"topic {topic} had no schema at the last load, and is not loaded")
    for refusal in found["refused"]:
        if refusal["rebuilt"]:
            print_status(f"the last load skipped topic {refusal['topic']}; it was rebuilt since")
        else:
            print_status(f"topic {refusal['topic']} was not loaded: {refusal['reason']}")
    for one in found["leaderless"]:
        print_status(f"topic {one['topic']} was loaded in part: {one['reason']}")
    if found["unmarked"] is not None:
        print_status(f"the completeness marks were not updated: {found['unmarked']}")


def _serve(warehouse: Warehouse, address: tuple[str, int] | None) -> None:
    """Serve HiveServer2, if there is an address for it."""
    if address is not None:
        host, port = warehouse.serve(*address)
        print_status(f"HiveServer2 serves {host}:{port}: try `headworks sql --hive {host}:{port}`")
