"""`headworks console start`: the web console as a server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.broker_address import bootstrap_servers
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
from headworks._settings import resolve, resolve_optional

if TYPE_CHECKING:
    from hadoop_loader._storage.filesystem import AnyPath

__all__ = ["console_app"]

console_app = typer.Typer(no_args_is_help=True, help="The web console.")


@console_app.callback()
def _console() -> None:
    """The web console."""


@console_app.command()
def start(
    listen: Annotated[
        str | None, typer.Option(help="where to listen, HOST:PORT (setting console)")
    ] = None,
    bootstrap: Annotated[str | None, typer.Option(help="address of the broker")] = None,
    registry: Annotated[str | None, typer.Option(help="address of the registry")] = None,
    warehouse: Annotated[str | None, typer.Option(help="folder of the Hive tables")] = None,
    schemas: Annotated[
        str | None, typer.Option(help="folder of the catalogue, for its governance.toml")
    ] = None,
    audit_store: Annotated[
        str | None, typer.Option(help="the reconciler's store (setting audit_store)")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT[,..][/chroot]: the brokers there, and decentralised groups too"
        ),
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
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve the console until SIGTERM or Ctrl-C; it only reads."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()
    from headworks._console.app.server import ConsoleOptions, bind, serve
    from headworks._console.sources import Endpoints

    guarding = guarding_of(
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
    )
    endpoints = Endpoints(
        bootstrap_servers(bootstrap, zookeeper),
        resolve("registry", registry),
        _warehouse(resolve("warehouse", warehouse)),
        Path(resolve("schemas", schemas)),
        resolve_optional("audit_store", audit_store) or _store_in(Path(resolve("data_dir"))),
        resolve_optional("zookeeper", zookeeper),
    )
    tls = tls_of(tls_cert, tls_key)
    sock = bind(
        listen or host_and_port(resolve("console")),
        server="console",
        authenticates=guarding.authenticates,
        insecure=insecure,
    )
    scheme = "http" if tls is None else "https"

    def ready(at: str) -> None:
        if format is Format.JSON:
            line = json.dumps({"service": "console", "listen": at, "scheme": scheme})
        else:
            line = f"console: serving {scheme}://{at}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    log = resolve("log_format", log_format), resolve("log_level", log_level)
    serve(sock, ready, ConsoleOptions(endpoints, guarding, tls, *log))


def _store_in(folder: Path) -> str:
    """Where `headworks up` keeps the audit."""
    return f"sqlite:///{(folder / 'audit.db').resolve()}"


def _warehouse(name: str) -> AnyPath:
    """Where the warehouse is, in the words of whoever named it; UsageError for a strange URI."""
    from hadoop_loader._storage.filesystem import parse_path

    return parse_path(name) if "://" in name else Path(name)
