"""`headworks registry start`: the schema registry as a server."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.output import Format, FormatOption
from headworks.errors import UsageError
from headworks.settings import resolve, resolve_optional

if TYPE_CHECKING:
    import ssl

__all__ = ["address_of", "registry_app"]

registry_app = typer.Typer(no_args_is_help=True, help="The schema registry.")


class Anonymous(StrEnum):
    """What may be done without saying who one is."""

    NONE = "none"
    READ = "read"


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
    users: Annotated[
        str | None,
        typer.Option(help="file of users for HTTP basic, see `headworks user` (setting users)"),
    ] = None,
    access: Annotated[
        str | None, typer.Option(help="file of grants: who may do what (setting access)")
    ] = None,
    jwks: Annotated[
        str | None,
        typer.Option(help="take bearer tokens signed with these keys: https:// or file://"),
    ] = None,
    jwks_ca: Annotated[
        Path | None, typer.Option(help="CA certificates of the server behind --jwks, PEM")
    ] = None,
    issuer: Annotated[str | None, typer.Option(help="the `iss` that tokens must have")] = None,
    audience: Annotated[str | None, typer.Option(help="the `aud` that tokens must have")] = None,
    jwt_principal: Annotated[
        str, typer.Option(help="the claim that says who sends a token")
    ] = "sub",
    jwt_groups: Annotated[
        str, typer.Option(help="the claim that lists the groups of who sends a token")
    ] = "groups",
    anonymous: Annotated[
        Anonymous, typer.Option(help="what may be done without authentication")
    ] = Anonymous.NONE,
    tls_cert: Annotated[
        str | None, typer.Option(help="speak TLS with this certificate, PEM (setting tls_cert)")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(help="its key, PEM (setting tls_key)")] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="listen beyond this machine, for everybody who can reach it"
        ),
    ] = False,
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
    log_format: Annotated[
        str | None, typer.Option(help="text, or json: one object a line (setting log_format)")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error (setting log_level)")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve a store until SIGTERM or Ctrl-C."""
    from headworks.service import end_with_parent

    end_with_parent()
    from registry.model.shape import SchemaLimits
    from registry.security.options import Guarding
    from registry.server import Options, bind, serve
    from registry.service.app import Limits

    options = Options(
        Guarding(
            users=_file("users", users),
            access=_file("access", access),
            jwks=jwks,
            jwks_ca=jwks_ca,
            issuer=issuer,
            audience=audience,
            jwt_principal=jwt_principal,
            jwt_groups=jwt_groups,
            anonymous_reads=anonymous is Anonymous.READ,
            insecure=insecure,
        ),
        Limits(
            SchemaLimits(max_schema_length, max_schema_depth, max_schema_fields), max_request_bytes
        ),
        _tls(tls_cert, tls_key),
        resolve("log_format", log_format),
        resolve("log_level", log_level),
    )
    sock = bind(
        listen or address_of(resolve("registry")),
        guarded=options.guarding.authenticates,
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


def _file(setting: str, flag: str | None) -> Path | None:
    found = resolve_optional(setting, flag)
    return None if found is None else Path(found)


def address_of(url: str) -> str:
    """HOST:PORT of the registry's URL, which clients may have credentials in."""
    return url.rpartition("://")[2].rpartition("@")[2].partition("/")[0]


def _tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    from headworks.security import server_tls

    pair = _file("tls_cert", certificate), _file("tls_key", key)
    if pair[0] is not None and pair[1] is not None:
        return server_tls(pair[0], pair[1])
    if pair != (None, None):
        raise UsageError(
            "TLS takes a certificate and its key, and only one of them is given",
            fix="give both --tls-cert and --tls-key",
        )
    return None


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
