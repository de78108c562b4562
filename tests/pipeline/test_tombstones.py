"""Tombstones: sent, spilled, read as `Deleted`, and shown by the commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer, Consumers, Deleted, Message, PoisonMessageError
from headworks._server.child_process import Service
from headworks.errors import UsageError
from producer_sdk import Producer
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill_file import _unpack, record_of
from tests.pipeline.conftest import Topic
from tests.pipeline.test_consumer import AT, command, read

pytestmark = pytest.mark.e2e

Make = Callable[..., Producer]
EVE = {
    "user": "eve",
    "at": "2026-05-01T12:30:00+00:00",
    "count": 3,
    "place": {"city": "Rome"},
    "tags": [],
}


@pytest.fixture
def filled(producer: Make, topic: Topic) -> Topic:
    with producer() as running:
        running.send(topic.v1.Click(user="ada", at=AT, count=1))
        assert running.flush(60) == 0
        assert running.delete(topic.v1.Click, "ada")
    assert running.totals.delivered == 2
    return topic


def reading(topic: Topic, broker: Service, registry: Service, **options: Any) -> Consumer[Any]:
    options = {"group": f"g-{topic.name}", "tombstones": True, **options}
    return Consumer([topic.v1.Click], bootstrap=broker.address, registry=registry.url, **options)


def test_a_tombstone_is_read_as_deleted(filled: Topic, broker: Service, registry: Service) -> None:
    with reading(filled, broker, registry) as consumer:
        event, tombstone = read(consumer, 2)
    assert event.event.user == "ada"
    assert tombstone.event == Deleted(filled.v1.Click, b"ada")
    assert (tombstone.key, tombstone.schema_id, tombstone.schema_version) == (b"ada", 0, None)
    assert tombstone.partition == event.partition, "the key decides"


def test_who_did_not_ask_for_tombstones_stops_with_the_fix(
    filled: Topic, broker: Service, registry: Service
) -> None:
    with reading(filled, broker, registry, tombstones=False) as consumer:
        read(consumer, 1)
        with pytest.raises(PoisonMessageError, match="it is a tombstone") as found:
            read(consumer, 1)
    assert found.value.fix is not None
    assert "tombstones=True" in found.value.fix


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_of_deleted_gets_the_tombstones(
    filled: Topic, broker: Service, registry: Service, concurrency: int, is_async: bool
) -> None:
    group = f"app-{filled.name}"
    app = Consumers(group=group, bootstrap=broker.address, registry=registry.url)
    seen: list[object] = []

    def click(message: Message[Any]) -> None:
        seen.append(message.event.user)

    def deleted(message: Message[Any]) -> None:
        seen.append(message.event)
        app.stop()

    async def deleted_async(message: Message[Any]) -> None:
        deleted(message)

    app.on(filled.v1.Click, concurrency=concurrency)(click)
    of_clicks: Any = Deleted
    app.on(of_clicks[filled.v1.Click], concurrency=concurrency)(
        deleted_async if is_async else deleted
    )
    app.run()
    assert sorted(seen, key=str) == sorted(["ada", Deleted(filled.v1.Click, b"ada")], key=str)
    assert app.totals["consumed"] == 2


def test_without_a_handler_of_deleted_a_tombstone_stops_with_the_fix(
    filled: Topic, broker: Service, registry: Service
) -> None:
    app = Consumers(group=f"no-{filled.name}", bootstrap=broker.address, registry=registry.url)
    app.on(filled.v1.Click)(lambda message: None)
    with pytest.raises(PoisonMessageError, match="it is a tombstone") as found:
        app.run()
    assert "a handler of Deleted[EventClass]" in (found.value.fix or "")


def test_wrong_handlers_of_deleted_are_refused(topic: Topic, broker: Service) -> None:
    with pytest.raises(UsageError, match="no option 'tombstones'") as found:
        Consumers(group="g", tombstones=True)  # type: ignore[call-arg]
    assert "Deleted[EventClass]" in (found.value.fix or "")
    app = Consumers(group="g", bootstrap=broker.address, registry="http://127.0.0.1:1")
    deleted: Any = Deleted
    app.on(deleted[topic.v1.Click])(lambda message: None)
    with pytest.raises(UsageError, match=r"Deleted\[Click\] has a handler already"):
        app.on(deleted[topic.v1.Click])(lambda message: None)
    with pytest.raises(UsageError, match=r"a handler of Deleted\[Click\], and none of Click"):
        app.run()
    with pytest.raises(TypeError, match="dict is not a class"):
        app.on(deleted[dict])(lambda message: None)


def test_without_classes_it_is_a_deleted_dict(
    filled: Topic, broker: Service, registry: Service
) -> None:
    with Consumer(
        topics=[filled.name],
        group=f"dicts-{filled.name}",
        bootstrap=broker.address,
        registry=registry.url,
        tombstones=True,
    ) as consumer:
        assert read(consumer, 2)[1].event == Deleted(dict, b"ada")


def test_a_tombstone_needs_a_key(producer: Make, topic: Topic) -> None:
    with producer() as running, pytest.raises(UsageError, match="key is of type NoneType"):
        running.delete(topic.v1.Click, None)  # type: ignore[arg-type]


def test_the_commands_send_and_show_tombstones(
    filled: Topic, broker: Service, registry: Service
) -> None:
    sent = command(
        *("produce", filled.name, "--key", "bob", "--header", "origin=test"),
        broker=broker,
        registry=registry,
        stdin=f"null\n{json.dumps(EVE)}\n",
    )
    assert sent.returncode == 0, sent.stderr
    shown = command(
        *("consume", filled.name, "--max", "4", "--format", "json"),
        broker=broker,
        registry=registry,
    )
    assert shown.returncode == 0, shown.stderr
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    events = {(line["key"], line["event"] and line["event"]["user"]) for line in lines}
    assert events == {("ada", "ada"), ("ada", None), ("bob", None), ("bob", "eve")}


def test_a_tombstone_without_a_key_is_refused(
    filled: Topic, broker: Service, registry: Service
) -> None:
    done = command("produce", filled.name, broker=broker, registry=registry, stdin="null\n")
    assert done.returncode == 2
    assert "line 1: a tombstone deletes a key" in done.stderr
    assert "--key" in done.stderr


def test_a_spill_keeps_what_has_no_value(tmp_path: Path) -> None:
    message = OutgoingMessage("clicks", None, b"ada", 5, {"origin": b"test"})
    assert _unpack(record_of(message)[8:]) == message
