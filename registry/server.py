"""The registry's process: bind, serve, report readiness, and stop gracefully.

Rule: the socket is bound before anything else is loaded, so that a taken address fails at once.
"""

from __future__ import annotations

import gc
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from headworks._registry.metrics import RegistryMetrics
from headworks._registry.model.refusals import INCOMPATIBLE
from headworks._registry.service.app import ServiceLimits, create_app
from headworks._registry.store import RegistryStore
from headworks._server import logs
from headworks._server.http_server import DRAIN_SECONDS, bind, serve_app
from headworks._server.security.http.options import SecurityOptions, open_authenticator

__all__ = ["DRAIN_SECONDS", "RegistryOptions", "bind", "serve"]


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How to serve: security, limits, TLS, and logging."""

    security: SecurityOptions = field(default_factory=SecurityOptions)
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    tls: ssl.SSLContext | None = None
    log_format: str = "text"
    log_level: str = "info"
    connections: int = 1000  # at most this many at a time
    incompatible_code: int = INCOMPATIBLE  # the error code of an incompatible schema


def serve(
    sock: socket.socket,
    store: str,
    ready: Callable[[str], None],
    options: RegistryOptions | None = None,
) -> None:
    """Serve the store on a bound socket until SIGTERM or SIGINT; then finish open requests.

    Calls `ready` with "HOST:PORT" once it answers requests.
    """
    chosen = options or RegistryOptions()
    logs.configure(chosen.log_format, chosen.log_level)
    metrics = RegistryMetrics()
    authenticator = open_authenticator(chosen.security, metrics.count_authentication_failure)
    app = create_app(
        RegistryStore(store),
        chosen.limits,
        authenticator=authenticator,
        metrics=metrics,
        web_pages=chosen.security.web_pages,
        incompatible_code=chosen.incompatible_code,
    )
    # All objects so far are permanent. Scanning them in every garbage collection costs more than
    # reading a thousand versions.
    gc.freeze()
    serve_app(sock, app, ready, tls=chosen.tls, connections=chosen.connections)
