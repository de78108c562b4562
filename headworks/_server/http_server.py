"""From an application to an HTTP server: bind, report readiness, and stop gracefully.

Rules:

- The sender of a request is known by its connection and its credentials. Headers in which a proxy
  names another address are ignored.
- A signal ends the listening at once. Open requests may finish within DRAIN_SECONDS. The process
  then ends with exit code 0.
"""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from headworks._host_port import join_host_port
from headworks._server.http_connection import BoundedConnection
from headworks._server.security import parse_listen, refuse_exposure
from headworks.errors import UsageError

DRAIN_SECONDS = 5
_MAX_PENDING_CONNECTIONS = 1024


def bind(
    listen: str, *, server: str = "registry", authenticates: bool = False, insecure: bool = False
) -> socket.socket:
    """Return a socket that listens at HOST:PORT (port 0: any free port).

    Raises UsageError if the address is taken, or if other machines can reach a server that does
    not authenticate, unless `insecure`.
    """
    host, port = parse_listen(listen)
    refuse_exposure(host, server, authenticates=authenticates, insecure=insecure)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(_MAX_PENDING_CONNECTIONS)
    except OSError as error:
        sock.close()
        raise UsageError(
            f"the {server} cannot listen on {listen}: {error.strerror or error}",
            fix="stop what listens there, or choose another address with --listen "
            "(port 0: any free one)",
        ) from None
    return sock


def serve_app(
    sock: socket.socket,
    app: ASGIApp,
    ready: Callable[[str], None],
    *,
    tls: ssl.SSLContext | None = None,
    connections: int | None = None,
) -> None:
    """Serve an application on a bound socket until SIGTERM or SIGINT; then finish open requests.

    Calls `ready` with "HOST:PORT" once it answers requests. If more than `connections` are open,
    requests on further ones get the status 503, which clients retry.
    """
    config = uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        # uvicorn counts the connection itself, and refuses when the limit is reached.
        limit_concurrency=None if connections is None else connections + 1,
        ssl_context_factory=_always(tls) if tls is not None else None,
    )
    host, port = sock.getsockname()[:2]
    serving = _NotifyingServer(config, lambda: ready(join_host_port(host, port)))
    # A signal that arrives before uvicorn installs its handlers must end the server too. When it is
    # done, uvicorn raises the signal again, which must then have no effect.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(serving, "should_exit", True))
    serving.run(sockets=[sock])


def _always(
    context: ssl.SSLContext,
) -> Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]:
    return lambda _config, _default: context


class _NotifyingServer(uvicorn.Server):
    """A server that calls `ready` when it answers requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
