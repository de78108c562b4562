"""Reads by schema id, answered from memory in front of the framework.

Rules:

- Only `GET /schemas/ids/{id}`, bare or with `?subject=`, and only for clients that take the
  registry's own content type; everything else passes through untouched.
- What is kept is the application's own answer with status 200, byte for byte. So there is one
  place that decides what the answer is, and this module only remembers it.
- Of a guarded registry it remembers also whose readers may see the answer (the application says
  so), and gives it to nobody else. Who is not known already passes through, to be asked there.
- A change of the store forgets everything: at once (`forget`) if it was made in this process,
  within half a second if another process made it, because the store's revision is looked at
  twice a second. An answer by id never changes; it can only be deleted, or be registered in a
  further version.
- Memory is bounded by MAX_CACHE_BYTES bytes of bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Lock

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MAX_CACHE_BYTES", "SUBJECTS", "FastReads", "MayRead"]

MAX_CACHE_BYTES = 64 * 1024 * 1024
# Where the application puts the subjects of which a reader may see its answer.
SUBJECTS = "headworks.subjects"
# So many subjects are looked through for every read; an answer with more is not kept.
_MAX_SUBJECTS = 100
MayRead = Callable[[Scope, tuple[str, ...]], bool]
_CachedResponse = tuple[Message, Message, tuple[str, ...]]
_PREFIX = b"/schemas/ids/"
_REQUEST_ID = b"x-request-id"
_V1 = b"application/vnd.schemaregistry.v1+json"
_REVISION_CHECK_SECONDS = 0.5
_LOG = logging.getLogger(__name__)


class FastReads:
    """Wraps the application; `revision` gives a number that grows with every change.

    `admits` says whether a request may see an answer that is for the readers of some subjects;
    None: every request may see everything.
    """

    def __init__(
        self, app: ASGIApp, revision: Callable[[], int], admits: MayRead | None = None
    ) -> None:
        self._app = app
        self._revision = revision
        self._admits = admits
        self.hits = 0
        # Changes are made by worker threads, answers are kept by the event loop.
        self._lock = Lock()
        self._answers: dict[bytes, _CachedResponse] = {}
        self._size = 0
        self._generation = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "GET":
            raw_path: bytes = scope["raw_path"]
            if raw_path.startswith(_PREFIX) and raw_path[len(_PREFIX) :].isdigit():
                await self._read(raw_path, scope, receive, send)
                return
        await self._app(scope, receive, send)

    @property
    def held_bytes(self) -> int:
        """The size of what is remembered."""
        return self._size

    def forget(self) -> None:
        """Drop every remembered answer, and those that are being made right now; thread-safe."""
        with self._lock:
            self._answers.clear()
            self._size = 0
            self._generation += 1

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While inside, forget when another process changes the store."""
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
                # A store that is away cannot be changed; what we know stays true meanwhile.
                _LOG.warning("cannot read the store's revision: %s", error)
            else:
                if now != seen:
                    self.forget()
                    seen = now
            await asyncio.sleep(_REVISION_CHECK_SECONDS)

    async def _read(self, raw_path: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        query: bytes = scope["query_string"]
        if not _takes_v1(scope) or (query and (not query.startswith(b"subject=") or b"&" in query)):
            await self._app(scope, receive, send)
            return
        key = raw_path + b"?" + query
        kept = self._answers.get(key)
        if kept is None or (self._admits is not None and not self._admits(scope, kept[2])):
            await self._app(scope, receive, self._remembering(key, scope, send))
            return
        self.hits += 1
        await send(kept[0])
        await send(kept[1])

    def _remembering(self, key: bytes, scope: Scope, send: Send) -> Send:
        generation = self._generation
        start: Message | None = None

        async def remember(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = _to_keep(message) if message["status"] == 200 else None
            elif start is not None and not message.get("more_body"):
                self._keep(key, (start, message, scope.get(SUBJECTS, ())), generation)
            else:
                start = None
            await send(message)

        return remember

    def _keep(self, key: bytes, kept: _CachedResponse, generation: int) -> None:
        size = len(key) + len(kept[1]["body"])
        with self._lock:
            if generation != self._generation or size > MAX_CACHE_BYTES or key in self._answers:
                return
            if len(kept[2]) > _MAX_SUBJECTS:
                return
            if self._size + size > MAX_CACHE_BYTES:
                self._answers.clear()
                self._size = 0
            self._answers[key] = kept
            self._size += size


def _to_keep(start: Message) -> Message:
    """The head of an answer without what belongs to one request only."""
    headers = [one for one in start.get("headers", ()) if one[0] != _REQUEST_ID]
    return {**start, "headers": headers}


def _takes_v1(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"accept":
            return _V1 in value or bytes(value) == b"*/*"
    return True
