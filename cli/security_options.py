"""Who may use a server of ours, and over what: the options that registry and console share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._settings import resolve_optional
from headworks.errors import UsageError

if TYPE_CHECKING:
    import ssl

    from headworks._server.security.http.options import SecurityOptions

__all__ = [
    "AccessOption",
    "Anonymous",
    "AnonymousOption",
    "AudienceOption",
    "GroupsClaimOption",
    "InsecureOption",
    "IssuerOption",
    "JwksCaOption",
    "JwksOption",
    "LogFormatOption",
    "LogLevelOption",
    "PrincipalClaimOption",
    "TlsCertOption",
    "TlsKeyOption",
    "UsersOption",
    "file_setting",
    "guarding_of",
    "host_and_port",
    "tls_of",
]


class Anonymous(StrEnum):
    """What may be done without saying who one is."""

    NONE = "none"
    READ = "read"


UsersOption = Annotated[
    str | None,
    typer.Option(help="file of users for HTTP basic, see `headworks user` (setting users)"),
]
AccessOption = Annotated[
    str | None, typer.Option(help="file of grants: who may do what (setting access)")
]
JwksOption = Annotated[
    str | None,
    typer.Option(help="take bearer tokens signed with these keys: https:// or file://"),
]
JwksCaOption = Annotated[
    Path | None, typer.Option(help="CA certificates of the server behind --jwks, PEM")
]
IssuerOption = Annotated[str | None, typer.Option(help="the `iss` that tokens must have")]
AudienceOption = Annotated[str | None, typer.Option(help="the `aud` that tokens must have")]
PrincipalClaimOption = Annotated[str, typer.Option(help="the claim that says who sends a token")]
GroupsClaimOption = Annotated[
    str, typer.Option(help="the claim that lists the groups of who sends a token")
]
AnonymousOption = Annotated[Anonymous, typer.Option(help="what may be done without authentication")]
TlsCertOption = Annotated[
    str | None, typer.Option(help="speak TLS with this certificate, PEM (setting tls_cert)")
]
TlsKeyOption = Annotated[str | None, typer.Option(help="its key, PEM (setting tls_key)")]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="listen beyond this machine, for everybody who can reach it"),
]
LogFormatOption = Annotated[
    str | None, typer.Option(help="text, or json: one object a line (setting log_format)")
]
LogLevelOption = Annotated[
    str | None, typer.Option(help="debug, info, warning or error (setting log_level)")
]


def guarding_of(
    *,
    users: str | None,
    access: str | None,
    jwks: str | None,
    jwks_ca: Path | None,
    issuer: str | None,
    audience: str | None,
    jwt_principal: str,
    jwt_groups: str,
    anonymous: Anonymous,
    insecure: bool,
) -> SecurityOptions:
    """How the server is guarded, by its options and the settings users and access."""
    from headworks._server.security.http.options import SecurityOptions

    return SecurityOptions(
        users=file_setting("users", users),
        access=file_setting("access", access),
        jwks=jwks,
        jwks_ca=jwks_ca,
        issuer=issuer,
        audience=audience,
        jwt_principal=jwt_principal,
        jwt_groups=jwt_groups,
        anonymous_reads=anonymous is Anonymous.READ,
        insecure=insecure,
    )


def file_setting(setting: str, flag: str | None) -> Path | None:
    """The file that a setting names, if it is set."""
    found = resolve_optional(setting, flag)
    return None if found is None else Path(found)


def host_and_port(url: str) -> str:
    """HOST:PORT of a server's URL, which clients may have credentials in."""
    return url.rpartition("://")[2].rpartition("@")[2].partition("/")[0]


def tls_of(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """The server's side of TLS, or None; UsageError for a half of it."""
    from headworks._server.security import server_tls

    pair = file_setting("tls_cert", certificate), file_setting("tls_key", key)
    if pair[0] is not None and pair[1] is not None:
        return server_tls(pair[0], pair[1])
    if pair != (None, None):
        raise UsageError(
            "TLS takes a certificate and its key, and only one of them is given",
            fix="give both --tls-cert and --tls-key",
        )
    return None
