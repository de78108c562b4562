"""Accepts connections, does their TLS handshakes, and drops those that are too slow.

Rules: a connection counts from the moment it is accepted, so the limits include handshakes. The
limits apply to all connections and to those of one address. An error of one connection is logged
and counted, and ends only that connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter

from headworks._broker.open_file_limit import RESERVED_FILES, few_left
from headworks._broker.server.byte_stream import PlainByteStream, TlsByteStream, prepare
from headworks._broker.server.connection import Connection
from headworks._broker.server.context import ServerContext
from headworks._broker.server.handshake import Handshake

_log = logging.getLogger(__name__)
_MAX_ACCEPTS = 64  # connections accepted per turn of the event loop
_RETRY_SECONDS = 0.5


class Acceptor:
    """Accepts on a listening socket from `start` to `stop`; `tls` None means plaintext."""

    def __init__(
        self, listener: socket.socket, context: ServerContext, tls: ssl.SSLContext | None = None
    ) -> None:
        self.connections: set[Connection] = set()  # that are open
        self._handshakes: dict[ssl.SSLSocket, Handshake] = {}
        self._from: Counter[str] = Counter()  # connections and handshakes by address
        self._listener = listener
        self._context = context
        self._tls = tls
        self._counters = context.node.counters
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Accept connections."""
        self._loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        """Accept no more connections; open ones continue."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for sock, handshake in self._handshakes.items():
            handshake.cancel()
            sock.close()
        self._handshakes.clear()

    async def drop_slow(self) -> None:
        """Close idle and stalled connections, until cancelled."""
        limits, memory = self._context.limits, self._context.memory
        pause = min(limits.idle_seconds / 10, limits.stall_seconds / 10, 1.0)
        while True:
            await asyncio.sleep(pause)
            now = self._loop.time()
            for connection in tuple(self.connections):
                connection.close_if_slow(now)
            memory.exhausted = False

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of files: the others must close some first
                about = {"error": str(error), "connections": len(self.connections)}
                _log.error("accept failed, again in %s s: %s", _RETRY_SECONDS, error, extra=about)
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_RETRY_SECONDS, self._accept_again)
                return
            host, port = address[:2]
            peer = f"{host}:{port}"
            if refusal := self._refusal(host, sock.fileno()):
                self._counters.refused += 1
                about = {"peer": peer, "connections": len(self.connections)}
                _log.warning("refusing %s: %s", peer, refusal, extra=about)
                sock.close()
                continue
            self._counters.accepted += 1
            self._from[host] += 1
            try:
                prepare(sock)
                if self._tls is None:
                    self._welcome(sock, host, peer)
                else:
                    self._greet(self._tls, sock, host, peer)
            except OSError as error:  # gone already
                self._fail(sock, host, peer, str(error), "network")

    def _refusal(self, host: str, descriptor: int) -> str:
        """Return why one more connection from there is refused, or ""."""
        limits, found = self._context.limits, self._from.get(host, 0)
        if len(self.connections) + len(self._handshakes) >= limits.max_connections:
            return f"{len(self.connections)} connections are open"
        if (
            limits.max_connections_per_address is not None
            and found >= limits.max_connections_per_address
        ):
            return f"{found} connections from {host} are open"
        if few_left(descriptor):
            kept = RESERVED_FILES
            return f"too many files are open; the last {kept} are kept for the logs (ulimit -Hn)"
        return ""

    def _left(self, host: str) -> None:
        """Count a closed connection from there."""
        self._from[host] -= 1
        if not self._from[host]:
            del self._from[host]

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self.start()

    def _greet(self, tls: ssl.SSLContext, sock: socket.socket, host: str, peer: str) -> None:
        wrapped = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

        def done(failure: str) -> None:
            del self._handshakes[wrapped]
            if failure:
                self._fail(wrapped, host, peer, failure, "tls")
            else:
                self._welcome(wrapped, host, peer)

        seconds = self._context.limits.setup_seconds
        self._handshakes[wrapped] = Handshake(wrapped, seconds, done)

    def _welcome(self, sock: socket.socket, host: str, peer: str) -> None:
        stream = TlsByteStream(sock) if isinstance(sock, ssl.SSLSocket) else PlainByteStream(sock)

        def closed(connection: Connection) -> None:
            self.connections.discard(connection)
            self._left(host)

        self.connections.add(Connection(self._context, stream, peer, closed))

    def _fail(self, sock: socket.socket, host: str, peer: str, reason: str, kind: str) -> None:
        self._left(host)
        self._counters.failed[kind] += 1
        _log.warning("closing %s: %s", peer, reason, extra={"peer": peer, "kind": kind})
        sock.close()
