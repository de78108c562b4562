"""A fetch whose looking takes long does not look at every append."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from broker.handlers.fetch import Fetch
from broker.protocol.fetch import FetchRequest


@pytest.mark.parametrize(("takes", "most"), [(0.01, 1), (0.0, 50)])
def test_it_rests_after_a_long_look_in_vain(
    monkeypatch: pytest.MonkeyPatch, takes: float, most: int
) -> None:
    looks = 0

    def look(_: Fetch) -> tuple[list[Any], bool]:
        nonlocal looks
        looks += 1
        time.sleep(takes)
        return [], False

    async def run() -> None:
        nothing: Any = None
        request = FetchRequest(1000, 1, 1, 0, -1, ())
        fetch = Fetch(nothing, nothing, nothing, request, lambda _: None)
        for _ in range(50):
            fetch._wake()
        assert looks == most
        fetch.cancel()
        await asyncio.sleep(takes * 60)
        assert looks == most, "who has gone looks no more"

    monkeypatch.setattr(Fetch, "_read", look)
    asyncio.run(run())
