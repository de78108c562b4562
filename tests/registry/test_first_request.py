"""A registry that accepts requests has analyzed its routes: its first request waits for nothing."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from headworks._registry.service.app import create_app
from headworks._registry.store import RegistryStore
from tests.registry.in_process import ask

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("path", ["/contexts", "/schemas/types", "/subjects", "/config", "/mode"])
def test_no_route_is_analyzed_at_its_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    app = create_app(RegistryStore(f"sqlite:///{tmp_path}/registry.db"))
    analyzed: list[object] = []
    signature = inspect.signature

    def noted(of: Any, **more: Any) -> inspect.Signature:
        if of.__module__.startswith("headworks."):
            analyzed.append(of)
        return signature(of, **more)

    async def started_and_asked() -> int:
        started, ended = asyncio.Event(), asyncio.Event()

        async def receive() -> dict[str, str]:
            if not started.is_set():
                return {"type": "lifespan.startup"}
            await ended.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Any) -> None:
            assert not message["type"].endswith(".failed"), message
            started.set()

        running = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, receive, send))
        await started.wait()
        monkeypatch.setattr(inspect, "signature", noted)
        status, _ = await ask(app, "GET", path)
        ended.set()
        await running
        return status

    assert asyncio.run(started_and_asked()) == 200
    assert not analyzed
