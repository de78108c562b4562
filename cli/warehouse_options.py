"""What the commands on a warehouse share: their options, opening it, telling what is going on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import existing_store_url
from headworks._cli.output import Format, print_json, print_status, print_table
from headworks._settings import resolve, resolve_optional

if TYPE_CHECKING:
    from hadoop_loader import LoadReport, Policy, Warehouse, WarehouseConfig

__all__ = [
    "Bootstrap",
    "DataDir",
    "Database",
    "Master",
    "Metastore",
    "Registry",
    "WarehouseOption",
    "config_of",
    "open_warehouse",
    "phases",
    "print_report",
    "warehouse_folder",
]

Bootstrap = Annotated[str | None, typer.Option(help="address of the broker")]
Registry = Annotated[str | None, typer.Option(help="address of the registry")]
DataDir = Annotated[str | None, typer.Option(help="folder that holds all state")]
WarehouseOption = Annotated[
    str | None, typer.Option("--warehouse", help="folder of the Hive tables")
]
Database = Annotated[str | None, typer.Option(help="database of the tables")]
Master = Annotated[
    str | None, typer.Option(help="where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://..")
]
Metastore = Annotated[
    str | None, typer.Option(help="thrift://HOST:PORT of a Hive metastore, not an embedded one")
]
_PHASES = {"read": "reading", "apply": "moving into tables", "compact": "making files fewer"}


def config_of(
    bootstrap: str,
    registry: str | None,
    data_dir: str | None,
    warehouse: str | None,
    database: str | None,
    master: str | None,
    metastore: str | None,
    policy: Policy | None = None,
) -> WarehouseConfig:
    """The warehouse that flags and settings name, loaded from the brokers at `bootstrap`."""
    from hadoop_loader import Policy, WarehouseConfig

    return WarehouseConfig(
        data_dir=Path(resolve("data_dir", data_dir)),
        warehouse=warehouse_folder(data_dir, warehouse),
        bootstrap=bootstrap,
        registry=resolve("registry", registry),
        database=resolve("database", database),
        master=resolve("spark_master", master),
        metastore_uri=resolve_optional("metastore", metastore),
        policy=policy or Policy(),
        audit_store=existing_store_url(None, data_dir),
    )


def warehouse_folder(data_dir: str | None, warehouse: str | None) -> str:
    """The warehouse's folder; a --data-dir on the command line moves its default too."""
    if warehouse is None and data_dir is not None:
        return str(Path(data_dir) / "warehouse")
    return resolve("warehouse", warehouse)


def open_warehouse(config: WarehouseConfig) -> Warehouse:
    """Open a warehouse, after a look whether broker and registry answer.

    UnreachableError if not: better now than after Spark's ten seconds.
    """
    from hadoop_loader import Warehouse
    from headworks._cli.broker_address import topics_metadata
    from headworks.registry_client import RegistryClient

    topics_metadata(config.bootstrap)
    RegistryClient(config.registry).subjects()
    if sys.stderr.isatty():
        print_status("[start] starting Spark ...")
    return Warehouse.open(config)


@contextmanager
def phases() -> Iterator[Callable[[str, float | None], None] | None]:
    """Something that shows the phases of a piece of work as bars, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:>20}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        shown: dict[str, TaskID] = {}

        def tell(phase: str, share: float | None) -> None:
            if phase not in shown:
                for known in shown.values():
                    bars.update(known, total=1.0, completed=1.0)
                shown[phase] = bars.add_task(_PHASES.get(phase, phase), total=None)
            if share is not None:
                bars.update(shown[phase], total=1.0, completed=share)

        yield tell


def print_report(report: LoadReport, form: Format) -> None:
    """What a load, rewind, requeue or rebuild did."""
    if form is Format.JSON:
        print_json(report.as_dict())
    elif report.topics:
        print_table(
            ["topic", "table", "version", "rows", "files", "quarantined", "lost"],
            [
                [t.topic, t.table, t.schema_version, t.rows, t.files, t.quarantined, t.lost]
                for t in report.topics
            ],
        )
    seconds = ", ".join(f"{phase} {s:.1f}" for phase, s in report.seconds.items())
    if report.committed:
        more = "" if report.kind == "load" else " more than before"
        print_status(
            f"{report.kind} {report.number}: {report.rows:,} rows{more}; seconds: {seconds}"
        )
    else:
        print_status(f"nothing to do since load {report.number}; seconds: {seconds}")
    if report.compacted is not None:
        print_status(f"compacted {report.compacted}; seconds: {report.compacted.seconds:.1f}")
    for topic in report.ungoverned:
        print_status(
            f"topic {topic} has no schema and is not loaded: register one as {topic}-value"
        )
    for refusal in report.refused:
        print_status(f"topic {refusal.topic} is left as it is: {refusal.reason}")
    for one in report.leaderless:
        print_status(f"topic {one.topic} is loaded in part, the rest stays as it is: {one.reason}")
    if report.unmarked is not None:
        print_status(f"marks of completeness stand where they were: {report.unmarked}")
