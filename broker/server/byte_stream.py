"""The bytes of a connection, in plaintext or through TLS.

Rules: nothing blocks. If no byte can move now, both kinds raise BlockingIOError. A plaintext stream
uses the socket's own methods, with no layer in between.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from headworks import _system_calls

# A client that waits for the broker is never idle. Only the kernel notices that its machine died.
_KEEPALIVE = _system_calls.keepalive_options(idle=60, interval=15, probes=4)


class ByteStream(Protocol):
    """Both directions of a socket."""

    sock: socket.socket  # for the event loop
    sends_files: bool  # whether sendfile works on the socket
    receive: Callable[[memoryview], int]  # fills the view; returns the bytes received
    send: Callable[[bytes | memoryview, int], int]  # data and flags; returns the bytes sent

    def pending(self) -> bool:
        """Return whether received bytes wait where the event loop does not see them."""

    def close(self) -> None:
        """Close at once."""


def prepare(sock: socket.socket) -> None:
    """Make an accepted socket non-blocking, without Nagle's delay, and with keepalive probes."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in _KEEPALIVE:
        sock.setsockopt(*option)


class PlainByteStream:
    """A TCP socket."""

    sends_files = _system_calls.SENDS_FILES

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
        """Fill `into` as far as possible, because TLS returns one record at a time."""
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
        """See `ByteStream`. Send the TLS closure alert, if that does not block."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()
