"""A broker that hangs, for users' tests: it accepts connections and never answers.

A broker that does not answer is worse for a program than one that refuses. A test against this one
proves that a request does not wait for the broker.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading

_SELECT_SECONDS = 0.1
_RECEIVE_BYTES = 1 << 16


class HungBroker:
    """Listens on loopback at `address`, and reads and discards all bytes that clients send."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._swallow, name="hung-broker", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT, for `bootstrap`."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def close(self) -> None:
        """Close all connections."""
        self._stopping.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def __enter__(self) -> HungBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _swallow(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(_SELECT_SECONDS):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._listener:
                    with contextlib.suppress(OSError):
                        found, _ = sock.accept()
                        found.setblocking(False)
                        self._selector.register(found, selectors.EVENT_READ)
                elif not _received(sock):
                    self._selector.unregister(sock)
                    sock.close()


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(_RECEIVE_BYTES)
    except OSError:
        return b""
