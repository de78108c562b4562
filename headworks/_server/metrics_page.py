"""A page of metrics over HTTP or HTTPS, with a name and password where the server has users.

Rules: it runs beside a server and never holds it up. Few requests at a time, each with a time limit
from its beginning to the last byte of the answer; whoever does not finish is closed. Where there
are users, a reader of all topics may see the page, and nobody else: it names every topic and group.
"""

from __future__ import annotations

import base64
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headworks._server.security import Access, Kind, Principal, Role, Users
from headworks.errors import UsageError

__all__ = ["Door", "MetricsPage"]

_log = logging.getLogger(__name__)
_AT_A_TIME = 8
_SECONDS = 10.0
_REFUSAL_SECONDS = 1.0
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Door:
    """Who may see the page: everybody, or by `Authorization: Basic` and the grants."""

    def __init__(self, users: Users | None, access: Access | None) -> None:
        self._users = users
        self._access = access

    def status(self, authorization: str | None) -> int:
        """200, 401 or 403."""
        if self._users is None:
            return 200
        try:
            scheme, _, code = (authorization or "").partition(" ")
            name, _, password = base64.b64decode(code, validate=True).decode().partition(":")
            if scheme.lower() != "basic" or not self._users.verify(name, password):
                return 401
            if self._access is None or self._access.allows_everywhere(
                Principal(name), Role.READER, Kind.TOPICS
            ):
                return 200
        except ValueError:
            return 401
        except UsageError as error:  # a file that cannot be read admits nobody
            about = {"error": str(error)}
            _log.error("nobody may see the metrics until this is mended: %s", error, extra=about)
        return 403


class MetricsPage:
    """Serves `/metrics`, made by `render`, in threads of its own until `stop`."""

    def __init__(
        self,
        host: str,
        port: int,
        render: Callable[[], bytes],
        door: Door,
        tls: ssl.SSLContext | None,
    ) -> None:
        try:
            self._http = _Server((host, port), render, door)
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}",
                fix="give another --metrics HOST:PORT",
            ) from None
        if tls is not None:
            self._http.socket = tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{shown}:{self._http.server_port}/metrics"
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the port."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, at: tuple[str, int], render: Callable[[], bytes], door: Door) -> None:
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self.render = render
        self.door = door
        self._places = threading.BoundedSemaphore(_AT_A_TIME)
        super().__init__(at, _Handler)

    def server_bind(self) -> None:
        """Bind, without asking a name server who we are, as the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the request, if there is a place."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Runs in the request's thread."""
        # The handler's timeout is for each read and write: who drips would hold a place for ever.
        end = threading.Timer(_SECONDS, _cut_off, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._places.release()

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """A client that broke off, or spoke something else."""
        peer = f"{client_address[0]}:{client_address[1]}"
        _log.info("metrics: request of %s failed", peer, exc_info=True, extra={"peer": peer})


def _cut_off(request: socket.socket) -> None:
    """End a connection under its thread, which then finds it closed."""
    with suppress(OSError):
        socket.socket.shutdown(request, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS
    server: _Server

    def do_GET(self) -> None:
        """The page, or why not."""
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"the metrics are at /metrics\n", "text/plain")
            return
        status = self.server.door.status(self.headers.get("Authorization"))
        if status == 200:
            self._answer(200, self.server.render(), _TYPE)
            return
        time.sleep(_REFUSAL_SECONDS)
        self._answer(status, b"a user who may read all topics may see this\n", "text/plain")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="headworks", charset="UTF-8"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Requests are not logged."""
