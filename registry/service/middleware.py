"""Paths, query names, content types, and body limits of every request. Pure ASGI.

Rules:

- Paths stay percent-encoded, so that a subject may contain `/`. A trailing slash is ignored.
- Query names in snake case, which some clients send, become the names of the interface.
- The response has the content type that `Accept` prefers. If it accepts none of ours, the status is
  406. A route that wrote lines (`_version_lines`) has chosen the type already.
- Requests that a web page of another origin may have sent are refused, as `web_pages` describes.
- A body longer than the limit gets the status 413 before it is read. Without a Content-Length the
  bytes are counted as they arrive (`bodies`). A body that takes more than a minute gets a 408.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headworks import _version_lines
from headworks._registry.model.refusals import ServiceError
from headworks._registry.service.context_paths import without_context_prefix
from headworks._server.http_connection import WHOLE_BODY
from headworks._server.security.http.web_pages import WebPageRules

V1: Final = "application/vnd.schemaregistry.v1+json"
# In order of preference: the first wins a tie in `Accept`.
_RESPONSE_TYPES = (V1, "application/vnd.schemaregistry+json", "application/json")
_LINES = _version_lines.CONTENT_TYPE.encode()
_BODY_SECONDS = 60.0
# Served with their own content type, whatever `Accept` says.
_PLAIN_PATHS = ("/docs", "/openapi.json", "/metrics", "/health")
_QUERY_NAMES = {
    b"deleted_only": b"deletedOnly",
    b"latest_only": b"latestOnly",
    b"subject_prefix": b"subjectPrefix",
    b"context_prefix": b"contextPrefix",
    b"fetch_max_id": b"fetchMaxId",
    b"rule_type": b"ruleType",
}


def choose_type(accept: str) -> str | None:
    """Return the content type of the response, or None if `accept` accepts none of ours."""
    if not accept.strip():
        return V1
    best, best_weight = None, 0.0
    for produced in _RESPONSE_TYPES:
        weight = _weight(accept, produced)
        if weight > best_weight:
            best, best_weight = produced, weight
    return best


def accepts(accept: str, produced: str) -> bool:
    """Return whether `accept` names this content type; ranges such as `*/*` do not count."""
    named = (entry.partition(";") for entry in accept.lower().split(","))
    return any(
        name.strip() == produced and _quality(parameters.split(";")) > 0
        for name, _, parameters in named
    )


def _weight(accept: str, produced: str) -> float:
    """Return the quality that `accept` gives a type by its most specific range."""
    found = (0, 0.0)
    for entry in accept.split(","):
        name, *parameters = (part.strip() for part in entry.lower().split(";"))
        rank = 3 if name == produced else {"application/*": 2, "*/*": 1}.get(name, 0)
        if rank > found[0]:
            found = (rank, _quality(parameters))
    return found[1]


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


class ProtocolMiddleware:
    """Wraps the application; `largest_body` is in bytes."""

    def __init__(self, app: ASGIApp, web_pages: WebPageRules, *, largest_body: int) -> None:
        self._app = app
        self._web_pages = web_pages
        self._largest = largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; pass other events through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["raw_path"].decode("ascii", "replace").partition("?")[0].rstrip("/")
        query = _with_own_names(scope["query_string"])
        refused = self._web_pages.refusal(scope["method"], scope["headers"])
        if refused is not None:
            await _refuse(send, *refused)
            return
        try:
            path, query = without_context_prefix(path, query)
        except ServiceError as error:
            await _refuse(send, error.status, error.message)
            return
        scope["path"], scope["query_string"] = path or "/", query
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._largest:
            await _refuse(send, 413, f"the request is longer than {self._largest} bytes")
            return
        if WHOLE_BODY not in scope:
            receive = _in_time(receive)
        if path.startswith(_PLAIN_PATHS):
            await self._app(scope, receive, send)
            return
        chosen = choose_type(headers.get(b"accept", b"").decode("latin-1"))
        if chosen is None:
            await _refuse(send, 406, f"the answer can be {', '.join(_RESPONSE_TYPES)}")
            return
        await self._app(scope, receive, _typed(send, chosen.encode()))


def _with_own_names(query: bytes) -> bytes:
    if b"_" not in query:
        return query
    pairs = (part.partition(b"=") for part in query.split(b"&"))
    return b"&".join(_QUERY_NAMES.get(name, name) + eq + value for name, eq, value in pairs)


def _in_time(receive: Receive) -> Receive:
    """Return `receive` with a time limit, after which the application responds with 408."""
    until = asyncio.get_running_loop().time() + _BODY_SECONDS

    async def in_time() -> Message:
        try:
            async with asyncio.timeout_at(until):
                return await receive()
        except TimeoutError:
            raise ServiceError(
                408, 408, f"the request's body did not arrive within {_BODY_SECONDS:.0f} s"
            ) from None

    return in_time


def _typed(send: Send, content_type: bytes) -> Send:
    async def typed(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (
                    name,
                    value if value == _LINES or name.lower() != b"content-type" else content_type,
                )
                for name, value in message.get("headers", [])
            ]
        await send(message)

    return typed


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error_code": status, "message": message}).encode()
    headers = [(b"content-type", V1.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
