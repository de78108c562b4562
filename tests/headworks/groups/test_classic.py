"""Groups of a broker, looked at and moved through the commands, on a real broker."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from headworks._cli.group import group_app
from headworks._server import child_process
from headworks.errors import HeadworksError
from headworks.groups import Groups, TopicPartition
from headworks.groups._log_ends import TimestampLookup
from headworks.groups._model import PartitionOffset
from headworks.groups._moving import load_offsets

pytestmark = pytest.mark.e2e

HOUR = 3_600_000


@pytest.fixture(scope="module")
def topic(broker: child_process.Service) -> str:
    """A topic of two partitions with 100 messages each, one a minute, the last one now."""
    name = f"groups-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
        future.result()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    now = int(time.time() * 1000)
    for number in range(100):
        for partition in (0, 1):
            at = now - (99 - number) * 60_000
            producer.produce(name, b"m%d" % number, partition=partition, timestamp=at)
    assert producer.flush(60) == 0
    return name


def run(broker: child_process.Service, *arguments: str, ok: int = 0) -> tuple[Any, str]:
    """What a command printed (JSON), or (`ok` is an exit code) the error it ended with."""
    done = CliRunner().invoke(group_app, [*arguments, "--bootstrap", broker.address])
    if ok:
        assert isinstance(done.exception, HeadworksError), done.output
        assert done.exception.exit_code == ok
        return None, str(done.exception)
    assert done.exception is None, done.output
    return (json.loads(done.stdout) if done.stdout else None), done.stderr


def test_a_group_is_moved_shown_exported_deleted_and_imported(
    broker: child_process.Service, topic: str, tmp_path: Path
) -> None:
    name = f"billing-{topic}"
    moved, _ = run(
        broker, "reset", name, "--to", "40", "--topic", topic, "--format", "json", "--dry-run"
    )
    assert not moved[0]["done"]
    with Groups(broker.address) as groups:
        assert name not in {group.name for group in groups.listed()}
    run(broker, "reset", name, "--to", "40", "--topic", topic, "--format", "json")
    run(broker, "reset", name, "--shift", "-10", "--topic", f"{topic}:1", "--format", "json")
    shown, _ = run(broker, "describe", name, "--format", "json")
    assert [p["committed"] for p in shown["positions"]] == [40, 30]
    assert [p["lag"] for p in shown["positions"]] == [60, 70]
    assert shown["lag"] == 130
    age = shown["positions"][1]["behind_ms"]
    assert 69 * 60_000 <= age < 69 * 60_000 + HOUR  # message 30 is 69 minutes old
    assert shown["behind_ms"] == age

    file = tmp_path / "offsets.json"
    run(broker, "offsets-export", name, "--out", str(file))
    assert load_offsets(file.read_text(), "f")[0].offsets == {
        TopicPartition(topic, 0): 40,
        TopicPartition(topic, 1): 30,
    }
    run(broker, "delete", name, "--yes")
    run(broker, "describe", name, ok=2)
    moved, _ = run(broker, "offsets-import", str(file), "--format", "json")
    assert [(m["before"], m["after"]) for m in moved[0]["moves"]] == [(None, 40), (None, 30)]
    with Groups(broker.address) as groups:
        assert groups.described([name])[0].offsets == {
            TopicPartition(topic, 0): 40,
            TopicPartition(topic, 1): 30,
        }


def test_what_a_group_never_read_is_not_hidden(broker: child_process.Service, topic: str) -> None:
    """Nobody is in it, and in one partition of its topic it has never been."""
    name, fresh = f"half-{topic}", f"fresh-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(fresh, 2, 1)])[fresh].result()
    run(broker, "reset", name, "--to", "90", "--topic", f"{topic}:0", "--format", "json")
    run(broker, "reset", name, "--to", "0", "--topic", f"{fresh}:0", "--format", "json")
    shown, _ = run(broker, "describe", name, "--format", "json")
    seen = [(p["topic"], p["partition"], p["committed"], p["lag"]) for p in shown["positions"]]
    assert seen == [
        (fresh, 0, 0, 0),
        (fresh, 1, None, 0),
        (topic, 0, 90, 10),
        (topic, 1, None, None),
    ]
    assert (shown["lag"], shown["unknown"]) == (10, 1)
    moved, _ = run(broker, "reset", name, "--to", "earliest", "--format", "json")
    assert [(m["topic"], m["partition"]) for m in moved[0]["moves"]] == [(fresh, 0), (topic, 0)]


def test_resets_by_time_and_to_the_ends(broker: child_process.Service, topic: str) -> None:
    name = f"ends-{topic}"
    hour_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    for to, expected in (
        ("latest", [100, 100]),
        ("earliest", [0, 0]),
        ("5000", [100, 100]),
        ("2099-01-01T00:00:00Z", [100, 100]),
        ("1969-12-31T23:59:59.999Z", [0, 0]),
    ):
        moved, _ = run(broker, "reset", name, "--to", to, "--topic", topic, "--format", "json")
        assert [m["after"] for m in moved[0]["moves"]] == expected, to
    moved, _ = run(broker, "reset", name, "--to", hour_ago, "--format", "json")
    with Groups(broker.address) as groups:
        position = groups.described([name])[0].positions[0]
    assert position.behind_ms is not None
    assert position.behind_ms <= HOUR + 5 * 60_000
    assert 35 <= moved[0]["moves"][0]["after"] <= 41


def test_a_group_that_somebody_is_in_stays_where_it_is(
    broker: child_process.Service, topic: str
) -> None:
    name = f"busy-{topic}"
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        got = 0
        while got < 200:
            got += len(consumer.consume(200 - got, 1.0))
        consumer.commit(asynchronous=False)
        for command in (("reset", name, "--to", "earliest"), ("delete", name, "--yes")):
            _, said = run(broker, *command, ok=4)
            assert "it cannot change while it has members" in said
        with Groups(broker.address) as groups:
            group = groups.described([name])[0]
        assert group.active
        assert (group.lag, group.behind_ms) == (0, 0)
        assert {p.owner for p in group.positions} == {group.members[0].name}
        run(broker, "describe", name, "--verify", "--format", "json")
    finally:
        consumer.close()
    _, said = run(broker, "describe", name, "--verify", "--format", "json", ok=1)
    assert "no owner" in said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("reset", "g"), "either --to a place, or by a --shift"),
        (("reset", "g", "--to", "tomorrow", "--topic", "t"), "is none of these"),
        (("reset", "g", "--to", "2026-05-01T12:00:00", "--topic", "t"), "has no time zone"),
        (("reset", "nobody", "--to", "earliest"), "has no committed offsets"),
        (("reset", "g", "--to", "earliest", "--topic", "no-such-topic"), "no topic"),
        (("reset", "g", "--to", "earliest", "--topic", "t:x"), "not a list of partitions"),
        (("describe", "nobody"), "no group 'nobody'"),
        (("offsets-import", "/dev/null"), "not a file of exported offsets"),
        (("list", "--zookeeper", "127.0.0.1:zk"), "is not HOST:PORT"),
    ],
)
def test_wrong_input_is_named(
    broker: child_process.Service, command: tuple[str, ...], said: str
) -> None:
    assert said in run(broker, *command, ok=2)[1]


def test_the_times_of_many_offsets_are_read_and_remembered(
    broker: child_process.Service, topic: str
) -> None:
    spots = [
        PartitionOffset(topic, partition, offset)
        for partition in (0, 1)
        for offset in range(0, 100, 7)
    ]
    timestamps = TimestampLookup(broker.address)
    try:
        found = timestamps.of([*spots, PartitionOffset(topic, 0, 100)], timeout=60)
        assert found.keys() == set(spots)  # there is no message at 100
        steps = {
            found[PartitionOffset(topic, 0, n + 7)] - found[PartitionOffset(topic, 0, n)]
            for n in range(0, 92, 7)
        }
        assert steps == {7 * 60_000}
        assert timestamps.of(spots, timeout=0) == found
    finally:
        timestamps.close()
