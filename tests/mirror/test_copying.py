"""Copying: the same messages, in their partitions, from one source or several."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from headworks._server import child_process
from headworks.errors import UnreachableError, UsageError
from tests.mirror.conftest import Clusters
from tests.mirror.messages import SECONDS, Sent, content, copied, create, produce, wait_for
from tests.soak.mirror import end_offsets, read_all

pytestmark = pytest.mark.e2e

Mirror = Callable[..., child_process.Service]


def samples(count: int) -> list[Sent]:
    """Messages with and without key, value and headers, over three partitions."""
    return [
        Sent(
            n % 3,
            (None, b"", b"key-%d" % (n % 11))[n // 3 % 3],
            (None, b"", b"value-%d" % n)[n // 9 % 3],
            1_700_000_000_000 - n * 1000,
            (None, [("a", b"1"), ("a", None), ("", b"")])[n % 2],
        )
        for n in range(count)
    ]


def test_messages_arrive_as_they_were(clusters: Clusters, mirror: Mirror, prefix: str) -> None:
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "all"
    create(source, topic, 3, segment_bytes="2000000")
    produce(source, topic, samples(3000), **{"compression.type": "gzip"})
    running = mirror(
        "--from", source, "--to", target, "--topics", f"{prefix}.*", "--no-audit",
        metrics="127.0.0.1:0", name=prefix + "x",
    )  # fmt: skip
    for index in range(3):
        ours = copied(target, topic, index, 1000)
        assert [content(m) for m in ours] == [content(m) for m in read_all(source, topic, index)]
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": target})
    configs = admin.describe_configs([resource])[resource].result(SECONDS)
    assert (configs["segment.bytes"].value, configs["retention.ms"].value) == ("2000000", "-1")

    create(source, prefix + "new", 2)  # a topic that comes later
    produce(source, prefix + "new", [Sent(1, None, b"late")])
    assert copied(target, prefix + "new", 1, 1)[0].value() == b"late"
    grown = AdminClient({"bootstrap.servers": source})
    grown.create_partitions([NewPartitions(prefix + "new", 4)])[prefix + "new"].result(SECONDS)
    produce(source, prefix + "new", [Sent(3, None, b"grown")])
    assert copied(target, prefix + "new", 3, 1)[0].value() == b"grown"

    labels = f'{{source="{source}",topic="{topic}"}}'
    wait_for(
        lambda: f"headworks_mirror_messages_total{labels} 3000.0" in page(running), "the counts"
    )
    wait_for(
        lambda: f"headworks_mirror_lag_messages{labels} 0.0" in page(running), "the end of the lag"
    )
    wait_for(
        lambda: f"headworks_mirror_lag_seconds{labels} 0.0" in page(running), "the end of the lag"
    )
    assert running.stop() == 0


def page(running: child_process.Service) -> str:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=SECONDS) as answer:
        text: str = answer.read().decode()
    return text


def test_with_other_partitions_a_key_decides(
    clusters: Clusters, mirror: Mirror, prefix: str
) -> None:
    """As for any producer of the target; without a key a partition stays together, in order."""
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "spread"
    create(source, topic, 5)
    create(target, topic, 3)
    create(target, prefix + "expected", 3)
    sent = [
        Sent(n % 5, None if n % 2 else b"key-%d" % (n % 50), b"%d %d" % (n % 5, n))
        for n in range(1000)
    ]
    produce(source, topic, sent)
    keyed = [one._replace(partition=-1) for one in sent if one.key is not None]
    produce(target, prefix + "expected", keyed, partitioner="murmur2")
    mirror(
        "--from", source, "--to", target, "--topics", re.escape(topic), "--no-audit",
        name=prefix + "x",
    )  # fmt: skip
    wait_for(lambda: sum(end_offsets(target, topic).values()) >= 1000, "everything")
    for index in range(3):
        ours = read_all(target, topic, index)
        expected = {(m.key(), m.value()) for m in read_all(target, prefix + "expected", index)}
        assert {(m.key(), m.value()) for m in ours if m.key() is not None} == expected
        values = [(m.value() or b"").split() for m in ours if m.key() is None]
        assert {int(p) % 3 for p, _ in values} <= {index}
        for partition in {p for p, _ in values}:
            numbers = [int(n) for p, n in values if p == partition]
            assert numbers == sorted(numbers)


def test_two_sources_make_one_aggregate(clusters: Clusters, mirror: Mirror, prefix: str) -> None:
    east, west, target = (
        clusters.east.address,
        clusters.west.address,
        clusters.target.address,
    )
    topic = prefix + "both"
    for address, name in ((east, b"east"), (west, b"west")):
        create(address, topic, 2)
        produce(address, topic, [Sent(n % 2, b"k", b"%s %d" % (name, n)) for n in range(400)])
    mirror(
        "--from", east, "--from", west, "--to", target, "--topics", f"{prefix}.*", "--no-audit",
        name=prefix + "x",
    )  # fmt: skip
    for index in range(2):
        values = [(m.value() or b"").split() for m in copied(target, topic, index, 400)]
        for name in (b"east", b"west"):
            numbers = [int(n) for source, n in values if source == name]
            assert numbers == list(range(index, 400, 2))


def test_it_goes_on_where_it_stopped(clusters: Clusters, mirror: Mirror, prefix: str) -> None:
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "twice"
    create(source, topic, 1)
    given = ["--from", source, "--to", target, "--topics", re.escape(topic), "--no-audit"]
    for number in range(2):
        produce(source, topic, [Sent(0, None, b"%d" % number)] * 50)
        running = mirror(*given, name=prefix + "x")
        copied(target, topic, 0, 50 * (number + 1))
        assert running.stop() == 0
    assert [m.value() for m in read_all(target, topic, 0)] == [b"0"] * 50 + [b"1"] * 50


def test_one_cluster_is_not_mirrored_into_itself(
    clusters: Clusters, mirror: Mirror, prefix: str
) -> None:
    """Not even under another of its addresses."""
    host, _, port = clusters.east.address.rpartition(":")
    assert host == "127.0.0.1"
    with pytest.raises(UsageError, match="are one cluster"):
        mirror(
            "--from", clusters.east.address, "--to", f"localhost:{port}", "--topics", "x",
            "--no-audit",
        )  # fmt: skip


def test_who_does_not_answer_is_named(clusters: Clusters, mirror: Mirror) -> None:
    with pytest.raises(UnreachableError, match=r"no broker answers at 127\.0\.0\.1:1: .*refused"):
        mirror("--from", clusters.east.address, "--to", "127.0.0.1:1", "--topics", "x")


def test_its_line_says_what_it_does(clusters: Clusters, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "headworks._cli", "mirror", "--from", clusters.east.address,
        "--to", clusters.target.address, "--topics", "nothing", "--no-audit",
        "--data-dir", str(tmp_path),
    ]  # fmt: skip
    lines = {}
    for form in ("text", "json"):
        with subprocess.Popen(
            [*command, "--format", form], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines[form] = process.stdout.readline()
            process.terminate()
            assert process.wait(SECONDS) == 0
    east, target = clusters.east.address, clusters.target.address
    assert lines["text"] == f"mirroring {east} into {target} as mirror:main\n"
    assert json.loads(lines["json"])["from"] == [east]
