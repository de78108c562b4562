"""A mirror whose source or target refuses, is gone, or has lost messages."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from headworks._server import child_process
from tests.damage import batches, flip_bit, produce_batches, segment
from tests.mirror.conftest import Clusters
from tests.mirror.messages import SECONDS, Sent, copied, create, produce, wait_for
from tests.mirror.test_copying import page
from tests.soak.mirror import committed, judge, read_all
from tests.soak.process import Broker
from tests.tools import needs

pytestmark = pytest.mark.e2e

Mirror = Callable[..., child_process.Service]


def given(clusters: Clusters, topic: str) -> list[str]:
    return [
        "--from", clusters.east.address, "--to", clusters.target.address,
        "--topics", re.escape(topic), "--no-audit", "--name", topic,
    ]  # fmt: skip


def test_a_message_that_is_too_large_stops_it_by_name_or_is_left_out(
    clusters: Clusters, mirror: Mirror, prefix: str, tmp_path: Path
) -> None:
    """Its neighbours of the same batch arrive, in order."""
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "large"
    create(source, topic, 1)
    create(target, topic, 1, max_message_bytes="5000")
    sizes = [10, 20, 30, 9000, 40, 50, 9001, 60]
    messages = [Sent(0, None, os.urandom(size)) for size in sizes]
    produce(source, topic, messages)
    stopped = mirror(*given(clusters, topic))
    assert stopped.process.wait(SECONDS) == 4
    words = (tmp_path / "mirror.log").read_text()
    assert f"error: {topic} partition 0 offset 3 is too large for the target" in words
    assert "--skip-too-large" in words

    running = mirror(*given(clusters, topic), "--skip-too-large", metrics="127.0.0.1:0")
    wait_for(
        lambda: committed(source, f"headworks-mirror-{topic}", topic, 1) == {0: len(sizes)},
        "the commit",
    )
    kept = [m.value() for m in read_all(target, topic, 0)]
    expected = [m.value for m in messages if len(m.value or b"") < 5000]
    assert list(dict.fromkeys(kept)) == expected
    count = f'headworks_mirror_too_large_total{{source="{source}",topic="{topic}"}} 2.0'
    wait_for(lambda: count in page(running), "the count")
    produce(source, topic, [Sent(0, None, b"after")])
    wait_for(lambda: read_all(target, topic, 0)[-1].value() == b"after", "what came after")


def test_what_the_source_no_longer_has_is_never_skipped_silently(
    clusters: Clusters, mirror: Mirror, prefix: str, tmp_path: Path
) -> None:
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "lost"
    create(source, topic, 1)
    produce(source, topic, [Sent(0, None, b"%d" % n) for n in range(10)])
    running = mirror(*given(clusters, topic))
    copied(target, topic, 0, 10)
    running.stop()
    produce(source, topic, [Sent(0, None, b"%d" % n) for n in range(10, 30)])
    admin = AdminClient({"bootstrap.servers": source})
    place = TopicPartition(topic, 0, 20)
    admin.delete_records([place])[place].result(SECONDS)

    stopped = mirror(*given(clusters, topic))
    assert stopped.process.wait(SECONDS) == 1
    words = (tmp_path / "mirror.log").read_text()
    assert "partition 0: offset 10 or a later one is wanted, 20 to 30 are there" in words
    mirror(*given(clusters, topic), "--skip-lost")
    values = [m.value() for m in copied(target, topic, 0, 20)]
    assert values == [b"%d" % n for n in (*range(10), *range(20, 30))]


def test_a_damaged_batch_is_never_copied(
    clusters: Clusters, mirror: Mirror, prefix: str, tmp_path: Path
) -> None:
    """Everything before it arrives first; with --skip-damaged everything after it, too."""
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "rotten"
    values = [b"value-%04d-abcdefghijklmnop" % n for n in range(40)]
    produce_batches(source, topic, values)
    path = segment(clusters.folder / "east", topic)
    flip_bit(path, batches(path)[2])

    stopped = mirror(*given(clusters, topic))
    assert stopped.process.wait(SECONDS) == 1
    words = (tmp_path / "mirror.log").read_text()
    assert f"error: {topic} partition 0 offset 20: the record batch there is damaged" in words
    assert "--skip-damaged" in words
    assert [m.value() for m in copied(target, topic, 0, 20)] == values[:20]

    running = mirror(*given(clusters, topic), "--skip-damaged", metrics="127.0.0.1:0")
    kept = values[:20] + values[30:]
    assert [m.value() for m in copied(target, topic, 0, 30)] == kept
    count = f'headworks_mirror_damaged_total{{source="{source}",topic="{topic}"}} 10.0'
    wait_for(lambda: count in page(running), "the count")
    wait_for(
        lambda: committed(source, f"headworks-mirror-{topic}", topic, 1) == {0: 40}, "the commit"
    )


def test_a_topic_that_is_deleted_on_the_target_comes_again(
    clusters: Clusters, mirror: Mirror, prefix: str
) -> None:
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "deleted"
    create(source, topic, 1)
    produce(source, topic, [Sent(0, None, b"one")])
    mirror(*given(clusters, topic))
    copied(target, topic, 0, 1)
    admin = AdminClient({"bootstrap.servers": target})
    admin.delete_topics([topic])[topic].result(SECONDS)
    produce(source, topic, [Sent(0, None, b"two")])
    assert copied(target, topic, 0, 1)[-1].value() == b"two"


def recreate(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.delete_topics([topic])[topic].result(SECONDS)
    create(address, topic, 1)


def test_a_topic_that_is_recreated_on_the_source_is_copied_from_its_beginning(
    clusters: Clusters, mirror: Mirror, prefix: str, tmp_path: Path
) -> None:
    """Offsets of the first topic lie inside the second one, and are not offsets of it."""
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "again"
    group = f"headworks-mirror-{topic}"
    create(source, topic, 1)
    produce(source, topic, [Sent(0, None, b"old-%d" % number) for number in range(50)])
    mirror(*given(clusters, topic))
    wait_for(lambda: committed(source, group, topic, 1) == {0: 50}, "the commit")
    recreate(source, topic)
    produce(source, topic, [Sent(0, None, b"new-%d" % number) for number in range(100)])
    new = {b"new-%d" % number for number in range(100)}
    wait_for(
        lambda: new <= {m.value() for m in read_all(target, topic, 0)},
        "every message of the second topic",
    )
    assert f"the source has recreated {topic}" in (tmp_path / "mirror.log").read_text()


def test_an_offset_that_was_committed_for_an_earlier_topic_is_not_used(
    clusters: Clusters, mirror: Mirror, prefix: str
) -> None:
    """As by a commit that was on its way while the topic was recreated."""
    source, target, topic = clusters.east.address, clusters.target.address, prefix + "late"
    group = f"headworks-mirror-{topic}"
    create(source, topic, 1)
    produce(source, topic, [Sent(0, None, b"%d" % number) for number in range(20)])
    late = Consumer({"bootstrap.servers": source, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, 0, 10, "AAAAAAAAAAAAAAAAAAAAAQ")]
    late.commit(offsets=places, asynchronous=False)
    late.close()
    mirror(*given(clusters, topic))
    assert [m.value() for m in copied(target, topic, 0, 20)] == [b"%d" % n for n in range(20)]


def test_each_side_may_go_and_come_back(tmp_path: Path, mirror: Mirror) -> None:
    """Nothing is lost, nothing is out of order, and memory is bounded while the target is away."""
    source, target = Broker(tmp_path / "source"), Broker(tmp_path / "target")
    for broker in (source, target):
        broker.start()
    try:
        create(source.address, "t", 1)
        produce(source.address, "t", [Sent(0, None, b"%d" % n) for n in range(100)])
        running = mirror(
            "--from", source.address, "--to", target.address, "--topics", "t", "--no-audit",
            "--buffer-mb", "4", "--metrics", "127.0.0.1:0",
        )  # fmt: skip
        copied(target.address, "t", 0, 100)
        before = psutil.Process(running.process.pid).memory_info().rss
        os.kill(target.pid, signal.SIGSTOP)
        produce(
            source.address,
            "t",
            [Sent(0, None, b"%d " % n + os.urandom(100_000)) for n in range(100, 700)],
        )
        time.sleep(2)
        grown = psutil.Process(running.process.pid).memory_info().rss - before
        assert grown < 40 << 20, grown
        # An alert needs the lag most of all while the target hangs.
        lag = re.compile(r"^headworks_mirror_lag_messages\{.*\} ([1-9]\d*)", re.MULTILINE)
        wait_for(lambda: lag.search(page(running)) is not None, "the lag")
        target.kill()
        target.start()
        copied(target.address, "t", 0, 700)
        source.kill()
        source.start()
        produce(source.address, "t", [Sent(0, None, b"last")])
        wait_for(lambda: read_all(target.address, "t", 0)[-1].value() == b"last", "the last")
        theirs, ours = read_all(source.address, "t", 0), read_all(target.address, "t", 0)
        assert judge(theirs, ours, []) == []
        assert running.stop() == 0
    finally:
        for broker in (source, target):
            broker.stop()


@needs("kcat")
def test_a_header_that_cannot_be_copied_stops_it_by_name(
    clusters: Clusters, mirror: Mirror, prefix: str, tmp_path: Path
) -> None:
    source, topic, path = clusters.east.address, prefix + "odd-headers", tmp_path / "value"
    create(source, topic, 1)
    produce(source, topic, [Sent(0, None, b"first")])
    path.write_bytes(b"second")
    asked = [
        "kcat",
        "-P",
        "-b",
        source,
        "-t",
        topic,
        "-p",
        "0",
        "-H",
        os.fsdecode(b"a\xff=1"),
        str(path),
    ]
    subprocess.run(asked, check=True, timeout=SECONDS)
    stopped = mirror(*given(clusters, topic))
    assert stopped.process.wait(SECONDS) == 1
    words = (tmp_path / "mirror.log").read_text()
    assert f"error: {topic} partition 0 offset 1 cannot be copied: its headers cannot" in words
