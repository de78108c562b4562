"""Reads by schema id, served from memory in front of the framework.

Rules:

- Only `GET /schemas/ids/{id}` is cached, without a query or with `?subject=`, and only for clients
  that accept the registry's own content type. Every other request passes through unchanged.
- The cache holds responses of the application with status 200, byte for byte. It never decides what
  a response is.
- If the registry authenticates, the cache also holds the subjects whose readers may see a response,
  as the application reports them. A sender whose credentials are not cached passes through.
- Any change of the store clears the cache. A change by this process does so at once (`clear`), and
  one by another process within half a second: the store's revision is read twice a second.
- A schema by id never changes. It can only be deleted, or be registered in a further version.
- The bodies in the cache have at most MAX_CACHE_BYTES.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Lock

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_CACHE_BYTES = 64 * 1024 * 1024
# The scope key under which the application puts the subjects whose readers may see a response.
SUBJECTS = "headworks.subjects"
# Every read checks these subjects one by one; a response with more of them is not cached.
_MAX_SUBJECTS = 100
MayRead = Callable[[Scope, tuple[str, ...]], bool]
_CachedResponse = tuple[Message, Message, tuple[str, ...]]
_PREFIX = b"/schemas/ids/"
_REQUEST_ID = b"x-request-id"
_V1 = b"application/vnd.schemaregistry.v1+json"
_REVISION_CHECK_SECONDS = 0.5
_LOG = logging.getLogger(__name__)


class FastReads:
    """Wraps the application; `revision` returns a number that grows with every change.

    `may_read` returns whether the sender of a request may read one of some subjects. None: the
    registry is open.
    """

    def __init__(
        self, app: ASGIApp, revision: Callable[[], int], may_read: MayRead | None = None
    ) -> None:
        self._app = app
        self._revision = revision
        self._may_read = may_read
        self.hits = 0  # responses from the cache
        self._lock = Lock()  # worker threads clear the cache, and the event loop fills it
        self._responses: dict[bytes, _CachedResponse] = {}  # by path and query
        self.cached_bytes = 0  # of the keys and bodies
        self._generation = 0  # grows with every clear: older requests must not fill the cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["method"] == "GET":
            raw_path: bytes = scope["raw_path"]
            if raw_path.startswith(_PREFIX) and raw_path[len(_PREFIX) :].isdigit():
                await self._read(raw_path, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def clear(self) -> None:
        """Drop every response, and those that are being computed; thread-safe."""
        with self._lock:
            self._responses.clear()
            self.cached_bytes = 0
            self._generation += 1

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Inside the block, clear the cache when another process changes the store."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _watch(self) -> None:
        seen = -1
        while True:
            try:
                now = await asyncio.to_thread(self._revision)
            except Exception as error:
                # The cached responses stay valid while the store does not answer.
                _LOG.warning("cannot read the store's revision: %s", error)
            else:
                if now != seen:
                    self.clear()
                    seen = now
            await asyncio.sleep(_REVISION_CHECK_SECONDS)

    async def _read(self, raw_path: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        query: bytes = scope["query_string"]
        if not _accepts_v1(scope) or (
            query and (not query.startswith(b"subject=") or b"&" in query)
        ):
            await self._app(scope, receive, send)
            return
        key = raw_path + b"?" + query
        cached = self._responses.get(key)
        if cached is None or (self._may_read is not None and not self._may_read(scope, cached[2])):
            await self._app(scope, receive, self._caching(key, scope, send))
            return
        self.hits += 1
        await send(cached[0])
        await send(cached[1])

    def _caching(self, key: bytes, scope: Scope, send: Send) -> Send:
        generation = self._generation
        start: Message | None = None

        async def cache(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = _cacheable(message) if message["status"] == 200 else None
            elif start is not None and not message.get("more_body"):
                self._store(key, (start, message, scope.get(SUBJECTS, ())), generation)
            else:
                start = None
            await send(message)

        return cache

    def _store(self, key: bytes, cached: _CachedResponse, generation: int) -> None:
        size = len(key) + len(cached[1]["body"])
        with self._lock:
            if generation != self._generation or size > MAX_CACHE_BYTES or key in self._responses:
                return
            if len(cached[2]) > _MAX_SUBJECTS:
                return
            if self.cached_bytes + size > MAX_CACHE_BYTES:
                self._responses.clear()
                self.cached_bytes = 0
            self._responses[key] = cached
            self.cached_bytes += size


def _cacheable(start: Message) -> Message:
    """Return the head of a response without the headers of one request."""
    headers = [one for one in start.get("headers", ()) if one[0] != _REQUEST_ID]
    return {**start, "headers": headers}


def _accepts_v1(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"accept":
            return _V1 in value or bytes(value) == b"*/*"
    return True
