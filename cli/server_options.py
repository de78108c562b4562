"""Options that the servers share: their log, their users, grants, and tokens, and TLS."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.output import Format
from headworks._settings import resolve, resolve_optional
from headworks.errors import UsageError

if TYPE_CHECKING:
    import ssl

    from headworks._server.security.http.options import SecurityOptions


class Anonymous(StrEnum):
    """The permissions of a client without authentication."""

    NONE = "none"
    READ = "read"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a server logs to stderr."""

    log_format: Annotated[
        str | None,
        typer.Option(help="log as text, or as json: one object per line (setting log_format)"),
    ] = None
    log_level: Annotated[
        str | None,
        typer.Option(help="debug, info, warning, or error (setting log_level)"),
    ] = None

    @property
    def resolved(self) -> tuple[str, str]:
        """The format and the level, from the options or the settings."""
        return resolve("log_format", self.log_format), resolve("log_level", self.log_level)

    def configure(self) -> None:
        """Log this way from now on."""
        from headworks._server import logs

        logs.configure(*self.resolved)


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """A server's users, grants, and TLS."""

    users: Annotated[
        Path | None,
        typer.Option(
            help="authenticate clients by this file of users, see `headworks user` (setting users)"
        ),
    ] = None
    access: Annotated[
        Path | None, typer.Option(help="authorize clients by this file of grants (setting access)")
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(help="use TLS with this PEM certificate (setting tls_cert)")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM key of the certificate (setting tls_key)")
    ] = None
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="let other machines connect without users or without TLS"),
    ] = False

    @property
    def users_file(self) -> Path | None:
        """The file of users, from the option or the setting."""
        return _file("users", self.users)

    @property
    def access_file(self) -> Path | None:
        """The file of grants, from the option or the setting."""
        return _file("access", self.access)

    @property
    def tls_files(self) -> tuple[Path | None, Path | None]:
        """The certificate and its key, from the options or the settings."""
        return _file("tls_cert", self.tls_cert), _file("tls_key", self.tls_key)


@dataclass(frozen=True, slots=True)
class HttpAccessOptions(AccessOptions):
    """An HTTP server's users, tokens, grants, and TLS."""

    jwks: Annotated[
        str | None,
        typer.Option(help="accept bearer tokens signed with these keys: https:// or file://"),
    ] = None
    jwks_ca: Annotated[
        Path | None, typer.Option(help="PEM certificates of the authority behind --jwks")
    ] = None
    issuer: Annotated[str | None, typer.Option(help="require this `iss` in tokens")] = None
    audience: Annotated[str | None, typer.Option(help="require this `aud` in tokens")] = None
    jwt_principal: Annotated[str, typer.Option(help="claim that names the sender")] = "sub"
    jwt_groups: Annotated[str, typer.Option(help="claim that lists the sender's groups")] = "groups"
    anonymous: Annotated[Anonymous, typer.Option(help="allow this without authentication")] = (
        Anonymous.NONE
    )
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="answer under this host name too; repeat for more (setting host_names)"),
    ] = None

    def security(self) -> SecurityOptions:
        """Return the security options, with the files that the settings name."""
        from headworks._server.security.http.options import SecurityOptions
        from headworks._server.security.http.web_pages import read_host_names

        names = ",".join(self.host_name) if self.host_name else None
        return SecurityOptions(
            users=self.users_file,
            access=self.access_file,
            jwks=self.jwks,
            jwks_ca=self.jwks_ca,
            issuer=self.issuer,
            audience=self.audience,
            jwt_principal=self.jwt_principal,
            jwt_groups=self.jwt_groups,
            anonymous_reads=self.anonymous is Anonymous.READ,
            insecure=self.insecure,
            host_names=read_host_names(resolve_optional("host_names", names) or ""),
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return the server's TLS context, or None. Raises UsageError if half of it is given."""
        from headworks._server.security import server_tls

        certificate, key = self.tls_files
        if certificate is not None and key is not None:
            return server_tls(certificate, key)
        if certificate is not None or key is not None:
            raise UsageError(
                "TLS takes a certificate and its key, and only one of them is given",
                fix="give both --tls-cert and --tls-key",
            )
        return None


def host_and_port(url: str) -> str:
    """Return HOST:PORT of a server's URL, which may hold credentials.

    Raises UsageError for several URLs: a server has one address.
    """
    if url.count("://") > 1:
        raise UsageError(
            "the setting `registry` lists several addresses, and this server has one of them",
            fix="give its own: `headworks registry start --listen HOST:PORT`, or `headworks up"
            " --registry HOST:PORT`",
        )
    return url.rpartition("://")[2].rpartition("@")[2].partition("/")[0]


def make_data_dir() -> Path:
    """Create the data folder of the settings if it is missing. Raises UsageError."""
    folder = Path(resolve("data_dir"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the data folder {folder}: {error.strerror}",
            fix="set data_dir, or name the store with --store",
        ) from None
    return folder


def print_ready(service: str, listen: str, format: Format, *, scheme: str = "http") -> None:
    """Print one line on stdout: the server answers at `listen`."""
    if format is Format.JSON:
        line = json.dumps({"service": service, "listen": listen, "scheme": scheme})
    else:
        line = f"{service}: serving {scheme}://{listen}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _file(setting: str, option: Path | None) -> Path | None:
    found = resolve_optional(setting, option)
    return None if found is None else Path(found)
