"""`headworks up`: broker, registry, console and audit on loopback until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from headworks._cli.output import Format, FormatOption, print_json, print_status
from headworks._cli.security_options import host_and_port
from headworks._server.child_process import Service
from headworks._settings import resolve, resolve_optional
from headworks.errors import UnreachableError

__all__ = ["up"]


def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="folder of all state (setting data_dir)")
    ] = None,
    broker: Annotated[
        str | None, typer.Option(help="where the broker listens (setting bootstrap)")
    ] = None,
    registry: Annotated[
        str | None, typer.Option(help="where the registry listens, HOST:PORT (setting registry)")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="be broker 1 of the cluster of this ZooKeeper, HOST:PORT[,..][/chroot], or of one"
            " started for it: embedded (setting zookeeper)"
        ),
    ] = None,
    console: Annotated[
        str | None, typer.Option(help="where the console listens, HOST:PORT (setting console)")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Start broker, registry, console and audit here and keep them running until Ctrl-C."""
    from headworks._cli.stack.stack import (
        running_audit,
        running_console,
        running_stack,
        starting_in_background,
    )

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    folder = Path(resolve("data_dir", data_dir))
    at_registry = registry or host_and_port(resolve("registry"))
    at_console = console or host_and_port(resolve("console"))
    at_broker, store = resolve("bootstrap", broker), resolve_optional("audit_store")
    console_at = partial(running_console, folder, listen=at_console, store=store)
    with ExitStack() as running:
        early = None
        if not any(one.endswith(":0") for one in (at_broker, at_registry)):
            # It can say what is still starting, so there is a page at once.
            starting = console_at(broker=at_broker, registry=f"http://{at_registry}")
            early = running.enter_context(starting_in_background(starting))
        stack = running.enter_context(
            running_stack(
                folder,
                broker=at_broker,
                registry=at_registry,
                zookeeper=resolve_optional("zookeeper", zookeeper) or None,
            )
        )
        at = {"broker": stack.broker.address, "registry": stack.registry.url}
        shown = running.enter_context(console_at(**at)) if early is None else early()
        audit = running.enter_context(running_audit(folder, **at, store=store))
        if format is Format.JSON:
            addresses = {**at, "console": shown.url, "audit": audit.url}
            if stack.zookeeper is not None:
                addresses["zookeeper"] = stack.zookeeper
            print_json({"service": "stack", **addresses, "data_dir": str(folder)})
        else:
            print_status(f"broker    {stack.broker.address}")
            print_status(f"registry  {stack.registry.url}")
            print_status(f"console   {shown.url}")
            print_status(f"audit     {audit.url}/metrics")
            if stack.zookeeper is not None:
                print_status(f"zookeeper {stack.zookeeper}")
            print_status(f"data      {folder}  (logs in {folder / 'logs'})")
            print_status("try       headworks schema register schemas   (Ctrl-C stops everything)")
        _wait(stop, [stack.broker, stack.registry, shown, audit])
        print_status("stopping")


def _wait(stop: threading.Event, services: Sequence[Service]) -> None:
    """Wait until asked to stop; raise if a service ends by itself."""
    while not stop.wait(0.5):
        for service in services:
            if service.process.poll() is not None:
                raise UnreachableError(
                    f"the {service.name} ended by itself (exit code {service.process.returncode})",
                    fix="read its log in the data folder, then start again",
                )
