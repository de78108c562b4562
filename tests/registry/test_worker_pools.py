"""Work that takes long: it keeps no other request waiting, and too much of it is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp

from headworks._registry.operations import registrar
from headworks._registry.operations.compatibility_check import check_compatibility
from headworks._registry.service.app import create_app
from headworks._registry.store import RegistryStore
from headworks._registry.worker_pools import MAX_WAITING
from tests.registry.in_process import ask
from tests.registry.rest import record, text_of
from tests.waiting import PATIENCE

pytestmark = pytest.mark.unit

KNOWN = {"schema": text_of(record("a:int=0"))}
HANGING = 60
CHECK, REGISTER = "/compatibility/subjects/s/versions", "/subjects/s/versions"
Asked = Callable[..., Awaitable[tuple[int, Any]]]


def new(number: int) -> dict[str, str]:
    return {"schema": text_of(record("a:int=0", f"b{number}:int=0"))}


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fact():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def slow(app: ASGIApp, target: str, requests: int) -> AsyncIterator[list[Any]]:
    """Inside the block, so many comparisons hang, or wait for those that do."""
    ends, begun = threading.Event(), []

    def hang(*given: Any) -> Any:
        begun.append(given)
        assert ends.wait(2 * PATIENCE)
        return check_compatibility(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registrar, "check_compatibility", hang)
        tasks = [
            asyncio.create_task(ask(app, "POST", target, new(number))) for number in range(requests)
        ]
        try:
            await until(lambda: begun)
            yield tasks
        finally:
            ends.set()
            await asyncio.gather(*tasks)


def run(folder: Path, test: Callable[[ASGIApp], Awaitable[None]]) -> None:
    """Run a test on a registry that has one schema."""
    store = RegistryStore(f"sqlite:///{folder / 'registry.db'}")
    app = create_app(store)

    async def all_of_it() -> None:
        assert (await ask(app, "POST", REGISTER, KNOWN))[1]["id"] == 1
        async with asyncio.timeout(2 * PATIENCE):
            await test(app)

    try:
        asyncio.run(all_of_it())
    finally:
        store.close()


async def metric(app: ASGIApp, name: str, work: str) -> float:
    _, text = await ask(app, "GET", "/metrics")
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"headworks_registry_{name}" and sample.labels == {"work": work}
    )


@pytest.mark.parametrize("target", [CHECK, f"{REGISTER}?dry_run=true", REGISTER])
def test_hanging_comparisons_keep_nothing_else_waiting(tmp_path: Path, target: str) -> None:
    async def test(app: ASGIApp) -> None:
        async with slow(app, target, HANGING) as tasks:
            for method, path in (
                ("GET", "/health"),
                ("GET", "/health/ready"),
                ("GET", "/schemas/ids/1"),
                ("GET", "/schemas/ids/1/versions"),
                ("GET", "/subjects/s/versions/latest"),
                ("GET", "/config/s?defaultToGlobal=true"),
            ):
                assert (await ask(app, method, path))[0] == 200, path
            assert (await ask(app, "POST", "/subjects/s", KNOWN))[1]["version"] == 1
            assert (await ask(app, "POST", REGISTER, KNOWN))[1]["version"] == 1
            assert not any(one.done() for one in tasks)
        assert {(await one)[0] for one in tasks} <= {200, 409}

    run(tmp_path, test)


def test_too_many_of_them_are_refused_and_counted(tmp_path: Path) -> None:
    async def test(app: ASGIApp) -> None:
        async with slow(app, CHECK, MAX_WAITING + 2) as tasks:
            assert await metric(app, "waiting", "checks") == MAX_WAITING
            sent: list[Any] = []
            status, body = await ask(app, "POST", CHECK, KNOWN, sent)
            assert (status, body["error_code"]) == (503, 503)
            assert "checks" in body["message"]
            assert (b"retry-after", b"1") in sent[0]["headers"]
            assert await metric(app, "busy_refusals_total", "checks") == 1
            dry = await ask(app, "POST", f"{REGISTER}?dry_run=true", new(1))
            assert dry[0] == 503, "it waits for the same threads"
            assert (await ask(app, "POST", REGISTER, KNOWN))[0] == 200
            assert not any(one.done() for one in tasks)
        assert {(await one)[0] for one in tasks} == {200}
        assert await metric(app, "waiting", "checks") == 0
        assert (await ask(app, "POST", CHECK, KNOWN))[0] == 200

    run(tmp_path, test)
