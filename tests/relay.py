"""A cable between a client and a server that can be cut: bytes stop, connections stay open.

What was under way when it was cut arrives after `mend`, as TCP's retransmissions would.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Listens on `address` and passes everything on to `target`, "HOST:PORT"."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Nothing passes any more."""
        self._whole.clear()

    def drop(self) -> int:
        """Connections are closed, new ones pass; how many ends were closed."""
        dropped = 0
        for one in tuple(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
                dropped += 1
        return dropped

    def mend(self) -> None:
        """Everything passes again."""
        self._whole.set()

    def close(self) -> None:
        """Take the cable away."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self._whole.set()
        for thread in self._threads:
            while thread.is_alive():  # it may be connecting only now
                self.drop()
                thread.join(0.1)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        self._sockets.add(client)
        self._whole.wait()
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        self._sockets.add(server)
        back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
        back.start()
        self._pass(client, server)
        back.join()
        for one in (client, server):
            one.close()
            self._sockets.discard(one)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
