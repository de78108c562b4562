"""`headworks produce` and `headworks consume`: which messages are written and printed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from headworks._server.child_process import Service
from headworks.registry_client import RegistryClient
from tests.pipeline.conftest import Topic
from tests.pipeline.test_consumer import command
from tests.producer_sdk.events import visit_schema
from tests.waiting import until, within_some_time

pytestmark = pytest.mark.e2e

TIMES = ("2026-05-01T10:00:00+00:00", "2026-05-01T11:00:00+00:00", "2026-05-01T12:00:00+00:00")
Run = Callable[..., Any]


@dataclass(frozen=True)
class Filled:
    """A topic with three messages in partition 1, an hour apart, of which the last has a header."""

    topic: str
    consume: Run
    produce: Run
    broker: Service


@pytest.fixture
def filled(
    topic: Topic,
    broker: Service,
    registry: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Filled:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*arguments: str, stdin: str = "") -> Any:
        return command(*arguments, broker=broker, registry=registry, stdin=stdin)

    def produce(*arguments: str, at: Sequence[str] = TIMES[:1]) -> Any:
        event = {"user": "u", "count": 1, "place": {"city": "Rome"}, "tags": []}
        lines = "".join(json.dumps({**event, "at": one}) + "\n" for one in at)
        return run("produce", topic.name, *arguments, stdin=lines)

    def consume(*arguments: str) -> Any:
        return run("consume", topic.name, "--format", "json", *arguments)

    done = produce("--key", "ada", "--header", "source=import", at=TIMES)
    assert done.returncode == 0, done.stderr
    return Filled(topic.name, consume, produce, broker)


def printed(done: Any) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_time_an_offset_and_a_key_select_messages(filled: Filled) -> None:
    assert filled.produce("--key", "grace").returncode == 0
    every = printed(filled.consume("--max", "4"))
    ada = [one for one in every if one["key"] == "ada"]
    place = ada[0]["partition"]
    assert [one["offset"] for one in ada] == [0, 1, 2] or len({o["partition"] for o in every}) == 1
    late = printed(filled.consume("--from", "2026-05-01T10:30Z", "--key", "ada", "--max", "2"))
    assert [one["event"]["at"] for one in late] == list(TIMES[1:])
    at = ("--partition", str(place), "--offset", str(ada[1]["offset"]))
    assert printed(filled.consume(*at, "--max", "1"))[0]["event"]["at"] == TIMES[1]
    assert printed(filled.consume("--key", "nobody", "--idle", "0.5")) == []


def partition_count(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=60).topics[topic].partitions)


def test_poison_in_another_partition_does_not_end_the_reading_of_one(filled: Filled) -> None:
    admin = AdminClient({"bootstrap.servers": filled.broker.address})
    if partition_count(admin, filled.topic) < 3:  # Apache Kafka made one by itself
        admin.create_partitions([NewPartitions(filled.topic, 3)])[filled.topic].result(60)
        until(lambda: partition_count(admin, filled.topic) == 3)
    place = printed(filled.consume("--max", "1"))[0]["partition"]
    other = (place + 1) % 3
    failed: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": filled.broker.address})
    producer.produce(
        filled.topic,
        b"junk",
        partition=other,
        on_delivery=lambda error, _: failed.extend([] if error is None else [error]),
    )
    assert (producer.flush(60), failed) == (0, [])

    def check(idle: float) -> None:
        here = printed(filled.consume("--partition", str(place), "--idle", str(idle)))
        assert [one["offset"] for one in here] == [0, 1, 2]

    within_some_time(check, 2.0, 10.0, 50.0)  # a busy broker may begin late to send
    done = filled.consume("--partition", str(other), "--max", "1")
    assert (done.returncode, f"partition {other} offset 0" in done.stderr) == (1, True)


def test_headers_and_keys_arrive(filled: Filled) -> None:
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": filled.broker.address,
            "group.id": str(uuid.uuid4()),
            "auto.offset.reset": "earliest",
        }
    )
    try:
        reader.subscribe([filled.topic])
        message = None
        while message is None:
            message = reader.poll(1.0)
        assert message.key() == b"ada"
        assert ("source", b"import") in (message.headers() or [])
    finally:
        reader.close()
    done = printed(filled.consume("--max", "1"))
    assert ["source", "import"] in done[0]["headers"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--offset", "1"), "an offset belongs to a partition"),
        (("--partition", "99"), "has no partition 99"),
        (("--partition", "0", "--offset", "99"), "holds no offset 99"),
        (("--partition", "0", "--group", "g"), "a group reads all partitions"),
        (("--from", "yesterday"), "--from 'yesterday' is none of these"),
    ],
)
def test_a_wrong_selection_is_named(filled: Filled, arguments: tuple[str, ...], said: str) -> None:
    done = filled.consume(*arguments)
    assert (done.returncode, said in done.stderr, "fix: " in done.stderr) == (2, True, True)


def test_a_header_without_a_value_is_named(filled: Filled) -> None:
    done = filled.produce("--header", "source")
    assert (done.returncode, "is no NAME=VALUE" in done.stderr) == (2, True)


def test_a_mistyped_topic_gets_a_suggestion(
    topic: Topic, broker: Service, registry: Service
) -> None:
    name = "quetzalcoatl"  # no topic of another test is like it
    assert command("topic", "create", name, broker=broker, registry=registry).returncode == 0
    RegistryClient(registry.url).register(f"{name}-value", visit_schema(name, 1))
    for verb in (("consume",), ("topic", "describe"), ("produce",)):
        done = command(*verb, "quetzalcotl", broker=broker, registry=registry)
        assert done.returncode == 2
        assert f"did you mean '{name}'?" in done.stderr


def test_an_event_of_a_union_is_printed_as_produce_reads_it(
    broker: Service, registry: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two events with the same fields: only their names tell them apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fields = [{"name": "n", "type": "long"}]
    both = [
        {"type": "record", "name": name, "fields": fields, "headworks": {"topic": "twins"}}
        for name in ("twin.A", "twin.B")
    ]
    RegistryClient(registry.url).register("twins-value", json.dumps(both))
    lines = '{"twin.B": {"n": 1}}\n{"twin.A": {"n": 2}}\n'

    def run(*arguments: str, stdin: str = "") -> Any:
        return command(*arguments, broker=broker, registry=registry, stdin=stdin)

    for count in (2, 4):  # the second time, what was printed is produced again
        done = run("produce", "twins", stdin=lines)
        assert done.returncode == 0, done.stderr
        done = run("consume", "twins", "--max", str(count))
        lines = "".join(line.split("\t")[1] + "\n" for line in done.stdout.splitlines()[:2])
    text = sorted(line.split("\t")[1] for line in done.stdout.splitlines())
    assert text == ['{"twin.A": {"n": 2}}'] * 2 + ['{"twin.B": {"n": 1}}'] * 2
    found = printed(run("consume", "twins", "--max", "4", "--format", "json"))
    assert sorted(next(iter(one["event"])) for one in found) == ["twin.A"] * 2 + ["twin.B"] * 2
