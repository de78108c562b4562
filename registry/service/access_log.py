"""The access log: every request that reaches the application is counted, timed, and logged.

Rules:

- A change is logged at INFO, a refusal at WARNING, an internal error at ERROR, and a read at DEBUG.
  A 404 is the result of a read. Reads by id from memory are not logged.
- The log names the route and the path as it was sent, percent-encoded and cut. It never contains a
  body, a query, or a header.
- A client's `X-Request-Id` is used if it is plain text. Every response carries the used id.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from random import getrandbits

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headworks._registry.metrics import UNMATCHED, RegistryMetrics
from headworks._registry.security.route_rules import PUBLIC, RULES
from headworks._registry.service.guard import PRINCIPAL

_LOG = logging.getLogger("registry.access")
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_MAX_PATH_CHARACTERS = 300
_LINE = "%(method)s %(path)s %(status)d for %(principal)s@%(peer)s in %(ms).2f ms [%(request_id)s]"
# The status of a request whose client disconnected before the response (as in nginx).
_CLIENT_CLOSED_REQUEST = 499


class AccessLog:
    """Wraps the application; `clock` gives seconds."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: RegistryMetrics,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; pass other events through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _request_id(scope)
        status = _CLIENT_CLOSED_REQUEST

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            await send(message)

        began = self._clock()
        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, noting)
        finally:
            self._metrics.in_flight.dec()
            self._note(scope, status, name.decode(), self._clock() - began)

    def _note(self, scope: Scope, status: int, name: str, seconds: float) -> None:
        matched = scope.get("route")
        route = UNMATCHED if matched is None else str(matched.path)
        # A method that no route has is the caller's own word.
        method = str(scope["method"]) if (scope["method"], route) in RULES else "other"
        self._metrics.count_request(method, route, str(status), seconds)
        level = _level(method, route, status)
        if not _LOG.isEnabledFor(level):
            return
        client = scope.get("client")
        fields = {
            "request_id": name,
            "principal": str(scope.get(PRINCIPAL, "anonymous")),
            "peer": client[0] if client else "unknown",
            "method": method,
            "route": route,
            "path": scope["raw_path"].decode("ascii", "replace")[:_MAX_PATH_CHARACTERS],
            "status": status,
            "ms": round(seconds * 1000, 2),
        }
        # `_LOG.log` would look through the stack for its caller, which is always this line.
        where = _LOG.name, level, __file__, 0
        _LOG.handle(_LOG.makeRecord(*where, _LINE, (fields,), None, extra=fields))


def _level(method: str, route: str, status: int) -> int:
    if status >= 500:
        return logging.ERROR
    if status >= 400 and status not in (404, _CLIENT_CLOSED_REQUEST):
        return logging.WARNING
    return logging.INFO if RULES.get((method, route), PUBLIC).changes else logging.DEBUG


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _PLAIN_ID.fullmatch(value):
            return bytes(value)
    # No secret. The operating system's random bytes cost a release of the interpreter's lock.
    return b"%016x" % getrandbits(64)
