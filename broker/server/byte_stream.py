"""How the bytes of a connection move: as they are, or through TLS.

Rules: nothing blocks; what cannot move now raises BlockingIOError, for either kind. A connection
chooses once. Plain sockets get their own methods, with no layer in between.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

__all__ = ["ByteStream", "PlainByteStream", "TlsByteStream", "prepare"]

# A client that waits for us is never idle: only the kernel can see that its machine is gone.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),  # seconds without a byte
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),  # between questions
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),  # questions without an answer
)


class ByteStream(Protocol):
    """A socket's two directions."""

    sock: socket.socket
    sends_files: bool  # whether sendfile may be used on the socket
    receive: Callable[[memoryview], int]
    send: Callable[[bytes | memoryview, int], int]

    def pending(self) -> bool:
        """Whether there is more to receive that the kernel does not know of."""

    def close(self) -> None:
        """Close at once."""


def prepare(sock: socket.socket) -> None:
    """What every accepted socket is: non-blocking, without delays, and asked whether it lives."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in _KEEPALIVE:
        sock.setsockopt(*option)


class PlainByteStream:
    """A TCP socket."""

    sends_files = True

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.receive: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[bytes | memoryview, int], int] = sock.send

    def pending(self) -> bool:
        """See `ByteStream`."""
        return False

    def close(self) -> None:
        """See `ByteStream`."""
        self.sock.close()


class TlsByteStream:
    """A TLS socket whose handshake is done."""

    sends_files = False

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock: socket.socket = sock
        self._tls = sock
        self.receive: Callable[[memoryview], int] = self._receive
        self.send: Callable[[bytes | memoryview, int], int] = self._send

    def _receive(self, into: memoryview) -> int:
        """Fill `into` as far as it goes: TLS gives one record at a time."""
        total = 0
        try:
            while total < len(into):
                count = self._tls.recv_into(into[total:])
                if not count:
                    break
                total += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not total:
                raise BlockingIOError from None
        return total

    def _send(self, data: bytes | memoryview, _flags: int) -> int:
        try:
            return self._tls.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            raise BrokenPipeError("the client has gone") from None

    def pending(self) -> bool:
        """See `ByteStream`."""
        return self._tls.pending() > 0

    def close(self) -> None:
        """See `ByteStream`; tells the other side that this was the end, if that goes at once."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()
