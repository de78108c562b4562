"""`headworks registry start`: run the schema registry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from headworks._cli.option_groups import expand_groups
from headworks._cli.output import Format, FormatOption, print_status
from headworks._cli.server_options import (
    HttpAccessOptions,
    LogOptions,
    host_and_port,
    make_data_dir,
    print_ready,
)
from headworks._settings import resolve

registry_app = typer.Typer(no_args_is_help=True, help="Run the schema registry.")
RegistryStoreOption = Annotated[
    str | None,
    typer.Option(
        help="store as sqlite:///FILE or postgresql://.. (default: registry.db in data_dir)"
    ),
]


@registry_app.callback()
def _registry() -> None:
    """Run the schema registry."""


class IncompatibleCode(StrEnum):
    """The error codes by which versions of Confluent's registry refuse an incompatible schema."""

    SINCE_8_2 = "40901"
    BEFORE_8_2 = "409"


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
    store: RegistryStoreOption = None,
    incompatible_code: Annotated[
        IncompatibleCode,
        typer.Option(help="error_code of an incompatible schema: 409 is that before Confluent 8.2"),
    ] = IncompatibleCode.SINCE_8_2,
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
        int(incompatible_code.value),
    )
    sock = bind(
        listen or host_and_port(resolve("registry")),
        authenticates=options.security.authenticates,
        insecure=guard.insecure,
    )
    scheme = "http" if options.tls is None else "https"
    url = _store_url(store)
    serve(sock, url, lambda at: print_ready("registry", at, format, scheme=scheme), options)


@registry_app.command()
def salvage(store: RegistryStoreOption = None) -> None:
    """Keep the intact rows of a damaged SQLite store. Every registry on it must be stopped.

    The damaged store is moved beside the new one. No id is assigned again.
    """
    from headworks._cli.salvaged import print_salvaged
    from headworks._registry.store.salvage import salvage_registry

    found = salvage_registry(_store_url(store))
    for version in found.lost_versions:
        print_status(f"lost: {version}; register it again in the mode IMPORT")
    print_salvaged(found.rows)


@registry_app.command()
def skip_ids(
    count: Annotated[int, typer.Argument(min=1, help="how many ids")],
    store: RegistryStoreOption = None,
) -> None:
    """Let every context skip schema ids, after a store was restored from an older copy.

    The lost ids are then not assigned to other schemas. Stop every registry on the store first.
    """
    from headworks._registry.store.salvage import skip_ids as skip

    skip(_store_url(store), count)
    print_status(f"every context skips {count} ids")


def _store_url(store: str | None) -> str:
    return store or f"sqlite:///{(make_data_dir() / 'registry.db').resolve()}"
