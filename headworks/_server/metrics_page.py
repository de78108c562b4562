"""The metrics page of every server: Prometheus text over HTTP or HTTPS.

    endpoint = MetricsEndpoint.parse("127.0.0.1:9400", insecure=insecure)   # refuses exposure
    page = MetricsPage(endpoint, lambda: generate_latest(registry))         # serves in threads
    page.url, page.address                                                  # to print
    page.stop()

Rules:

- The page never delays the server beside it. It answers few requests at a time, and closes a
  connection that takes too long, counted from its beginning to the last byte of the response.
- The page names every topic and group. If the server has users, only a reader of all topics sees
  it. A page without users listens on loopback only, unless the operator passes `--insecure`. There
  it answers under an address or localhost, so that no web page can read it (DNS rebinding).
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
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headworks._host_port import join_host_port
from headworks._server.security import Access, Principal, ResourceType, Role, Users
from headworks._server.security.exposure import parse_listen, refuse_exposure, refuse_plaintext
from headworks._server.security.http.web_pages import ONLY_ADDRESSES, WebPageRules
from headworks.errors import UsageError

_log = logging.getLogger(__name__)
_MAX_REQUESTS = 8
_REQUEST_SECONDS = 10.0
_REFUSAL_SECONDS = 1.0  # a refusal waits this long, which limits password guessing
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """The address of a metrics page, and who may read it: everyone if there are no users."""

    host: str  # an IP address
    port: int  # 0: any free port
    users: Users | None = None  # checked by `Authorization: Basic`
    access: Access | None = None  # the grants; None: every user may read the page
    tls: ssl.SSLContext | None = None
    web_pages: WebPageRules = ONLY_ADDRESSES

    @classmethod
    def parse(
        cls,
        listen: str,
        *,
        users: Users | None = None,
        access: Access | None = None,
        tls: ssl.SSLContext | None = None,
        insecure: bool = False,
    ) -> MetricsEndpoint:
        """Return the endpoint for `--metrics HOST:PORT`.

        Raises UsageError if it is no address, or if other machines can reach it and it lacks users
        or TLS, unless `insecure`.
        """
        host, port = parse_listen(listen, "--metrics")
        refuse_exposure(
            host,
            "metrics page",
            authenticates=users is not None,
            insecure=insecure,
            users_option=False,
        )
        refuse_plaintext(host, "metrics page", encrypts=tls is not None, insecure=insecure)
        web_pages = WebPageRules(any_host=insecure or users is not None)
        return cls(host, port, users, access, tls, web_pages)

    def status(self, authorization: str | None) -> int:
        """Return the HTTP status for an `Authorization` header: 200, 401, or 403."""
        if self.users is None:
            return 200
        try:
            scheme, _, code = (authorization or "").partition(" ")
            name, _, password = base64.b64decode(code, validate=True).decode().partition(":")
            if scheme.lower() != "basic" or not self.users.verify(name, password):
                return 401
            if self.access is None or self.access.allows_everywhere(
                Principal(name), Role.READER, ResourceType.TOPICS
            ):
                return 200
        except ValueError:
            return 401
        except UsageError as error:  # an unreadable file of users or grants admits nobody
            about = {"error": str(error)}
            _log.error("nobody can read the metrics until this is fixed: %s", error, extra=about)
        return 403


class MetricsPage:
    """Serves `/metrics` in background threads until `stop`; `render` returns the page's text."""

    url: str  # for example http://127.0.0.1:9400/metrics
    address: str  # HOST:PORT or [HOST]:PORT, with the port that was chosen

    def __init__(self, endpoint: MetricsEndpoint, render: Callable[[], bytes]) -> None:
        host = endpoint.host
        try:
            self._http = _MetricsServer(endpoint, render)
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics on {host}:{endpoint.port}: {error.strerror or error}",
                fix="stop the process that listens there, or pass another --metrics HOST:PORT",
            ) from None
        if endpoint.tls is not None:
            self._http.socket = endpoint.tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if endpoint.tls is None else "https"
        self.address = join_host_port(host, self._http.server_port)
        self.url = f"{scheme}://{self.address}/metrics"
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the port."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, endpoint: MetricsEndpoint, render: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        self.render = render
        self.endpoint = endpoint
        self._slots = threading.BoundedSemaphore(_MAX_REQUESTS)
        super().__init__((endpoint.host, endpoint.port), _MetricsHandler)

    def server_bind(self) -> None:
        """Bind without the DNS lookup of the host name that the base class makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the request, or close the connection if all slots are taken."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request in its thread, within the time limit."""
        # The handler's timeout applies to each read and write. A client that sends a byte now and
        # then would never reach it, and would keep its slot forever.
        end = threading.Timer(_REQUEST_SECONDS, _cut_off, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._slots.release()

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """Log a client that disconnected or did not speak HTTP."""
        peer = f"{client_address[0]}:{client_address[1]}"
        _log.info("metrics: request of %s failed", peer, exc_info=True, extra={"peer": peer})


def _cut_off(request: socket.socket) -> None:
    """Shut down a connection; its thread then finds it closed."""
    with suppress(OSError):
        socket.socket.shutdown(request, socket.SHUT_RDWR)


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _MetricsServer

    def do_GET(self) -> None:
        """Answer with the page, or with the reason for refusing it."""
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"the metrics are at /metrics\n", "text/plain")
            return
        host = self.headers.get("Host", "").encode("latin-1")
        if self.server.endpoint.web_pages.refusal("GET", [(b"host", host)]) is not None:
            self._answer(421, b"this page answers under an address or localhost\n", "text/plain")
            return
        status = self.server.endpoint.status(self.headers.get("Authorization"))
        if status == 200:
            self._answer(200, self.server.render(), _CONTENT_TYPE)
            return
        time.sleep(_REFUSAL_SECONDS)
        self._answer(status, b"this page needs a user who may read all topics\n", "text/plain")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="headworks", charset="UTF-8"')
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Log no requests."""
