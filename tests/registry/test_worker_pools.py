"""Work that takes long: it keeps no other request waiting, and too much of it is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import Response
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp

from headworks._registry import worker_pools
from headworks._registry.model.refusals import ServiceError
from headworks._registry.operations import reader, registrar, short_check
from headworks._registry.operations.compatibility_check import check_compatibility
from headworks._registry.operations.registrar import Registrar
from headworks._registry.service.app import create_app
from headworks._registry.store import RegistryStore
from headworks._registry.worker_pools import CHANGES, MAX_WAITING, HandedOver, WorkerPool
from headworks.schema._difference import differences
from tests.registry.in_process import ask
from tests.registry.rest import record, text_of
from tests.waiting import PATIENCE

pytestmark = pytest.mark.unit

KNOWN = {"schema": text_of(record("a:int=0"))}
HANGING = 60
CHECK, REGISTER = "/compatibility/subjects/s/versions", "/subjects/s/versions"
DIFFERENCE = "/subjects/s/diff/1/latest"
Asked = Callable[..., Awaitable[tuple[int, Any]]]


def new(number: int) -> dict[str, str]:
    """A schema that is too long for a check on the event loop."""
    doc = "x" * short_check.MAX_CHARACTERS
    return {"schema": text_of({**record("a:int=0", f"b{number}:int=0"), "doc": doc})}


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fact():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def slow(app: ASGIApp, target: str, requests: int) -> AsyncIterator[list[Any]]:
    """Inside the block, so many comparisons hang, or wait for those that do."""
    ends, begun = threading.Event(), []

    def hanging(work: Callable[..., Any]) -> Callable[..., Any]:
        def hang(*given: Any, **named: Any) -> Any:
            begun.append(given)
            assert ends.wait(2 * PATIENCE)
            return work(*given, **named)

        return hang

    method = "GET" if target == DIFFERENCE else "POST"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registrar, "check_compatibility", hanging(check_compatibility))
        patched.setattr(reader, "differences", hanging(differences))
        tasks = [
            asyncio.create_task(ask(app, method, target, new(number))) for number in range(requests)
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


@pytest.mark.parametrize("target", [CHECK, f"{REGISTER}?dry_run=true", REGISTER, DIFFERENCE])
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
            status, body = await ask(app, "POST", CHECK, new(1), sent)
            assert (status, body["error_code"]) == (503, 503)
            assert "checks" in body["message"]
            assert (b"retry-after", b"1") in sent[0]["headers"]
            assert await metric(app, "busy_refusals_total", "checks") == 1
            dry = await ask(app, "POST", f"{REGISTER}?dry_run=true", new(1))
            assert dry[0] == 503, "it waits for the same threads"
            assert (await ask(app, "POST", CHECK, KNOWN))[1]["is_compatible"], "it needs none"
            assert (await ask(app, "POST", REGISTER, KNOWN))[0] == 200
            assert not any(one.done() for one in tasks)
        assert {(await one)[0] for one in tasks} == {200}
        assert await metric(app, "waiting", "checks") == 0
        assert (await ask(app, "POST", CHECK, KNOWN))[0] == 200

    run(tmp_path, test)


def test_a_registration_is_begun_by_the_thread_of_changes_if_it_is_short_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    find = Registrar.find_registered

    def seen(*given: Any, **named: Any) -> Any:
        begun.append(threading.current_thread().name.split("-")[1])
        return find(*given, **named)

    monkeypatch.setattr(Registrar, "find_registered", seen)
    monkeypatch.setattr(worker_pools, "_PROMPT_SECONDS", PATIENCE)  # on a busy machine, too
    long = {"schema": text_of({**record("a:int"), "doc": "x" * 16_000})}
    uses = {"schema": text_of({"type": "array", "items": "Event"})}
    reference = {"name": "Event", "subject": "s", "version": 1}

    async def test(app: ASGIApp) -> None:
        begun.clear()  # of the first schema of `s`
        other = "/subjects/other/versions"
        for target, body, where in (
            (REGISTER, KNOWN, "changes"),  # which remembers the subject now
            (REGISTER, KNOWN, "lookups"),
            (REGISTER, new(1), "lookups"),
            (other, new(1), "changes"),
            ("/subjects/long/versions", long, "lookups"),
            ("/subjects/r/versions", {**uses, "references": [reference]}, "lookups"),
            ("/subjects/dry/versions?dry_run=true", new(1), "lookups"),
        ):
            assert (await ask(app, "POST", target, body))[0] == 200, target
            assert begun.pop() == where, target

    run(tmp_path, test)


def test_a_registration_that_repeats_one_does_not_wait_for_a_slow_change(tmp_path: Path) -> None:
    other = "/subjects/other/versions"

    async def fill(app: ASGIApp) -> None:
        assert (await ask(app, "POST", other, KNOWN))[0] == 200

    async def test(app: ASGIApp) -> None:  # on a registry that remembers no subject
        async with slow(app, REGISTER, 1) as tasks:
            await asyncio.sleep(2 * worker_pools._PROMPT_SECONDS)
            assert (await ask(app, "POST", other, KNOWN))[0] == 200
            assert not tasks[0].done()

    run(tmp_path, fill)
    run(tmp_path, test)


class _Transactions:
    """What happened in a pool with transactions, in its order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.looked: list[str] = []  # what ran inside of `looking`
        self.fails = ""  # when a transaction fails
        self.pool = WorkerPool(CHANGES, 1, self.together, self.looking)
        self._looks = False

    @contextmanager
    def together(self) -> Iterator[None]:
        for at in ("begin", "end"):
            self.seen.append(at)
            if self.fails == at:
                raise OSError(f"the disk fails at the {at}")
            if at == "begin":
                yield

    @contextmanager
    def looking(self) -> Iterator[None]:
        self._looks = True
        yield
        self._looks = False

    def step(self, name: str, then: Callable[[], Response | HandedOver] = Response) -> Any:
        def work() -> Response | HandedOver:
            self.seen.append(name)
            if self._looks:
                self.looked.append(name)
            return then()

        return work

    async def run(self, *works: tuple[Callable[[], Any], bool]) -> list[Any]:
        """Run them at a time: all wait before the first one begins."""
        held, release = threading.Event(), threading.Event()

        def hold() -> Response:
            held.set()
            assert release.wait(PATIENCE)
            return Response()

        async with asyncio.timeout(PATIENCE):
            holding = asyncio.create_task(self.pool.run(hold, before=True))
            await until(held.is_set)
            tasks = [
                asyncio.create_task(self.pool.run(work, before=before)) for work, before in works
            ]
            await until(lambda: self.pool._unfinished == len(works) + 1)
            release.set()
            await holding
            return await asyncio.gather(*tasks, return_exceptions=True)


def test_work_begins_before_the_transaction_that_its_rest_shares() -> None:
    log = _Transactions()

    def two_steps(number: int) -> Any:
        rest = log.step(f"rest {number}")
        return log.step(f"first {number}", lambda: log.pool.hand_over(rest))

    ends = log.step("ends")
    results = asyncio.run(
        log.run(
            (two_steps(0), True),
            (ends, True),
            (log.step("inside"), False),
            (two_steps(1), True),
        )
    )
    assert [one.status_code for one in results] == [200] * 4
    assert log.seen == ["first 0", "ends", "first 1", "begin", "rest 0", "inside", "rest 1", "end"]
    assert log.looked == ["first 0", "ends", "first 1"]


def test_work_that_ends_before_the_transaction_does_not_fail_with_it() -> None:
    for fails in ("begin", "end"):
        log = _Transactions()
        log.fails = fails
        wrong = log.step("wrong", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        results = asyncio.run(
            log.run((log.step("ends"), True), (log.step("inside"), False), (wrong, False))
        )
        assert results[0].status_code == 200
        assert isinstance(results[1], OSError)
        assert isinstance(results[2], OSError if fails == "begin" else ZeroDivisionError)
        log.fails = ""
        assert asyncio.run(log.run((log.step("later"), False)))[0].status_code == 200


def test_a_transaction_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Transactions()
    monkeypatch.setattr(worker_pools, "_MAX_SECONDS_TOGETHER", 0.0)
    results = asyncio.run(log.run((log.step("one"), False), (log.step("two"), False)))
    assert [one.status_code for one in results] == [200] * 2
    assert log.seen == ["begin", "one", "end", "begin", "two", "end"]


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_thread_that_cannot_start_costs_one_request(
    monkeypatch: pytest.MonkeyPatch, handed_over: bool
) -> None:
    first, pool = WorkerPool("first", 1), WorkerPool("changes", 1)
    start = threading.Thread.start
    refused: list[str] = []

    def start_unless_new(thread: threading.Thread) -> None:
        if thread.name == "registry-changes-0" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    def work() -> Response | HandedOver:
        return pool.hand_over(Response) if handed_over else Response()

    async def test() -> None:
        asked = first if handed_over else pool
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await asked.run(work)
            for _ in range(3):
                assert (await asked.run(work)).status_code == 200
        await until(lambda: not pool._unfinished)

    monkeypatch.setattr(threading.Thread, "start", start_unless_new)
    asyncio.run(test())
    for one in (first, pool):
        one.close()


def test_a_pool_skips_cancelled_work_and_refuses_what_waits_at_its_end() -> None:
    async def test() -> None:
        pool, begun, ends = WorkerPool("changes", 1), threading.Event(), threading.Event()
        done: list[str] = []

        def hang() -> Response:
            begun.set()
            assert ends.wait(2 * PATIENCE)
            return Response()

        def named(name: str) -> Callable[[], Response]:
            return lambda: done.append(name) or Response()  # type: ignore[func-returns-value]

        async with asyncio.timeout(2 * PATIENCE):
            hanging = asyncio.create_task(pool.run(hang))
            await until(begun.is_set)
            cancelled = asyncio.create_task(pool.run(named("cancelled")))
            await until(lambda: pool.waiting == 1)
            cancelled.cancel()
            waiting = asyncio.create_task(pool.run(named("served")))
            await until(lambda: pool.waiting == 2)
            ends.set()
            assert (await hanging).status_code == (await waiting).status_code == 200
            assert done == ["served"]

            begun.clear()
            ends.clear()
            hanging = asyncio.create_task(pool.run(hang))
            await until(begun.is_set)
            waiting = asyncio.create_task(pool.run(named("too late")))
            await until(lambda: pool.waiting == 1)
            closing = asyncio.create_task(asyncio.to_thread(pool.close))
            await until(lambda: pool._closing)
            ends.set()
            await closing
            assert (await hanging).status_code == 200
            with pytest.raises(ServiceError, match="busy"):
                await waiting
            with pytest.raises(ServiceError, match="busy"):
                await pool.run(named("closed"))
        assert done == ["served"]

    asyncio.run(test())
