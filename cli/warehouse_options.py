"""The options of commands on a warehouse, opening it, and printing what a run did."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import existing_store_url
from headworks._cli.broker_address import BrokerOptions, cluster_metadata
from headworks._cli.options import (
    DatabaseOption,
    DataDirOption,
    RegistryOption,
    WarehouseOption,
)
from headworks._cli.output import Format, number_of, print_json, print_status, print_table
from headworks._cli.progress_lines import ProgressLines
from headworks._settings import lookup, resolve, resolve_optional

if TYPE_CHECKING:
    from hadoop_loader import LoadReport, Policy, Warehouse, WarehouseConfig

_PHASES = {"read": "reading", "apply": "moving into tables", "compact": "compacting files"}


@dataclass(frozen=True, slots=True)
class WarehouseOptions(BrokerOptions):
    """Which warehouse, and the brokers and registry that it is loaded from."""

    registry: RegistryOption = None
    data_dir: DataDirOption = None
    warehouse: WarehouseOption = None
    database: DatabaseOption = None
    master: Annotated[
        str | None,
        typer.Option(
            help="where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://.."
            " (setting spark_master)"
        ),
    ] = None
    metastore: Annotated[
        str | None,
        typer.Option(
            help="use the metastore at thrift://HOST:PORT (setting metastore; default: embedded)"
        ),
    ] = None
    iceberg: Annotated[
        str | None,
        typer.Option(
            help="publish each commit to this Iceberg catalog: jdbc:.., https://.., thrift://.."
            " (setting iceberg; default: none)"
        ),
    ] = None

    def config(self, policy: Policy | None = None) -> WarehouseConfig:
        """Return the warehouse that the options and settings name."""
        from hadoop_loader import Policy, WarehouseConfig

        return WarehouseConfig(
            data_dir=Path(resolve("data_dir", self.data_dir)),
            warehouse=warehouse_folder(self.data_dir, self.warehouse),
            bootstrap=self.servers,
            registry=resolve("registry", self.registry),
            database=resolve("database", self.database),
            master=resolve("spark_master", self.master),
            metastore_uri=resolve_optional("metastore", self.metastore),
            iceberg=resolve_optional("iceberg", self.iceberg),
            recursive_types=resolve("recursive_types"),
            masked_database=resolve_optional("masked_database"),
            policy=policy or Policy(),
            audit_store=existing_store_url(None, self.data_dir),
        )

    def open(self, check: Callable[[WarehouseConfig], object] | None = None) -> Warehouse:
        """Open the warehouse (see `open_warehouse`), after `check` has refused what cannot be."""
        config = self.config()
        if check is not None:
            check(config)
        return open_warehouse(config)


def warehouse_folder(data_dir: str | None, warehouse: str | None) -> str:
    """Return the folder of the Hive tables; --data-dir moves its default, too."""
    found = lookup("warehouse", warehouse)
    if data_dir is not None and found.source.startswith("data_dir"):
        return str(Path(data_dir) / "warehouse")
    return str(found.value)


def open_warehouse(config: WarehouseConfig, *, same_cluster: bool = True) -> Warehouse:
    """Open a warehouse after checking that it is free, and that broker and registry answer.

    Raises UnreachableError if one does not, before Spark has taken its ten seconds to start.
    `same_cluster`: also refuse another cluster than the one that the warehouse was loaded from.
    """
    from hadoop_loader import Warehouse
    from hadoop_loader._operations.refusals import check_cluster_id
    from headworks.registry_client import RegistryClient

    Warehouse.check_free(config)
    cluster = cluster_metadata(config.bootstrap).cluster_id
    if same_cluster:
        check_cluster_id(config.root, cluster)
    RegistryClient(config.registry).subjects()
    if sys.stderr.isatty():
        print_status("[start] starting Spark ...")
        return Warehouse.open(config)
    with ProgressLines("starting Spark"):
        return Warehouse.open(config)


@contextmanager
def phases() -> Iterator[Callable[[str, float | None], None]]:
    """Show the phases of a run as progress bars on a terminal, and elsewhere as lines."""
    if not sys.stderr.isatty():
        with ProgressLines("working") as lines:
            yield lambda phase, share: lines.show(_progress_text(phase, share))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:>20}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        shown: dict[str, TaskID] = {}

        def show(phase: str, share: float | None) -> None:
            if phase not in shown:
                for known in shown.values():
                    bars.update(known, total=1.0, completed=1.0)
                shown[phase] = bars.add_task(_PHASES.get(phase, phase), total=None)
            if share is not None:
                bars.update(shown[phase], total=1.0, completed=share)

        yield show


def _progress_text(phase: str, share: float | None) -> str:
    name = _PHASES.get(phase, phase)
    return name if share is None else f"{name}, {share:.0%} done"


_REPORT_COLUMNS = {
    "topic": "topic",
    "table": "table",
    "version": "schema_version",
    **{name: name for name in ("rows", "files", "quarantined", "lost", "damaged")},
}


def print_report(report: LoadReport, form: Format) -> None:
    """Print what a load, rewind, requeue, or rebuild did."""
    if form is Format.JSON:
        print_json(report.as_dict())
    elif report.topics:
        print_table(
            [*_REPORT_COLUMNS],
            [list(attrgetter(*_REPORT_COLUMNS.values())(t)) for t in report.topics],
        )
    seconds = ", ".join(f"{phase} {s:.1f}" for phase, s in report.seconds.items())
    if report.committed:
        more = "" if report.kind == "load" else " more than before"
        done = f"{number_of(report.rows, 'row')}{more}"
        if report.kind == "rebuild":
            done = "all rows are in the latest schema"
        print_status(f"{report.kind} {report.number}: {done}; seconds: {seconds}")
    else:
        print_status(f"nothing to do since load {report.number}; seconds: {seconds}")
    if report.compacted is not None:
        print_status(f"compacted {report.compacted}; seconds: {report.compacted.seconds:.1f}")
    for topic in report.rebuilt:
        print_status(f"the table of topic {topic} was rebuilt in the latest schema")
    if report.removed is not None:
        print_status(f"retention removed {report.removed}")
    for topic in report.ungoverned:
        own = topic.startswith("headworks.")
        way = "run `headworks schema register --bundled`" if own else f"register {topic}-value"
        print_status(f"topic {topic} has no schema and is not loaded: {way}")
    for refusal in report.refused:
        print_status(f"topic {refusal.topic} was not loaded: {refusal.reason}")
    for refusal in report.acknowledged:
        print_status(f"topic {refusal.topic} is not loaded, as acknowledged: {refusal.reason}")
    for refusal in report.unpublished:
        print_status(f"topic {refusal.topic} was not published to Iceberg: {refusal.reason}")
    for one in (*report.leaderless, *report.damaged):
        print_status(f"topic {one.topic} was loaded in part: {one.reason}")
    if report.unmarked is not None:
        print_status(f"the completeness marks were not updated: {report.unmarked}")
