"""Routes that read their parameters themselves answer as FastAPI would."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from headworks._registry.operations.reader import RegistryReader
from headworks._registry.operations.registrar import Registrar
from headworks._registry.service import compatibility, direct_route, subjects
from headworks._registry.service.app import create_app
from headworks._registry.service.parameters import Page
from headworks._registry.store import RegistryStore
from headworks._registry.worker_pools import CHANGES, WorkerPool
from tests.registry.in_process import ask
from tests.registry.rest import record

pytestmark = pytest.mark.unit

CHECK = "/compatibility/subjects/s/versions"
FIRST, SECOND = (json.dumps(record(*fields)) for fields in (("a:int",), ("a:int", "b:string")))
POSTS: list[tuple[str, object]] = [
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
REQUESTS: list[tuple[str, str, object]] = [
    *(("POST", *one) for one in POSTS),
    ("GET", "/health", None),
    ("GET", "/health/ready", None),
    ("GET", "/subjects/s/versions/1", None),
    ("GET", "/subjects/s/versions/1/", None),
    ("GET", "/subjects/s/versions/zero", None),
    ("GET", "/subjects/s/diff/1/2", None),
    ("GET", "/subjects/s/diff/zero/nine", None),
    ("DELETE", "/contexts/.nothing", None),
    ("DELETE", "/contexts/a%ffb", None),
    ("PATCH", "/subjects/s", None),
    ("PUT", "/subjects/s/versions", {"schema": FIRST}),
    ("GET", "/compatibility/subjects/s/versions", None),
    ("POST", "/subjects/s/nothing", {"schema": FIRST}),
    ("PUT", "/config", {"compatibility": "FULL"}),
    ("PUT", "/config/s", {"compatibility": "HALF"}),
    ("PUT", "/mode/s", {"mode": "READONLY"}),
    ("POST", "/subjects/s/versions", {"schema": SECOND}),
    ("DELETE", "/mode/s", None),
    ("POST", "/associations:batch", {}),
    ("DELETE", "/associations/resource/x", None),
    ("DELETE", "/subjects/s/versions/1", None),
    ("DELETE", "/subjects/s", None),
    ("POST", "/subjects/s/undelete", None),
]


def answers(folder: Path) -> list[tuple[int, Any]]:
    """The statuses and bodies of all requests to a new registry."""
    database = RegistryStore(f"sqlite:///{folder / 'registry.db'}", clock=lambda: 1)
    app = create_app(database)

    async def every() -> list[tuple[int, Any]]:
        return [await ask(app, method, target, content) for method, target, content in REQUESTS]

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
    monkeypatch.setattr(direct_route, "_READERS", {})
    monkeypatch.setattr(direct_route, "_POOL", "no_pool")
    monkeypatch.setattr(WorkerPool, "hand_over", lambda _pool, work: work())
    assert ours == answers(tmp_path / "theirs")
    assert {status for status, _ in ours} == {200, 204, 400, 404, 405, 409, 422}


def test_an_error_of_ours_is_an_answer_and_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = RegistryStore(f"sqlite:///{tmp_path / 'registry.db'}")

    def fail(*_given: object, **_named: object) -> None:
        raise StopIteration

    monkeypatch.setattr(RegistryReader, "is_ready", fail)
    monkeypatch.setattr(Registrar, "check", fail)
    app = create_app(database)
    for method, target in (("GET", "/health/ready"), ("POST", CHECK)):
        sent: list[Any] = []
        with pytest.raises(RuntimeError, match="StopIteration"):
            asyncio.run(ask(app, method, target, {"schema": FIRST}, sent))
        assert sent[0]["status"] == 500
        assert json.loads(sent[1]["body"])["error_code"] == 500
    database.close()


def test_the_busiest_routes_are_direct_and_others_are_the_frameworks() -> None:
    def direct(router: APIRouter) -> set[str]:
        routes = [one for one in router.routes if isinstance(one, APIRoute)]
        return {one.name for one in routes if direct_route._handler(one, {}) is not None}

    assert direct(compatibility.router) == {"check_all", "check_one"}
    found = direct(subjects.router)
    assert {"register", "look_up", "read_version", "change_tags"} <= found
    assert "list_subjects" not in found, "FastAPI reads the page"


def test_a_pool_for_a_route_of_the_framework_is_an_error() -> None:
    router = APIRouter()

    @router.get("/slow")
    @direct_route.runs_in(CHANGES)
    def slow(page: Page) -> None: ...

    with pytest.raises(TypeError, match=r"/slow: runs_in has no effect.*page"):
        direct_route.DirectRoutes(FastAPI(), router.routes, {})
