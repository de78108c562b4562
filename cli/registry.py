"""`headworks registry start`: the schema registry as a server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from headworks._cli.output import Format, FormatOption
from headworks._cli.security_options import (
    AccessOption,
    Anonymous,
    AnonymousOption,
    AudienceOption,
    GroupsClaimOption,
    InsecureOption,
    IssuerOption,
    JwksCaOption,
    JwksOption,
    LogFormatOption,
    LogLevelOption,
    PrincipalClaimOption,
    TlsCertOption,
    TlsKeyOption,
    UsersOption,
    guarding_of,
    host_and_port,
    tls_of,
)
from headworks._settings import resolve
from headworks.errors import UsageError

__all__ = ["registry_app"]

registry_app = typer.Typer(no_args_is_help=True, help="The schema registry.")


@registry_app.callback()
def _registry() -> None:
    """The schema registry."""


@registry_app.command()
def start(
    listen: Annotated[
        str | None, typer.Option(help="where to listen, HOST:PORT (setting registry)")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="sqlite:///FILE or postgresql://.. (registry.db in setting data_dir)"),
    ] = None,
    users: UsersOption = None,
    access: AccessOption = None,
    jwks: JwksOption = None,
    jwks_ca: JwksCaOption = None,
    issuer: IssuerOption = None,
    audience: AudienceOption = None,
    jwt_principal: PrincipalClaimOption = "sub",
    jwt_groups: GroupsClaimOption = "groups",
    anonymous: AnonymousOption = Anonymous.NONE,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    insecure: InsecureOption = False,
    max_connections: Annotated[
        int, typer.Option(min=1, help="connections at a time; further ones are told to try again")
    ] = 1000,
    max_request_bytes: Annotated[
        int, typer.Option(min=1000, help="the longest body of a request")
    ] = 4_000_000,
    max_schema_length: Annotated[
        int, typer.Option(min=100, help="the longest schema, in characters")
    ] = 1_000_000,
    max_schema_depth: Annotated[
        int, typer.Option(min=1, max=120, help="the most types inside one another")
    ] = 100,
    max_schema_fields: Annotated[
        int, typer.Option(min=1, help="the most fields of a schema, nested ones included")
    ] = 10_000,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve a store until SIGTERM or Ctrl-C."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()
    from headworks._registry.model.schema_limits import SchemaLimits
    from headworks._registry.server import RegistryOptions, bind, serve
    from headworks._registry.service.app import ServiceLimits

    options = RegistryOptions(
        guarding_of(
            users=users,
            access=access,
            jwks=jwks,
            jwks_ca=jwks_ca,
            issuer=issuer,
            audience=audience,
            jwt_principal=jwt_principal,
            jwt_groups=jwt_groups,
            anonymous=anonymous,
            insecure=insecure,
        ),
        ServiceLimits(
            SchemaLimits(max_schema_length, max_schema_depth, max_schema_fields), max_request_bytes
        ),
        tls_of(tls_cert, tls_key),
        resolve("log_format", log_format),
        resolve("log_level", log_level),
        max_connections,
    )
    sock = bind(
        listen or host_and_port(resolve("registry")),
        authenticates=options.security.authenticates,
        insecure=insecure,
    )
    scheme = "http" if options.tls is None else "https"

    def ready(at: str) -> None:
        if format is Format.JSON:
            line = json.dumps({"service": "registry", "listen": at, "scheme": scheme})
        else:
            line = f"registry: serving {scheme}://{at}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    serve(sock, store or _default_store(), ready, options)


def _default_store() -> str:
    folder = Path(resolve("data_dir"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the data folder {folder}: {error.strerror}",
            fix="set data_dir, or name the store with --store",
        ) from None
    return f"sqlite:///{(folder / 'registry.db').resolve()}"
