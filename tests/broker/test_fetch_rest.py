"""A fetch whose looking takes long does not look at every append."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headworks._broker.handlers.fetch import Fetch
from headworks._kafka.protocol.fetch import FetchRequest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("takes", "most"), [(0.01, 1), (0.0, 50)])
def test_it_rests_after_a_long_look_in_vain(
    monkeypatch: pytest.MonkeyPatch, takes: float, most: int
) -> None:
    looks, now = 0, 0.0

    def look(_: Fetch) -> tuple[list[Any], bool]:
        nonlocal looks, now
        looks += 1
        now += takes
        return [], False

    async def run() -> None:
        nonlocal now
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        nothing: Any = None
        request = FetchRequest(1000, 1, 1, 0, -1, ())
        fetch = Fetch(nothing, nothing, nothing, request, lambda _: None)
        for _ in range(50):
            fetch._wake()
        assert looks == most
        fetch.cancel()
        now += takes * 60
        await asyncio.sleep(0)
        assert looks == most, "who has gone looks no more"

    monkeypatch.setattr(Fetch, "_read", look)
    asyncio.run(run())
