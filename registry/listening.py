"""From an application to a server: bind, say when ready, stop gracefully.

Rules:

- Whose request it is comes from the connection and its credentials: headers in which proxies
  tell of other addresses are not believed.
- A signal ends the listening at once, lets what is under way finish for DRAIN_SECONDS, and ends
  the process with exit code 0.
"""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from headworks._registry.bounded_connection import BoundedConnection
from headworks._server.security import parse_listen, refuse_exposure
from headworks.errors import UsageError

__all__ = ["DRAIN_SECONDS", "bind", "serve_app"]

DRAIN_SECONDS = 5
_MAX_PENDING_CONNECTIONS = 1024


def bind(
    listen: str, *, what: str = "registry", guarded: bool = False, insecure: bool = False
) -> socket.socket:
    """A listening socket at HOST:PORT (port 0: any free one); UsageError if it cannot be had.

    An address that other machines can reach must be `guarded`, or asked for by `insecure`.
    """
    host, port = parse_listen(listen)
    refuse_exposure(host, what, authenticates=guarded, insecure=insecure)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(_MAX_PENDING_CONNECTIONS)
    except OSError as error:
        sock.close()
        raise UsageError(
            f"the {what} cannot listen on {listen}: {error.strerror or error}",
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
    """Serve an application on a bound socket until SIGTERM or SIGINT; then finish what is begun.

    Calls `ready` with "HOST:PORT" once requests are answered. While there are more than so many
    `connections`, requests of further ones are answered 503, which clients try again.
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
        # It counts the connection that asks, and refuses when the number is reached.
        limit_concurrency=None if connections is None else connections + 1,
        ssl_context_factory=_always(tls) if tls is not None else None,
    )
    host, port = sock.getsockname()[:2]
    server = _Server(config, lambda: ready(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"))
    # One that comes before the server has handlers of its own must end it too. And it repeats the
    # signal that stopped it when it is done; then it means nothing more.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    server.run(sockets=[sock])


def _always(
    context: ssl.SSLContext,
) -> Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]:
    return lambda _config, _default: context


class _Server(uvicorn.Server):
    """A server that says when it serves."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
