"""Routes that read their parameters themselves answer as FastAPI would."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from headworks._registry.service import compatibility, subjects
from headworks._registry.service.app import create_app
from headworks._registry.service.direct_route import DirectRoute
from headworks._registry.store import RegistryStore
from tests.registry.rest import record

pytestmark = pytest.mark.unit

CHECK = "/compatibility/subjects/s/versions"
FIRST, SECOND = (json.dumps(record(*fields)) for fields in (("a:int",), ("a:int", "b:string")))
REQUESTS: list[tuple[str, object]] = [
    ("/subjects/s/versions?dry_run=TRUE", {"schema": FIRST}),
    ("/subjects/s/versions?normalize=false&normalize=true", {"schema": FIRST}),
    ("/subjects/s/versions", {"schema": SECOND}),
    (
        "/subjects/s/versions?format=resolved&referenceFormat=qualified&findTags=*",
        {"schema": FIRST},
    ),
    ("/subjects/s?deleted=&normalize=True", {"schema": FIRST}),
    ("/subjects/s", {"schema": SECOND}),
    (CHECK, {"schema": SECOND}),
    (f"{CHECK}?verbose=true", {"schema": SECOND}),
    (f"{CHECK}?verbose=no", {"schema": SECOND}),
    (f"{CHECK}?verbose=true", {"schema": "{"}),
    (f"{CHECK}/latest?verbose=false&verbose=true", {"schema": SECOND}),
    (f"{CHECK}/9", {"schema": SECOND}),
    (f"{CHECK}/nine", {"schema": SECOND}),
    (CHECK, None),
    (CHECK, ["not an object"]),
    ("/subjects/a%00b/versions", {"schema": FIRST}),
    ("/subjects/a%ffb/versions", None),
    ("/subjects/a%2Fb/versions", {"schema": FIRST}),
    ("/subjects/s/versions/1/tags", {"tagsToAdd": []}),
]


def answers(folder: Path) -> list[tuple[int, Any]]:
    """The statuses and bodies of all requests to a new registry."""
    database = RegistryStore(f"sqlite:///{folder / 'registry.db'}", clock=lambda: 1)
    app = create_app(database)

    async def post(target: str, content: object) -> tuple[int, Any]:
        path, _, query = target.partition("?")
        body = b"" if content is None else json.dumps(content).encode()
        sent: list[Any] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
        }
        await app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    async def every() -> list[tuple[int, Any]]:
        return [await post(*one) for one in REQUESTS]

    try:
        return asyncio.run(every())
    finally:
        database.close()


def test_the_answers_are_those_of_the_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours = answers(tmp_path / "ours")
    monkeypatch.delattr(DirectRoute, "get_route_handler")
    assert ours == answers(tmp_path / "theirs")
    assert {status for status, _ in ours} == {200, 400, 404, 409, 422}


def test_the_busiest_routes_are_direct_and_others_are_the_frameworks() -> None:
    def direct(router: Any) -> set[str]:
        return {
            one.endpoint.__name__
            for one in router.routes
            if isinstance(one, APIRoute)
            and one.get_route_handler().__module__ == DirectRoute.__module__
        }

    assert direct(compatibility.router) == {"check_all", "check_one"}
    found = direct(subjects.router)
    assert {"register", "look_up", "read_version", "change_tags"} <= found
    assert "list_subjects" not in found, "FastAPI reads the page"
