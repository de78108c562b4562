"""`headworks up`: run broker, registry, console, and audit on loopback until Ctrl-C."""

from __future__ import annotations

import errno
import importlib.util
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.output import Format, FormatOption, print_json, print_status
from headworks._cli.progress_lines import ProgressLines
from headworks._cli.server_options import host_and_port
from headworks._cli.stack.metrics_addresses import MetricsAddresses
from headworks._server.child_process import Service
from headworks._server.security.exposure import is_loopback, parse_listen
from headworks._settings import SETTINGS, resolve, resolve_optional
from headworks._stop_event import StopEvent
from headworks.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from headworks._cli.stack.stack import RunningStack

# The packages of the extra `server` without which one of the four does not start.
_SERVER_PACKAGES = ("crc32c", "kio", "prometheus_client", "sqlalchemy", "starlette", "uvicorn")


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
    metrics: Annotated[
        str | None,
        typer.Option(
            help="serve Prometheus metrics: the broker's on this HOST:PORT, the audit's on the next"
            " port, or none (default: 127.0.0.1:9400; free ports if --broker is not the default)"
        ),
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Run broker, registry, console, and audit on this machine until Ctrl-C."""
    _check_installed()
    at_broker = resolve("bootstrap", broker)
    at_registry = registry or host_and_port(resolve("registry"))
    at_console = console or host_and_port(resolve("console"))
    parsed = [
        (option, address, parse_listen(address, option))
        for option, address in (
            ("--broker", at_broker),
            ("--registry", at_registry),
            ("--console", at_console),
        )
    ]
    for *_, (host, _) in parsed:
        _check_loopback(host)
    places = _Places(
        folder=Path(resolve("data_dir", data_dir)),
        broker=at_broker,
        registry=at_registry,
        console=at_console,
        zookeeper=resolve_optional("zookeeper", zookeeper) or None,
        store=resolve_optional("audit_store"),
        pages=_metrics_pages(metrics, at_broker),
    )
    for option, address, (host, port) in parsed:
        _check_free(address, host, port, option)
    stop = StopEvent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    _run(places, stop, format)


def _check_installed() -> None:
    """Raise ModuleNotFoundError for `headworks up` itself; a server would name its own command."""
    for package in _SERVER_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(name=package)


def _metrics_pages(option: str | None, broker: str) -> MetricsAddresses:
    pages = MetricsAddresses.of(option, fixed=broker == SETTINGS["bootstrap"].default)
    if pages.broker is not None:
        _check_loopback(parse_listen(pages.broker, "--metrics")[0])
    return pages


def _check_loopback(host: str) -> None:
    """Raise UsageError if other machines can reach `host`; a server would name its own options."""
    if not is_loopback(host):
        raise UsageError(
            f"other machines can reach {host}, and the servers of `headworks up` authenticate"
            " nobody: anyone who can reach them would have full access",
            fix="listen on 127.0.0.1. To serve others, start each server with its own command"
            " (`headworks broker start --users FILE`, ...)",
        )


def _check_free(address: str, host: str, port: int, option: str) -> None:
    """Raise UsageError if another process listens there; a server would name its own option."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # the server reports anything else
                raise UsageError(
                    f"another process listens on {address}",
                    fix=f"stop it (`ss -ltnp 'sport = :{port}'` shows it), or give another"
                    f" address with {option}",
                ) from None


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the servers listen, and where they keep their data."""

    folder: Path
    broker: str
    registry: str
    console: str
    zookeeper: str | None
    store: str | None  # of the audit; None: in the folder
    pages: MetricsAddresses


def _run(places: _Places, stop: threading.Event, format: Format) -> None:
    """Start the servers, print their addresses, and wait for `stop`."""
    with ExitStack() as running:
        with ProgressLines("starting the broker and the registry") as lines:
            started = _start(places, running, lines)
        _print_addresses(started.stack, started.console.url, places.pages, format)
        _wait(stop, [started.stack.broker, started.stack.registry, started.console, started.audit])
        print_status("stopping")
        with ProgressLines("stopping"):
            running.close()


@dataclass(frozen=True, slots=True)
class _Started:
    """The servers that run."""

    stack: RunningStack
    console: Service
    audit: Service


def _start(places: _Places, running: ExitStack, lines: ProgressLines) -> _Started:
    """Start the servers, to be stopped with `running`, and show in `lines` which one is next."""
    from headworks._cli.stack.stack import (
        running_audit,
        running_console,
        running_stack,
        starting_in_background,
    )

    folder, store, pages = places.folder, places.store, places.pages
    console_at = partial(running_console, folder, listen=places.console, store=store)
    early = None
    if not any(one.endswith(":0") for one in (places.broker, places.registry)):
        # The console shows what is still starting, so it is started first.
        starting = console_at(broker=places.broker, registry=f"http://{places.registry}")
        early = running.enter_context(starting_in_background(starting))
    stack = running.enter_context(
        running_stack(
            folder,
            broker=places.broker,
            registry=places.registry,
            zookeeper=places.zookeeper,
            metrics=pages.broker,
        )
    )
    lines.show("starting the console and the audit")
    broker, registry = stack.broker.address, stack.registry.url
    if early is None:
        console = running.enter_context(console_at(broker=broker, registry=registry))
    else:
        console = early()
    audit = running.enter_context(
        running_audit(folder, broker=broker, registry=registry, store=store, metrics=pages.audit)
    )
    return _Started(stack, console, audit)


def _print_addresses(
    stack: RunningStack, console: str, pages: MetricsAddresses, format: Format
) -> None:
    folder = stack.data_dir
    metrics = {**pages.urls, "registry": f"{stack.registry.url}/metrics"}
    at = {"console": console, "broker": stack.broker.address, "registry": stack.registry.url}
    if stack.zookeeper is not None:
        at["zookeeper"] = stack.zookeeper
    if format is Format.JSON:
        audit = (pages.urls.get("audit") or "").removesuffix("/metrics")
        print_json(
            {"service": "stack", **at, "audit": audit, "metrics": metrics, "data_dir": str(folder)}
        )
        return
    lines = {
        **at,
        "metrics": ", ".join(f"{url} ({name})" for name, url in metrics.items()),
        "data": f"{folder}  (logs in {folder / 'logs'})",
        "try": f"headworks topic list{_option(stack)}",
        "stop": "Ctrl-C stops everything",
    }
    print_status("\n".join(f"{name:<9} {text}" for name, text in lines.items()))


def _option(stack: RunningStack) -> str:
    """Return the option that a command in another folder needs to find this broker."""
    address = stack.broker.address
    return "" if address == SETTINGS["bootstrap"].default else f" --bootstrap {address}"


def _wait(stop: threading.Event, services: Sequence[Service]) -> None:
    """Wait for `stop`. Raise UnreachableError if a service ends by itself."""
    while not stop.wait(0.5):
        for service in services:
            if service.process.poll() is not None:
                raise UnreachableError(
                    f"the {service.name} ended by itself (exit code {service.process.returncode})",
                    fix="read its log in the data folder, then start again",
                )
