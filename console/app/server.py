"""The console's process: authentication, TLS, and serving until SIGTERM or SIGINT."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from headworks._console.app.application import create_app
from headworks._console.sources import Endpoints, Sources
from headworks._server import logs
from headworks._server.http_server import bind, serve_app
from headworks._server.security.http.options import SecurityOptions, open_authenticator

__all__ = ["ConsoleOptions", "bind", "serve"]


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The sources, authentication, TLS, and logging of a console."""

    endpoints: Endpoints
    security: SecurityOptions
    tls: ssl.SSLContext | None = None
    log_format: str = "text"
    log_level: str = "info"


def serve(sock: socket.socket, ready: Callable[[str], None], options: ConsoleOptions) -> None:
    """Serve the console on a bound socket until SIGTERM or SIGINT.

    Calls `ready` with "HOST:PORT" when pages are answered.
    """
    logs.configure(options.log_format, options.log_level)
    security = options.security
    authenticator = open_authenticator(security, lambda _reason: None)
    app = create_app(
        Sources(options.endpoints), authenticator=authenticator, web_pages=security.web_pages
    )
    serve_app(sock, app, ready, tls=options.tls)
