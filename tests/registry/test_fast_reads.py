"""The memory in front of the application: what it keeps, for whom, and when it forgets."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from headworks._registry import fast_reads
from headworks._registry.fast_reads import FastReads

pytestmark = pytest.mark.unit

V1 = b"application/vnd.schemaregistry.v1+json"


class App:
    """Counts its requests, and answers each one with the number."""

    def __init__(self, status: int = 200, size: int = 0) -> None:
        self.calls = 0
        self.status = status
        self.size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % self.calls + b" " * self.size})


def ask(
    reads: FastReads, path: bytes, query: bytes = b"", method: str = "GET", accept: bytes = V1
) -> str:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": method,
        "raw_path": path,
        "query_string": query,
        "headers": [(b"accept", accept)],
    }
    asyncio.run(reads(scope, receive, send))
    body: bytes = sent[-1]["body"]
    return body.decode().strip()


def test_an_answer_is_made_once() -> None:
    reads = FastReads(App(), lambda: 0)
    one = b"/schemas/ids/1"
    assert [ask(reads, one), ask(reads, one), ask(reads, one)] == ["1", "1", "1"]
    assert ask(reads, b"/schemas/ids/2") == "2"
    assert [ask(reads, one, b"subject=s"), ask(reads, one, b"subject=s")] == ["3", "3"]
    assert ask(reads, one, b"subject=t") == "4"


def test_what_passes_through() -> None:
    reads = FastReads(App(), lambda: 0)
    for query in (b"format=resolved", b"subject=s&format=resolved"):
        assert ask(reads, b"/schemas/ids/1", query) != ask(reads, b"/schemas/ids/1", query)
    assert ask(reads, b"/subjects") != ask(reads, b"/subjects")
    first = ask(reads, b"/schemas/ids/1", accept=b"application/json")
    assert ask(reads, b"/schemas/ids/1", accept=b"application/json") != first


def test_only_success_is_kept() -> None:
    reads = FastReads(App(status=404), lambda: 0)
    assert ask(reads, b"/schemas/ids/1") != ask(reads, b"/schemas/ids/1")


def test_only_a_change_forgets() -> None:
    reads = FastReads(App(), lambda: 0)
    first = ask(reads, b"/schemas/ids/1")
    ask(reads, b"/subjects/s", method="POST")
    assert ask(reads, b"/schemas/ids/1") == first
    reads.clear()
    assert ask(reads, b"/schemas/ids/1") != first


def test_a_change_meanwhile_leaves_nothing_stale() -> None:
    reads = FastReads(App(), lambda: 0)

    class Changing(App):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            reads.clear()
            await super().__call__(scope, receive, send)

    changing = Changing()
    reads = FastReads(changing, lambda: 0)
    assert ask(reads, b"/schemas/ids/1") == "1"
    assert ask(reads, b"/schemas/ids/1") == "2"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_reads, "MAX_CACHE_BYTES", 1000)
    app = App(size=400)
    reads = FastReads(app, lambda: 0)
    for n in (b"1", b"2", b"1", b"2"):
        ask(reads, b"/schemas/ids/" + n)
    assert app.calls == 2
    ask(reads, b"/schemas/ids/3")
    ask(reads, b"/schemas/ids/1")
    assert app.calls == 4
    too_large = FastReads(App(size=2000), lambda: 0)
    assert ask(too_large, b"/schemas/ids/1") != ask(too_large, b"/schemas/ids/1")


def test_a_change_elsewhere_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_reads, "_REVISION_CHECK_SECONDS", 0.01)
    revision, looks = 1, 0

    def look() -> int:
        nonlocal looks
        looks += 1
        return revision

    async def run() -> None:
        nonlocal revision
        reads = FastReads(App(), look)
        async with reads.watching():
            while looks < 2:  # the first look is over, and what it said is known
                await asyncio.sleep(0.01)
            seen = reads._generation
            revision = 2
            change = looks
            while looks < change + 2:  # one is under way perhaps; the next one sees it, and is over
                await asyncio.sleep(0.01)
            assert reads._generation == seen + 1

    asyncio.run(run())
