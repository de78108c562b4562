"""`headworks console start`: run the web console."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.broker_address import bootstrap_servers
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import BootstrapOption, RegistryOption, WarehouseOption
from headworks._cli.output import Format, FormatOption
from headworks._cli.server_options import (
    HttpAccessOptions,
    LogOptions,
    host_and_port,
    print_ready,
)
from headworks._settings import resolve, resolve_optional

if TYPE_CHECKING:
    from hadoop_loader._storage.filesystem import AnyPath
    from headworks._console.sources import Endpoints

console_app = typer.Typer(no_args_is_help=True, help="Run the web console.")


@console_app.callback()
def _console() -> None:
    """Run the web console."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Where the console reads from."""

    bootstrap: BootstrapOption = None
    registry: RegistryOption = None
    warehouse: WarehouseOption = None
    schemas: Annotated[
        str | None,
        typer.Option(help="folder of the catalog, for its governance.toml (setting schemas)"),
    ] = None
    audit_store: Annotated[
        str | None, typer.Option(help="store of the reconciler (setting audit_store)")
    ] = None
    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="find brokers and decentralized groups at HOST:PORT[,..][/chroot]"
            " (setting zookeeper)"
        ),
    ] = None

    def endpoints(self) -> Endpoints:
        """Return the addresses, from the options or the settings."""
        from headworks._console.sources import Endpoints

        audit_db = Path(resolve("data_dir")) / "audit.db"  # where `headworks up` keeps the audit
        return Endpoints(
            bootstrap_servers(self.bootstrap, self.zookeeper),
            resolve("registry", self.registry),
            _warehouse(resolve("warehouse", self.warehouse)),
            Path(resolve("schemas", self.schemas)),
            resolve_optional("audit_store", self.audit_store) or f"sqlite:///{audit_db.resolve()}",
            resolve_optional("zookeeper", self.zookeeper),
        )


@console_app.command()
@expand_groups
def start(
    sources: SourceOptions,
    guard: HttpAccessOptions,
    log: LogOptions,
    listen: Annotated[
        str | None, typer.Option(help="listen on this HOST:PORT (setting console)")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve the console until SIGTERM or Ctrl-C. It only reads."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()
    from headworks._console.app.server import ConsoleOptions, bind, serve

    security, tls = guard.security(), guard.tls()
    endpoints = sources.endpoints()
    sock = bind(
        listen or host_and_port(resolve("console")),
        server="console",
        authenticates=security.authenticates,
        insecure=guard.insecure,
    )
    scheme = "http" if tls is None else "https"
    serve(
        sock,
        lambda at: print_ready("console", at, format, scheme=scheme),
        ConsoleOptions(endpoints, security, tls, *log.resolved),
    )


def _warehouse(name: str) -> AnyPath:
    """Return the warehouse's folder. Raises UsageError for an unknown URI."""
    from hadoop_loader._storage.filesystem import parse_path

    return parse_path(name) if "://" in name else Path(name)
