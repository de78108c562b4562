"""The consumer: typed across versions, at least once, never silent about what it cannot read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from consumer_sdk import Consumer, Message, OnPoison, PoisonMessageError
from headworks._server.child_process import Service
from headworks.errors import UsageError
from producer_sdk import Producer
from tests.command_line import run_process
from tests.pipeline.conftest import Topic
from tests.waiting import until

pytestmark = pytest.mark.e2e

Make = Callable[..., Producer]
AT = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
FAST = {"heartbeat.interval.ms": 500}  # so often it is looked whether the group has changed


def read_until(
    reading: Consumer[Any], whole: Callable[[list[Message[Any]]], bool]
) -> list[Message[Any]]:
    """What comes until it is `whole`."""
    found: list[Message[Any]] = []

    def is_whole() -> bool:
        message = reading.poll(0.5)
        found.extend(() if message is None else (message,))
        return whole(found)

    until(is_whole, 120)
    return found


def read(reading: Consumer[Any], count: int) -> list[Message[Any]]:
    return read_until(reading, lambda found: len(found) == count)


def consumer(topic: Topic, broker: Service, registry: Service, **options: Any) -> Consumer[Any]:
    options = {"events": [topic.v2.Click], "group": f"g-{topic.name}", "config": FAST, **options}
    return Consumer(bootstrap=broker.address, registry=registry.url, **options)


def test_old_events_come_as_the_new_class_with_its_defaults(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        running.send(topic.v1.Click(user="old", at=AT, count=7), headers={"trace": b"1"})
        new = topic.v2.Click(user="new", at=AT, count=2**40, tags=["x"])
        running.send(new, key=b"chosen")
    with consumer(topic, broker, registry) as reading:
        by_user = {m.event.user: m for m in read(reading, 2)}
    old = by_user["old"]
    assert old.event == topic.v2.Click(user="old", at=AT, count=7)
    assert old.event.place.city == "nowhere"
    assert (old.key, old.headers) == (b"old", (("trace", b"1"),))
    assert old.timestamp == int(AT.timestamp() * 1000)
    assert by_user["new"].event == new
    assert by_user["new"].key == b"chosen"
    assert by_user["new"].schema_id != old.schema_id


def test_new_events_come_as_the_old_class_where_avro_allows(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        running.send(topic.v1.Click(user="a", at=AT, count=1))
    with consumer(topic, broker, registry, events=[topic.v1.Click]) as reading:
        (message,) = read(reading, 1)
    assert message.event == topic.v1.Click(user="a", at=AT, count=1)


def test_without_classes_events_are_dicts(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        running.send(topic.v1.Click(user="a", at=AT, count=1))
    with consumer(topic, broker, registry, events=(), topics=[topic.name]) as reading:
        (message,) = read(reading, 1)
    assert message.event == {"user": "a", "at": AT, "count": 1}


def test_what_was_not_processed_comes_again(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        for n in range(5):
            running.send(topic.v1.Click(user="same", at=AT, count=n))
    seen: list[int] = []

    def work() -> None:
        with consumer(topic, broker, registry) as reading:
            for message in reading:
                if message.event.count == 3:
                    raise RuntimeError("the application failed on this one")
                seen.append(message.event.count)

    with pytest.raises(RuntimeError):
        work()
    with consumer(topic, broker, registry) as again:
        rest = [m.event.count for m in read(again, 2)]
    assert (seen, rest) == ([0, 1, 2], [3, 4])


def test_explicit_commits_only(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        for n in range(4):
            running.send(topic.v1.Click(user="same", at=AT, count=n))
    with consumer(topic, broker, registry, commit_every=None) as reading:
        read(reading, 2)
        reading.commit()
        read(reading, 1)
    with consumer(topic, broker, registry, commit_every=None) as again:
        assert [m.event.count for m in read(again, 2)] == [2, 3]


NOT_OURS = (b"not framed", b"\x00\x00\x00\x00\x01\xff")
NO_SUCH_SCHEMA = b"\x00\x7f\x00\x00\x00x"


def poison(topic: Topic, broker: Service, values: Sequence[bytes] = NOT_OURS) -> None:
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for value in values:
        plain.produce(topic.name, value, partition=0)
    assert plain.flush(60) == 0


def test_poison_stops_with_its_place_or_is_skipped_and_counted(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    poison(topic, broker, [*NOT_OURS, NO_SUCH_SCHEMA])
    with producer() as running:
        running.send(topic.v1.Click(user="good", at=AT, count=1))
    place = rf"{topic.name} partition 0 offset 0"
    stopping = consumer(topic, broker, registry)
    with stopping, pytest.raises(PoisonMessageError, match=place):
        read(stopping, 4)
    with consumer(topic, broker, registry, group="skips", on_poison=OnPoison.SKIP) as skipping:
        messages = read_until(skipping, lambda found: bool(found) and skipping.skipped == 3)
    found = [message.event.user for message in messages]
    assert (found, skipping.skipped) == (["good"], 3)


def test_it_reads_either_classes_or_topics(topic: Topic) -> None:
    with pytest.raises(UsageError, match="either"):
        Consumer[Any](group="g")


def command(
    *arguments: str, broker: Service, registry: Service, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    env = {"HEADWORKS_BOOTSTRAP": broker.address, "HEADWORKS_REGISTRY": registry.url}
    return run_process(*arguments, stdin=stdin, env=env)


def test_produce_and_consume_on_the_command_line(
    topic: Topic, broker: Service, registry: Service, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    line = {"user": "u", "at": "2026-05-01T12:30:00+00:00", "count": 1, "place": {"city": "Rome"}}
    lines = json.dumps({**line, "tags": []}) + "\n"
    sent = command(
        "produce", topic.name, "--format", "json", broker=broker, registry=registry, stdin=lines
    )
    assert sent.returncode == 0, sent.stderr
    told = json.loads(sent.stdout)
    assert (told["topic"], told["sent"], told["version"]) == (topic.name, 1, 2)
    got = command(
        "consume", topic.name, "--max", "1", "--format", "json", broker=broker, registry=registry
    )
    assert got.returncode == 0, got.stderr
    answer = json.loads(got.stdout)
    assert answer["event"] == {**line, "tags": []}
    assert (answer["key"], answer["timestamp"]) == ("u", int(AT.timestamp() * 1000))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1 is not JSON"),
        ("[" * 5_000, "line 1 is nested too deeply"),
        ('{"user": "u"}', "line 1: the event does not fit the schema"),
        ('{"usr": "u"}', "has no field 'usr'"),
    ],
)
def test_a_wrong_line_is_named(
    topic: Topic, broker: Service, registry: Service, line: str, says: str
) -> None:
    done = command("produce", topic.name, broker=broker, registry=registry, stdin=line + "\n")
    assert done.returncode == 1, "bad data is no wrong usage"
    assert says in done.stderr


def test_a_topic_that_is_not_there_is_named(broker: Service, registry: Service) -> None:
    done = command("consume", "no-such-topic", broker=broker, registry=registry)
    assert done.returncode == 2
    assert "there is no topic 'no-such-topic'" in done.stderr


def test_topics_on_the_command_line(broker: Service, registry: Service) -> None:
    name = "made-by-hand"
    run = partial(command, broker=broker, registry=registry)
    assert run("topic", "create", name, "--partitions", "3").returncode == 0
    new = {"topic": name, "partitions": 3, "messages": 0}
    # Apache Kafka tells its brokers of a change after it has answered.
    until(lambda: new in json.loads(run("topic", "list", "--format", "json").stdout))
    shown = json.loads(run("topic", "describe", name, "--format", "json").stdout)
    assert [row["messages"] for row in shown["partitions"]] == [0, 0, 0]
    again = run("topic", "create", name)
    assert again.returncode == 4
    assert "refused to create made-by-hand" in again.stderr
    assert run("topic", "delete", name, "--yes").returncode == 0
    until(lambda: name not in run("topic", "list").stdout)
    gone = run("topic", "delete", name)
    assert gone.returncode == 2
    assert f"there is no topic '{name}'" in gone.stderr
    assert "delete made-by-hand and all" not in gone.stderr, "it must look before it asks"


def test_a_topic_is_created_with_its_configs(broker: Service, registry: Service) -> None:
    run = partial(command, "topic", "create", "kept", broker=broker, registry=registry)
    no_pair = run("--config", "compact")
    assert (no_pair.returncode, "is no NAME=VALUE" in no_pair.stderr) == (2, True)
    unknown = run("--config", "no.such.config=1")
    assert (unknown.returncode, "no.such.config" in unknown.stderr) == (4, True)
    assert run("--config", "cleanup.policy=compact", "--config", "retention.ms=-1").returncode == 0
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    admin = AdminClient({"bootstrap.servers": broker.address})
    until(lambda: "kept" in admin.list_topics(timeout=30).topics)
    found = admin.describe_configs([resource])[resource].result(30)
    assert found["cleanup.policy"].value == "compact"
    assert found["retention.ms"].value == "-1"


def test_a_topic_is_altered(broker: Service, registry: Service) -> None:
    run = partial(command, broker=broker, registry=registry)

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            run("topic", "describe", name, "--format", "json").stdout
        )
        return {"partitions": len(found["partitions"]), "configs": found["configs"]}

    name = "altered"
    alter = partial(run, "topic", "alter", name)
    missing = alter("--config", "retention.ms=1000")
    assert (missing.returncode, f"no topic '{name}'" in missing.stderr) == (2, True)
    assert run("topic", "create", name, "--partitions", "2").returncode == 0
    until(lambda: shown() == {"partitions": 2, "configs": {}})
    done = alter("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete")
    assert done.stderr == (
        "altered altered: retention.ms is 3600000, cleanup.policy is compact,delete\n"
    )
    both = {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}
    until(lambda: shown() == {"partitions": 2, "configs": both})
    assert "setting: retention.ms=3600000\n" in run("topic", "describe", name).stderr
    refused = alter("--config", "flush.ms=50", "--config", "retention.ms=soon", "--partitions", "3")
    assert (refused.returncode, "retention.ms" in refused.stderr) == (4, True)
    assert shown() == {"partitions": 2, "configs": both}, "all changes or none"
    done = alter("--default", "cleanup.policy", "--config", "flush.ms=50", "--partitions", "3")
    assert done.returncode == 0, done.stderr
    expected = {"flush.ms": "50", "retention.ms": "3600000"}
    until(lambda: shown() == {"partitions": 3, "configs": expected})
    fewer = alter("--partitions", "1")
    assert (fewer.returncode, "partitions" in fewer.stderr) == (4, True)
