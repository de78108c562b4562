"""`headworks load run|status`: bring every topic into Hive tables; what is in them."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.output import Format, FormatOption, print_json, print_table, say
from headworks.errors import FindingsError, UsageError
from headworks.settings import resolve

if TYPE_CHECKING:
    from hadoop_loader import LoadReport, Warehouse, WarehouseConfig

__all__ = ["load_app"]

load_app = typer.Typer(no_args_is_help=True, help="The Hadoop loader: topics into Hive tables.")
_UNITS = {"s": 1, "m": 60, "h": 3600}

DataDir = Annotated[str | None, typer.Option(help="folder that holds all state")]
WarehouseOption = Annotated[str | None, typer.Option(help="folder of the Hive tables")]


@load_app.callback()
def load() -> None:
    """The Hadoop loader: topics into Hive tables."""


@load_app.command()
def run(
    bootstrap: Annotated[str | None, typer.Option(help="address of the broker")] = None,
    registry: Annotated[str | None, typer.Option(help="address of the registry")] = None,
    data_dir: DataDir = None,
    warehouse: WarehouseOption = None,
    database: Annotated[str | None, typer.Option(help="database of the tables")] = None,
    serve: Annotated[
        str | None, typer.Option(help="HOST:PORT: stay, and serve HiveServer2 (loopback)")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="load again and again: every 30s, 10m, 1h")
    ] = None,
    skip_lost: Annotated[
        bool, typer.Option(help="go on behind messages that the broker no longer has")
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Load everything that is new in every topic; exit 1 if a topic had to be left out."""
    from hadoop_loader import Warehouse, WarehouseConfig
    from hadoop_loader.sql import address_of

    pause = None if every is None else _seconds(every)
    address = None if serve is None else address_of(serve)
    config = WarehouseConfig(
        data_dir=Path(resolve("data_dir", data_dir)),
        warehouse=_warehouse(data_dir, warehouse),
        bootstrap=resolve("bootstrap", bootstrap),
        registry=resolve("registry", registry),
        database=resolve("database", database),
        skip_lost=skip_lost,
    )
    _check_services(config)
    _say("start", "starting Spark")
    with Warehouse.open(config) as opened:
        if address is not None:
            host, port = opened.serve(*address)
            say(f"HiveServer2 serves {host}:{port}: try `headworks sql --hive {host}:{port}`")
        if pause is not None:
            _again_and_again(opened, pause, format)
        report = opened.load(_progress)
        _print(report, format)
        if address is not None:
            _wait_for_ever()
    if report.refused:
        raise FindingsError(f"{len(report.refused)} topics were left as they were")


@load_app.command()
def status(
    data_dir: DataDir = None, warehouse: WarehouseOption = None, format: FormatOption = Format.TEXT
) -> None:
    """What the commit log says: per topic its table, rows, schema version and offsets."""
    from hadoop_loader.status import status_of

    root = Path(resolve("warehouse", _warehouse(data_dir, warehouse)))
    found = status_of(root)
    if format is Format.JSON:
        print_json(found)
        return
    say(f"load {found['load']}" + ("" if found["applied"] else ", not finished: load again"))
    print_table(
        ["topic", "table", "version", "rows", "quarantined", "last load"],
        [
            [t["topic"], t["table"], t["schema_version"], t["rows"], t["quarantined"], t["load"]]
            for t in found["topics"]
        ],
    )


def _check_services(config: WarehouseConfig) -> None:
    """UnreachableError if broker or registry is away: better now than after Spark's ten seconds."""
    from cli.kafka import topics_of
    from headworks.registry_client import RegistryClient

    topics_of(config.bootstrap)
    RegistryClient(config.registry).subjects()


def _again_and_again(warehouse: Warehouse, pause: float, form: Format) -> None:
    """Load for ever: a failed load is told and tried again, none overlaps another."""
    while True:
        began = time.monotonic()
        try:
            _print(warehouse.load(_progress), form)
        except Exception as error:  # whatever failed, the next run may not
            say(f"error: {error}")
        time.sleep(max(0.0, pause - (time.monotonic() - began)))


def _print(report: LoadReport, form: Format) -> None:
    if form is Format.JSON:
        print_json(report.as_dict())
    elif report.topics:
        print_table(
            ["topic", "table", "version", "rows", "files", "quarantined"],
            [
                [t.topic, t.table, t.schema_version, t.rows, t.files, t.quarantined]
                for t in report.topics
            ],
        )
        seconds = ", ".join(f"{phase} {s:.1f}" for phase, s in report.seconds.items())
        say(f"load {report.number}: {report.rows:,} rows; seconds: {seconds}")
    else:
        say(f"nothing new since load {report.number}")
    for topic in report.ungoverned:
        say(f"topic {topic} has no schema and is not loaded: register one as {topic}-value")
    for refusal in report.refused:
        say(f"topic {refusal.topic} is left as it is: {refusal.reason}")


def _progress(phase: str) -> None:
    _say(phase, {"read": "reading", "apply": "moving into tables"}.get(phase, phase))


def _say(phase: str, text: str) -> None:
    if sys.stderr.isatty():
        say(f"[{phase}] {text} ...")


def _wait_for_ever() -> None:
    say("serving until Ctrl-C")
    while True:
        time.sleep(3600)


def _warehouse(data_dir: str | None, warehouse: str | None) -> str:
    """The warehouse's folder; a --data-dir on the command line moves its default too."""
    if warehouse is None and data_dir is not None:
        return str(Path(data_dir) / "warehouse")
    return resolve("warehouse", warehouse)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smh])", text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"--every {text!r} is not a time", fix="give 30s, 10m or 1h")
    return float(int(found[1]) * _UNITS[found[2]])
