"""The registry's process: bind, serve, say when ready, stop gracefully.

Rules: the socket is bound before anything else is loaded, so a taken address is found at once and
port 0 gives a free one; ready means that requests are answered.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from headworks.errors import UsageError
from registry.service.app import Limits, create_app
from registry.store import Database

__all__ = ["bind", "serve"]

_DRAIN_SECONDS = 5
_BACKLOG = 1024


def bind(listen: str, *, insecure: bool = False) -> socket.socket:
    """A listening socket at HOST:PORT (port 0: any free one); UsageError if it cannot be had.

    An address that other machines can reach must be asked for by `insecure`.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{listen!r} is not an address", fix="write it like 127.0.0.1:8081")
    host = host.strip("[]") or "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, int(port)))
        _must_be_guarded(sock.getsockname()[0], insecure)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise UsageError(
            f"the registry cannot listen on {listen}: {error.strerror or error}",
            fix="stop what listens there, or choose another address with --listen "
            "(port 0: any free one)",
        ) from None
    except UsageError:
        sock.close()
        raise
    return sock


def _must_be_guarded(address: str, insecure: bool) -> None:
    if not insecure and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise UsageError(
            f"{address} is not a loopback address, and the registry asks nobody who they are",
            fix="listen on 127.0.0.1 behind a proxy that does, or say --insecure",
        )


def serve(
    sock: socket.socket, store: str, ready: Callable[[str], None], *, limits: Limits | None = None
) -> None:
    """Serve the store on a bound socket until SIGTERM or SIGINT; then finish what is under way.

    Calls `ready` with "HOST:PORT" once requests are answered.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    config = uvicorn.Config(
        create_app(Database(store), limits),
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    # The server repeats the signal that stopped it when it is done; then it means nothing more.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    host, port = sock.getsockname()[:2]
    _Server(config, lambda: ready(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")).run(
        sockets=[sock]
    )


class _Server(uvicorn.Server):
    """A server that says when it serves."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
