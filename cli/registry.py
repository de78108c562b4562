"""`headworks registry start`: run the schema registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from headworks._cli.option_groups import expand_groups
from headworks._cli.output import Format, FormatOption
from headworks._cli.server_options import (
    HttpAccessOptions,
    LogOptions,
    host_and_port,
    make_data_dir,
    print_ready,
)
from headworks._settings import resolve

__all__ = ["registry_app"]

registry_app = typer.Typer(no_args_is_help=True, help="Run the schema registry.")


@registry_app.callback()
def _registry() -> None:
    """Run the schema registry."""


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """The limits above which the registry refuses."""

    max_connections: Annotated[
        int, typer.Option(min=1, help="accept at most this many connections at a time")
    ] = 1000
    max_request_bytes: Annotated[
        int, typer.Option(min=1000, help="refuse request bodies above this size")
    ] = 4_000_000
    max_schema_length: Annotated[
        int, typer.Option(min=100, help="refuse schemas with more characters than this")
    ] = 1_000_000
    max_schema_depth: Annotated[
        int, typer.Option(min=1, max=120, help="refuse schemas with types nested deeper than this")
    ] = 100
    max_schema_fields: Annotated[
        int, typer.Option(min=1, help="refuse schemas with more fields than this, nested included")
    ] = 10_000


@registry_app.command()
@expand_groups
def start(
    guard: HttpAccessOptions,
    limits: RegistryLimits,
    log: LogOptions,
    listen: Annotated[
        str | None, typer.Option(help="listen on this HOST:PORT (setting registry)")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="store as sqlite:///FILE or postgresql://.. (default: registry.db in data_dir)"
        ),
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve a store until SIGTERM or Ctrl-C."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()
    from headworks._registry.model.schema_limits import SchemaLimits
    from headworks._registry.server import RegistryOptions, bind, serve
    from headworks._registry.service.app import ServiceLimits

    schemas = SchemaLimits(
        limits.max_schema_length, limits.max_schema_depth, limits.max_schema_fields
    )
    options = RegistryOptions(
        guard.security(),
        ServiceLimits(schemas, limits.max_request_bytes),
        guard.tls(),
        *log.resolved,
        limits.max_connections,
    )
    sock = bind(
        listen or host_and_port(resolve("registry")),
        authenticates=options.security.authenticates,
        insecure=guard.insecure,
    )
    scheme = "http" if options.tls is None else "https"
    url = store or f"sqlite:///{(make_data_dir() / 'registry.db').resolve()}"
    serve(sock, url, lambda at: print_ready("registry", at, format, scheme=scheme), options)
