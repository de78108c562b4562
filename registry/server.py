"""The registry's process: bind, serve, say when ready, stop gracefully.

Rules:

- The socket is bound before anything else is loaded, so a taken address is found at once and
  port 0 gives a free one; ready means that requests are answered (`listening`).
"""

from __future__ import annotations

import gc
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from headworks._registry.listening import DRAIN_SECONDS, bind, serve_app
from headworks._registry.metrics import RegistryMetrics
from headworks._registry.security.options import SecurityOptions, open_security
from headworks._registry.service.app import ServiceLimits, create_app
from headworks._registry.store import RegistryStore
from headworks._server import logs

__all__ = ["DRAIN_SECONDS", "RegistryOptions", "bind", "serve"]


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How to serve: who may do what, over TLS or not, how much at a time, how to log."""

    guarding: SecurityOptions = field(default_factory=SecurityOptions)
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    tls: ssl.SSLContext | None = None
    log_format: str = "text"
    log_level: str = "info"
    connections: int = 1000


def serve(
    sock: socket.socket,
    store: str,
    ready: Callable[[str], None],
    options: RegistryOptions | None = None,
) -> None:
    """Serve the store on a bound socket until SIGTERM or SIGINT; then finish what is under way.

    Calls `ready` with "HOST:PORT" once requests are answered.
    """
    chosen = options or RegistryOptions()
    logs.configure(chosen.log_format, chosen.log_level)
    metrics = RegistryMetrics()
    security = open_security(chosen.guarding, metrics.count_authentication_failure)
    app = create_app(RegistryStore(store), chosen.limits, security=security, metrics=metrics)
    # What is loaded now stays: looking through it again whenever a thousand versions are read costs
    # more than the versions.
    gc.freeze()
    serve_app(sock, app, ready, tls=chosen.tls, connections=chosen.connections)
