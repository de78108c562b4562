"""`headworks up`: run broker, registry, console, and audit on loopback until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.output import Format, FormatOption, print_json, print_status
from headworks._cli.server_options import host_and_port
from headworks._server.child_process import Service
from headworks._settings import resolve, resolve_optional
from headworks.errors import UnreachableError

if TYPE_CHECKING:
    from headworks._cli.stack.stack import RunningStack

__all__ = ["up"]


def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="folder of all state (setting data_dir)")
    ] = None,
    broker: Annotated[
        str | None, typer.Option(help="let the broker listen on this HOST:PORT (setting bootstrap)")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(help="let the registry listen on this HOST:PORT (setting registry)"),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="join the cluster of this ZooKeeper as broker 1, HOST:PORT[,..][/chroot];"
            " embedded: start a ZooKeeper (setting zookeeper)"
        ),
    ] = None,
    console: Annotated[
        str | None, typer.Option(help="let the console listen on this HOST:PORT (setting console)")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Run broker, registry, console, and audit on this machine until Ctrl-C."""
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
            # The console shows what is still starting, so it is started first.
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
        _print_addresses(stack, shown.url, audit.url, format)
        _wait(stop, [stack.broker, stack.registry, shown, audit])
        print_status("stopping")


def _print_addresses(stack: RunningStack, console: str, audit: str, format: Format) -> None:
    folder = stack.data_dir
    at = {"broker": stack.broker.address, "registry": stack.registry.url, "console": console}
    if format is Format.JSON:
        addresses = {**at, "audit": audit}
        if stack.zookeeper is not None:
            addresses["zookeeper"] = stack.zookeeper
        print_json({"service": "stack", **addresses, "data_dir": str(folder)})
        return
    lines = {**at, "audit": f"{audit}/metrics"}
    if stack.zookeeper is not None:
        lines["zookeeper"] = stack.zookeeper
    lines["data"] = f"{folder}  (logs in {folder / 'logs'})"
    lines["try"] = "headworks schema register schemas   (Ctrl-C stops everything)"
    for name, text in lines.items():
        print_status(f"{name:<9} {text}")


def _wait(stop: threading.Event, services: Sequence[Service]) -> None:
    """Wait for `stop`. Raise UnreachableError if a service ends by itself."""
    while not stop.wait(0.5):
        for service in services:
            if service.process.poll() is not None:
                raise UnreachableError(
                    f"the {service.name} ended by itself (exit code {service.process.returncode})",
                    fix="read its log in the data folder, then start again",
                )
