"""Checks on the event loop: short ones, with the verdict that a thread would give, and as new."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import Any

import pytest

from headworks._registry.model.refusals import ServiceError
from headworks._registry.operations import compatibility_check
from headworks._registry.operations.registrar import ProposedSchema, Registrar
from headworks._registry.operations.settings import SubjectSettings
from headworks._registry.operations.short_check import MAX_CHARACTERS
from headworks._registry.service.app import create_app
from headworks._registry.shared_revision import SharedRevision
from headworks._registry.store import RegistryStore
from headworks.compatibility import Level, Policy, check_level
from tests.headworks.compatibility.generate import random_pair
from tests.registry.in_process import ask, registrar
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.unit

CHECK, REGISTER = "/compatibility/subjects/s/versions", "/subjects/s/versions"
FIRST, WIDER, BROKEN = (
    text_of(record(*fields)) for fields in (("a:int",), ("a:int", "b:int=0"), ("a:int", "b:int"))
)


def answered(check: Any) -> object:
    try:
        return check()
    except ServiceError as error:
        return error.status, error.code, error.message


def remember(one: Registrar, subject: str) -> None:
    """Ask twice for what is remembered from the second time on."""
    for _ in range(2):
        answered(lambda: one.check(subject, ProposedSchema(FIRST), None))


def test_its_answer_is_that_of_a_thread(stores: tuple[RegistryStore, RegistryStore]) -> None:
    store, chance, told = stores[0], random.Random(7), 0
    asked, settings = registrar(store), SubjectSettings(store)
    for number in range(300):
        new, old = map(json.dumps, random_pair(chance))
        subject = f"s{number}"
        level, policy = chance.choice(list(Level)), chance.choice(list(Policy))
        settings.change_config(subject, {"compatibility": level, "policy": policy}, who="t")
        first = answered(lambda s=subject, t=old: asked.register(s, ProposedSchema(t), who="t"))
        remember(asked, subject)
        for version in (None, "latest"):
            there = answered(
                lambda s=subject, t=new, v=version: asked.check(s, ProposedSchema(t), v)
            )
            revision = store.revision()
            here = answered(
                lambda s=subject, t=new, v=version, r=revision: asked.check_from_memory(s, t, v, r)
            )
            assert here in (there, None), (new, old, level, policy)
            assert here is not None or isinstance(first, tuple)  # its first version was refused
            told += here is not None
    assert told > 400


def test_names_that_the_latest_version_reserves_count(
    stores: tuple[RegistryStore, RegistryStore],
) -> None:
    asked, metadata = registrar(stores[0]), {"properties": {"confluent:reserved": "b"}}
    SubjectSettings(stores[0]).change_config("s", {"validateFields": True}, who="t")
    asked.register("s", ProposedSchema(FIRST, metadata=metadata), who="t")
    remember(asked, "s")
    for text, expected in ((FIRST, True), (WIDER, False)):
        found = asked.check_from_memory("s", text, None, stores[0].revision())
        assert found == asked.check("s", ProposedSchema(text), None)
        assert found is not None
        assert found.is_compatible == expected


def test_every_change_is_seen(stores: tuple[RegistryStore, RegistryStore]) -> None:
    here, there = create_app(stores[0]), registrar(stores[1])
    settings = SubjectSettings(stores[1])

    async def check(text: str) -> bool:
        found = [await ask(here, "POST", CHECK, {"schema": text}) for _ in range(3)]
        assert [status for status, _ in found] == [200, 200, 200]
        (verdict,) = {body["is_compatible"] for _, body in found}
        return bool(verdict)

    async def test() -> None:
        assert (await ask(here, "POST", REGISTER, {"schema": FIRST}))[0] == 200
        assert not await check(BROKEN)
        settings.change_config("s", {"compatibility": "NONE"}, who="t")
        assert await check(BROKEN)
        there.register("s", ProposedSchema(BROKEN), who="t")
        settings.change_config("s", {"compatibility": "FORWARD"}, who="t")
        assert not await check(FIRST)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"schema": WIDER}, "MainThread"),
        ({"schema": WIDER, "schemaType": "AVRO"}, "MainThread"),
        ({"schema": text_of(record("a:int", doc="x" * MAX_CHARACTERS))}, "registry-checks-0"),
        ({"schema": WIDER, "metadata": {"properties": {"a": "b"}}}, "registry-checks-0"),
        ({"schema": WIDER, "references": []}, "registry-checks-0"),
    ],
)
def test_only_short_texts_are_compared_on_the_event_loop(
    stores: tuple[RegistryStore, RegistryStore],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    where: str,
) -> None:
    begun: list[str] = []

    def seen(*arguments: Any, **named: Any) -> Any:
        begun.append(threading.current_thread().name)
        return check_level(*arguments, **named)

    monkeypatch.setattr(compatibility_check, "check_level", seen)

    async def test() -> None:
        app = create_app(stores[0])
        assert (await ask(app, "POST", REGISTER, {"schema": FIRST}))[0] == 200
        for number in (1, 2):
            body = {"schema": text_of(record("a:int", f"c{number}:int=0"))}
            assert (await ask(app, "POST", CHECK, body))[1]["is_compatible"]
        begun.clear()
        assert (await ask(app, "POST", CHECK, given))[1]["is_compatible"]

    asyncio.run(test())
    assert begun == [where]


def test_what_memory_cannot_answer_asks_for_no_revision(
    stores: tuple[RegistryStore, RegistryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []

    async def now(_shared: SharedRevision) -> None:
        asked.append(None)

    monkeypatch.setattr(SharedRevision, "now", now)

    async def test() -> None:
        app = create_app(stores[0])
        for text in (FIRST, WIDER):
            assert (await ask(app, "POST", REGISTER, {"schema": text}))[0] == 200
        for target, times in ((CHECK, 0), (f"{CHECK}/1", 0), (f"{CHECK}/latest", 1)):
            for _ in range(2):
                await ask(app, "POST", target, {"schema": FIRST})
            asked.clear()
            assert (await ask(app, "POST", target, {"schema": FIRST}))[0] == 200
            assert len(asked) == times, target

    asyncio.run(test())


def test_a_text_whose_comparison_may_take_long_is_left_to_a_thread(
    stores: tuple[RegistryStore, RegistryStore],
) -> None:
    asked = registrar(stores[0])
    union = [record("a:int", name=f"R{number}") for number in range(60)]
    wide = text_of({**record(), "fields": [{"name": "f", "type": union}]})
    assert len(wide) < MAX_CHARACTERS
    asked.register("wide", ProposedSchema(wide), who="t")
    long = text_of(record("a:int", doc="x" * MAX_CHARACTERS))
    asked.register("long", ProposedSchema(long), who="t")
    SubjectSettings(stores[0]).change_config(
        "all", {"compatibility": "BACKWARD_TRANSITIVE"}, who="t"
    )
    for text in (FIRST, WIDER):
        asked.register("all", ProposedSchema(text), who="t")
    for subject, text in (("wide", text_of({**json.loads(wide), "doc": ""})), ("long", WIDER)):
        remember(asked, subject)
        assert asked.check_from_memory(subject, text, None, stores[0].revision()) is None
    remember(asked, "all")
    revision = stores[0].revision()
    assert asked.check_from_memory("all", FIRST, None, revision) is None  # of two versions
    assert asked.check_from_memory("all", FIRST, "latest", revision) is not None
    assert asked.check_from_memory("all", FIRST, 1, revision) is None
    assert asked.check_from_memory("all", FIRST, "latest", revision - 1) is None
