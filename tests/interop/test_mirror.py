"""The mirror with Apache Kafka on one side and our broker on the other: it sees no difference."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from headworks._server import child_process
from tests.interop import apache_kafka
from tests.mirror.messages import Sent, content, copied, create, produce, wait_for
from tests.soak.mirror import committed, end_offsets, read_all

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]
_numbers = itertools.count()
COUNT = 30_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    with apache_kafka.start(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(params=["from Kafka", "into Kafka"])
def sides(
    request: pytest.FixtureRequest, kafka: child_process.Service, broker: child_process.Service
) -> tuple[str, str]:
    """Source and target."""
    ends = (kafka.address, broker.address)
    return ends if request.param == "from Kafka" else ends[::-1]


def mirror(sides: tuple[str, str], prefix: str, folder: Path) -> child_process.Service:
    ends = ["--from", sides[0], "--to", sides[1], "--topics", rf"{prefix}\..*", "--name", prefix]
    each = ["--commit-every", "0.3", "--refresh-every", "0.5", "--data-dir", str(folder)]
    return child_process.start(
        ["mirror", *ends, *each, "--no-audit"], log_file=folder / "mirror.log"
    )


def test_everything_arrives_as_it_was_though_the_mirror_is_killed(
    sides: tuple[str, str], tmp_path: Path
) -> None:
    source, target = sides
    prefix = f"kill{next(_numbers)}"
    topic = f"{prefix}.all"
    create(source, topic, 3, segment_bytes="2000000")
    produce(source, topic, samples(COUNT), **{"compression.type": "lz4"})
    running = mirror(sides, prefix, tmp_path)
    wait_for(lambda: sum(end_offsets(target, topic).values()) > 0, "the first messages")
    os.kill(running.process.pid, signal.SIGKILL)
    running.stop()
    running = mirror(sides, prefix, tmp_path)
    try:
        group = f"headworks-mirror-{prefix}"
        wait_for(
            lambda: sum(committed(source, group, topic, 3).values()) == COUNT, "the last commit"
        )
        for index in range(3):
            assert firsts(read_all(target, topic, index)) == [
                content(m) for m in read_all(source, topic, index)
            ]
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = AdminClient({"bootstrap.servers": target})
        configs = admin.describe_configs([resource])[resource].result(20)
        assert (configs["segment.bytes"].value, configs["retention.ms"].value) == ("2000000", "-1")

        late = f"{prefix}.later"
        create(source, late, 1)
        produce(source, late, [Sent(0, None, b"late")])
        assert copied(target, late, 0, 1)[0].value() == b"late"
        one, other = (AdminClient({"bootstrap.servers": address}) for address in sides)
        one.create_partitions([NewPartitions(late, 4)])[late].result(20)
        wait_for(lambda: len(other.list_topics(late, timeout=20).topics[late].partitions) == 4)
        produce(source, late, [Sent(3, None, b"grown")])
        assert copied(target, late, 3, 1)[0].value() == b"grown"
    finally:
        code = running.stop()
    assert code == 0, (tmp_path / "mirror.log").read_text()


def samples(count: int) -> Iterator[Sent]:
    """Numbered in their value; with and without key and headers."""
    for n in range(count):
        headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None), ("", b"")]
        key = (None, b"", b"key-%d" % (n % 11))[n // 3 % 3]
        yield Sent(n % 3, key, b"%d" % n, 1_700_000_000_000 - n, headers if n % 2 else None)


def firsts(messages: list[Message]) -> list[tuple[object, ...]]:
    """In the order of their first appearance."""
    seen: dict[bytes | None, tuple[object, ...]] = {}
    for message in messages:
        seen.setdefault(message.value(), content(message))
    return list(seen.values())
