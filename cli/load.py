"""`headworks load run|status`: bring every topic into Hive tables; what is in them."""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.again import again_app
from headworks._cli.broker_address import ZooKeeper, bootstrap_servers
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
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
    warehouse_folder,
)
from headworks._settings import resolve
from headworks.errors import FindingsError, HeadworksError, UnreachableError, UsageError

if TYPE_CHECKING:
    from hadoop_loader import LoadReport, Warehouse
    from hadoop_loader._operations.metrics import LoaderMetrics
    from hadoop_loader._storage.filesystem import AnyPath
    from headworks._server.metrics_page import MetricsEndpoint

__all__ = ["load_app"]

load_app = typer.Typer(no_args_is_help=True, help="The Hadoop loader: topics into Hive tables.")
load_app.registered_commands.extend(again_app.registered_commands)
_LOG = logging.getLogger("hadoop_loader._operations.schedule")
_UNITS = {"s": 1, "m": 60, "h": 3600}
_LOOK = 5.0  # seconds


@load_app.callback()
def load() -> None:
    """The Hadoop loader: topics into Hive tables."""


@load_app.command()
def run(
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    data_dir: DataDir = None,
    warehouse: WarehouseOption = None,
    database: Database = None,
    master: Master = None,
    metastore: Metastore = None,
    allow: Annotated[str, typer.Option(help="regex: only topics whose whole name matches")] = ".*",
    deny: Annotated[str, typer.Option(help="regex: no topics whose whole name matches")] = "",
    partitions: Annotated[
        str, typer.Option(help="daily, hourly, or auto: hours for topics of great volume")
    ] = "auto",
    quarantine_limit: Annotated[
        str, typer.Option(help="hold a topic back above 10% (or N) bad messages; none: never")
    ] = "10%",
    skip_lost: Annotated[
        bool, typer.Option(help="go on behind messages that the broker no longer has")
    ] = False,
    compact: Annotated[
        bool, typer.Option(help="make the files of what was loaded fewer, when worth it")
    ] = True,
    serve: Annotated[
        str | None, typer.Option(help="HOST:PORT: stay, and serve HiveServer2 (loopback)")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="load again and again: every 30s, 10m, 1h")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT: serve Prometheus metrics there meanwhile")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="serve metrics to every machine, without a password")
    ] = False,
    metrics_file: Annotated[
        Path | None, typer.Option(help="write Prometheus metrics there after each run")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Load everything that is new in every topic; exit 1 if something had to be left out."""
    from hadoop_loader._commit.policy import Policy, QuarantineLimit
    from hadoop_loader._spark.session import prepare_class_archive
    from headworks._server.metrics_page import MetricsEndpoint
    from headworks._server.security.exposure import parse_listen

    pause = None if every is None else _seconds(every)
    address = None if serve is None else parse_listen(serve, "--serve")
    endpoint = None if metrics is None else MetricsEndpoint.parse(metrics, insecure=insecure)
    policy = Policy(
        allow, deny, partitions, QuarantineLimit.parse(quarantine_limit), skip_lost, compact
    )
    config = config_of(
        bootstrap_servers(bootstrap, zookeeper),
        registry,
        data_dir,
        warehouse,
        database,
        master,
        metastore,
        policy,
    )
    config = replace(config, long_queries=address is not None)
    runs = _Runs(format, metrics_file)
    keeper = _Keeper(lambda: open_warehouse(config), address)
    try:
        keeper.open()
        if metrics is not None or metrics_file is not None:
            runs.count(config.root, endpoint)
        if pause is not None:
            _again_and_again(pause, keeper, runs)
            return
        try:
            report = keeper.load()
        except Exception:  # the command's end tells of it; who looks at the numbers sees it too
            runs.count_failure()
            raise
        runs.loaded(report)
        if address is not None:
            _serve_while(keeper.alive)
    finally:
        keeper.close()
    prepare_class_archive()
    if report.left_out is not None:
        raise FindingsError(
            f"what could be loaded is loaded and stays; not done: {report.left_out}",
            fix="see above why; when that is mended, `headworks load run` does the rest",
        )


@load_app.command()
def status(
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Per topic its table, offsets, rows, files, schema version, and how far behind it is."""
    from hadoop_loader._operations.status import warehouse_status
    from hadoop_loader._storage.filesystem import parse_path

    root = parse_path(warehouse_folder(data_dir, warehouse))
    try:
        found = warehouse_status(root, bootstrap_servers(bootstrap, zookeeper))
    except UnreachableError as error:  # what is loaded can be said without a broker
        found = {**warehouse_status(root), "broker_error": error.message}
    if format is Format.JSON:
        print_json(found)
        return
    print_status(
        f"load {found['load']}" + ("" if found["applied"] else ", not finished: load again")
    )
    if found["broker_error"]:
        print_status(f"how far behind it is cannot be said: {found['broker_error']}")
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
            print_status(
                f"topic {refusal['topic']} was left out of the last load, but was rebuilt since"
            )
        else:
            print_status(f"topic {refusal['topic']} was left as it is: {refusal['reason']}")
    for one in found["leaderless"]:
        print_status(
            f"topic {one['topic']} was loaded in part, the rest stays as it is: {one['reason']}"
        )
    if found["unmarked"] is not None:
        print_status(f"marks of completeness stand where they were: {found['unmarked']}")


class _Runs:
    """Tells of runs: on the terminal, and to whoever counts them."""

    def __init__(self, form: Format, metrics_file: Path | None) -> None:
        self._format = form
        self._file = metrics_file
        self._metrics: LoaderMetrics | None = None

    def count(self, root: AnyPath, endpoint: MetricsEndpoint | None) -> None:
        """Keep metrics from now on, and serve them at `endpoint`."""
        from hadoop_loader._operations.metrics import LoaderMetrics

        self._metrics = LoaderMetrics(root)
        if self._file is not None:
            self._metrics.write(self._file)
        if endpoint is not None:
            print_status(f"metrics are at {self._metrics.serve(endpoint)}")

    def loaded(self, report: LoadReport) -> None:
        """A run is over."""
        print_report(report, self._format)
        if self._metrics is not None:
            self._metrics.loaded(report)
            self._write()

    def failed(self, error: Exception, in_a_row: int) -> None:
        """A run failed."""
        again = f" ({in_a_row} times in a row now)" if in_a_row > 1 else ""
        _LOG.error(
            "the run failed%s, and the next one takes it up: %s",
            again,
            error if isinstance(error, HeadworksError) else repr(error),
            extra={"failed_in_a_row": in_a_row},
            exc_info=None if isinstance(error, HeadworksError) else error,
        )
        self.count_failure()

    def count_failure(self) -> None:
        """Put a failed run into the metrics."""
        if self._metrics is not None:
            self._metrics.failed()
            self._write()

    def _write(self) -> None:
        if self._metrics is None or self._file is None:
            return
        try:
            self._metrics.write(self._file)
        except UsageError as error:  # it could be written when the loader began
            _LOG.error("%s", error)


class _Keeper:
    """A warehouse that is opened, and served at `address`, as often as need be."""

    def __init__(self, open_: Callable[[], Warehouse], address: tuple[str, int] | None) -> None:
        self._warehouse: Warehouse | None = None
        self._address = address
        self._open = open_

    def open(self) -> _Keeper:
        """Open, if it is not."""
        if self._warehouse is None:
            self._warehouse = self._open()
            if self._address is not None:
                _serve(self._warehouse, self._address)
        return self

    def load(self) -> LoadReport:
        """Load everything that is new."""
        assert self._warehouse is not None
        with phases() as tell:
            return self._warehouse.load(tell)

    def alive(self) -> bool:
        """Whether the session still works."""
        return self._warehouse is not None and self._warehouse.alive()

    def close(self) -> None:
        """Close what is open."""
        closing, self._warehouse = self._warehouse, None
        if closing is not None:
            closing.close()


def _again_and_again(pause: float, keeper: _Keeper, runs: _Runs) -> None:
    """Load until SIGTERM or Ctrl-C; the run that is going on is finished."""
    from hadoop_loader._operations.schedule import load_every
    from headworks._server.logs import configure

    configure(resolve("log_format"), resolve("log_level"))
    stop = threading.Event()
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        load_every(pause, keeper.open, runs, stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve(warehouse: Warehouse, address: tuple[str, int]) -> None:
    host, port = warehouse.serve(*address)
    print_status(f"HiveServer2 serves {host}:{port}: try `headworks sql --hive {host}:{port}`")


def _serve_while(alive: Callable[[], bool]) -> None:
    """Stay, as long as there is somebody to answer; UnreachableError after that."""
    print_status("serving until Ctrl-C")
    while alive():
        time.sleep(_LOOK)
    raise UnreachableError(
        "nothing is served any more: Spark's JVM has ended, killed or out of memory, or the "
        "warehouse is another loader's now",
        fix="see what ended it, and run again; with --every it is started anew by itself",
    )


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smh])", text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"--every {text!r} is not a time", fix="give 30s, 10m or 1h")
    return float(int(found[1]) * _UNITS[found[2]])
