"""A whole broker on a disk that fills up or breaks, with clients that go on asking."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._broker.coordination import LocalCoordination
from headworks._broker.log import LogConfig, open_log
from headworks._broker.server.folder_lock import FolderLock
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import Record, encode_batch
from headworks.errors import UsageError
from tests.broker.build import batch
from tests.broker.clients import CONSUMERS, DEADLINE, eventually
from tests.broker.test_durability import headworks
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced
from tests.soak.process import Broker

pytestmark = pytest.mark.e2e

OUT_OF_RANGE, CORRUPT_MESSAGE = 1, 2
LEADER_NOT_AVAILABLE, COORDINATOR_NOT_AVAILABLE, STORAGE_ERROR = 5, 15, 56


def writable(broker: Broker, topic: str) -> float:
    """What the metrics say of its partition 0."""
    url = re.findall(r"http://127.0.0.1:\d+/metrics", broker.words())[-1]
    text = urllib3.request("GET", url).data.decode()
    [value] = re.findall(
        rf'headworks_broker_log_writable{{partition="0",topic="{topic}"}} (.*)', text
    )
    return float(value)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path, "--segment-bytes", "20000", "--metrics", "127.0.0.1:0", faulty=True)
    made.start()
    admin = AdminClient({"bootstrap.servers": made.address})
    topics = admin.create_topics([NewTopic("t", 1, 1), NewTopic("other", 1, 1)])
    for future in topics.values():
        future.result(DEADLINE)
    yield made
    if made.alive:
        made.stop()


def test_a_full_disk_refuses_tears_nothing_and_heals(broker: Broker) -> None:
    full = broker.folder / "full"
    with Wire(broker.address) as wire:
        for round_ in range(5):
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
            assert produced(wire.receive()[1], "t") == (0, 2 * round_)
            full.touch()
            for acks in (-1, 1):
                wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(9, size=500)), acks=acks))
                assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
            wire.send(ApiKey.FETCH, 11, fetch("t", 0, 2 * round_))
            error, end, _ = fetched(wire.receive()[1])
            assert (error, end) == (0, 2 * round_ + 2), "readers do not notice"
            full.unlink()
    broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(ApiKey.FETCH, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 10)
    assert "cut" not in broker.words(), "nothing was torn"


def test_a_full_disk_is_logged_once_and_so_is_its_end(broker: Broker) -> None:
    full = broker.folder / "full"
    with Wire(broker.address) as wire:
        for _ in range(2):
            full.touch()
            for _ in range(50):
                wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
                assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
            assert (writable(broker, "t"), writable(broker, "other")) == (0, 1)
            full.unlink()
            for _ in range(3):
                wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
                assert produced(wire.receive()[1], "t")[0] == 0
            assert writable(broker, "t") == 1
    words = broker.words()
    assert words.count("t-0: cannot be written now: [Errno 28]") == 1, "once a minute"
    assert words.count("t-0: cannot be written now: over after") == 1


def test_a_topic_that_is_made_on_a_full_disk_heals_when_it_is_asked_for(broker: Broker) -> None:
    full = broker.folder / "full"
    new = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopic")(
        name="new", num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    ask = kind(ApiKey.METADATA, 4, "request", "MetadataRequestTopic")
    full.touch()
    with Wire(broker.address) as wire:
        [created] = wire.ask(ApiKey.CREATE_TOPICS, 4, topics=(new,)).topics
        assert created.error_code == STORAGE_ERROR
        assert "new is there, but partition 0 cannot be served now" in created.error_message

        def leaders(name: str) -> set[int]:
            [topic] = wire.ask(
                3, 4, topics=(ask(name=name),), allow_auto_topic_creation=True
            ).topics
            assert topic.error_code == 0
            return {partition.leader_id for partition in topic.partitions}

        assert leaders("new") == leaders("auto") == {-1}
        wire.send(ApiKey.PRODUCE, 7, produce("new", 1, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "new")[0] == STORAGE_ERROR
        time.sleep(1.1)  # it is tried again, in vain, and that is not told again
        assert leaders("new") == leaders("auto") == {-1}
        full.unlink()
        for name in ("new", "auto"):
            eventually(lambda name=name: leaders(name) == {1})  # type: ignore[misc]
            wire.send(ApiKey.PRODUCE, 7, produce(name, 1, bytes(batch(2)), acks=-1))
            assert produced(wire.receive()[1], name) == (0, 0)
    words = broker.words()
    assert words.count("partition new-1 is not served") == 1
    assert words.count("partition new-1 is served again") == 1


def wait_for_more_refusals(broker: Broker, before: int) -> int:
    """How many batches the full disk has refused, once those are more than `before`."""
    deadline = time.monotonic() + DEADLINE
    while (count := refused_batches(broker)) <= before:
        assert time.monotonic() < deadline, "the disk was never full"
        time.sleep(0.01)
    return count


def refused_batches(broker: Broker) -> int:
    """How many storage errors producers got, by the metrics: the log has one line a minute."""
    url = re.findall(r"http://127.0.0.1:\d+/metrics", broker.words())[-1]
    text = urllib3.request("GET", url).data.decode()
    error = r'headworks_broker_errors_total{api="produce",error="kafka_storage_error"} (.*)'
    return sum(int(float(value)) for value in re.findall(error, text))


def test_an_idempotent_producer_goes_on_when_there_is_room_again(broker: Broker) -> None:
    full = broker.folder / "full"
    delivered: list[int] = []
    failed: list[Any] = []

    def report(error: Any, message: Any) -> None:
        if error is None:
            delivered.append(int(message.value()))
        else:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "retry.backoff.ms": 20,
            "linger.ms": 1,
        }
    )
    refused = 0
    for number in range(2000):
        if number % 400 == 200:
            producer.flush(DEADLINE)
            full.touch()
        if number % 400 == 300:
            refused = wait_for_more_refusals(broker, refused)
            full.unlink()
        producer.produce("t", b"%d" % number, partition=0, on_delivery=report)
        producer.poll(0.0005)
    assert producer.flush(DEADLINE) == 0
    assert failed == []
    assert refused >= 5
    found = CONSUMERS["confluent-kafka"](broker.address, "t", 2000)
    assert [m.value for m in found] == [b"%d" % number for number in range(2000)]


def test_a_disk_that_cannot_flush_ends_the_partition_and_only_that(broker: Broker) -> None:
    broken = broker.folder / "broken"
    with Wire(broker.address) as wire:
        for topic in ("t", "other"):
            wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, bytes(batch(2)), acks=-1))
            assert produced(wire.receive()[1], topic) == (0, 0)
        broken.touch()
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(3)), acks=-1))
        assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
        broken.unlink()
        for acks in (-1, 1):  # it stays so: nobody knows what the kernel has dropped
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(3)), acks=acks))
            assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
        wire.send(ApiKey.FETCH, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 2), "what was flushed is still served"
        wire.send(ApiKey.PRODUCE, 7, produce("other", 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "other") == (0, 2)
    assert "no longer writable" in broker.words()
    assert broker.stop() == 0
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1)), acks=-1))
        error, offset = produced(wire.receive()[1], "t")
        assert error == 0
        assert offset in (2, 5), "what could not be flushed may be there or not"


def test_without_its_segments_name_on_disk_nothing_is_acknowledged(broker: Broker) -> None:
    nameless = broker.folder / "nameless"
    acknowledged = -1
    with Wire(broker.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "t") == (0, 0)
        nameless.touch()
        for _ in range(20):  # over the end of a segment of 20,000 bytes
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=3000)), acks=-1))
            error, offset = produced(wire.receive()[1], "t")
            if error:
                break
            acknowledged = offset
        assert error == STORAGE_ERROR
        assert 2 <= acknowledged < 10
        nameless.unlink()
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1)), acks=-1))
        assert produced(wire.receive()[1], "t") == (0, acknowledged + 1)
    assert "t-0: cannot be written now: [Errno 5]" in broker.words()
    broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(ApiKey.FETCH, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, acknowledged + 2)


def test_a_logs_start_that_cannot_be_kept_stays(broker: Broker) -> None:
    nameless = broker.folder / "nameless"

    def delete_before(wire: Wire, offset: int) -> tuple[int, int]:
        partition = kind(ApiKey.DELETE_RECORDS, 0, "request", "DeleteRecordsPartition")(
            partition_index=0, offset=offset
        )
        topic = kind(ApiKey.DELETE_RECORDS, 0, "request", "DeleteRecordsTopic")(
            name="t", partitions=(partition,)
        )
        [answer] = wire.ask(
            ApiKey.DELETE_RECORDS, 0, topics=(topic,), timeout=timedelta(seconds=5)
        ).topics
        return answer.partitions[0].error_code, answer.partitions[0].low_watermark

    with Wire(broker.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(5)), acks=-1))
        assert produced(wire.receive()[1], "t") == (0, 0)
        nameless.touch()
        assert delete_before(wire, 3)[0] == STORAGE_ERROR
        wire.send(ApiKey.FETCH, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 5)
        nameless.unlink()
        assert delete_before(wire, 3) == (0, 3)
    broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        for offset, error in ((2, OUT_OF_RANGE), (3, 0)):
            wire.send(ApiKey.FETCH, 11, fetch("t", 0, offset))
            assert fetched(wire.receive()[1])[0] == error


def test_damage_in_an_old_segment_is_answered_and_the_connection_lives(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        for _ in range(30):
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=2000)), acks=-1))
            assert produced(wire.receive()[1], "t")[0] == 0
    broker.stop()
    oldest = min((broker.logs / "t-0").glob("*.log"))
    data = bytearray(oldest.read_bytes())
    size = 12 + int.from_bytes(data[8:12])
    data[2 * size + 8] = 0x44  # the third batch says that it is more than a gigabyte
    oldest.write_bytes(data)
    broker.start()
    with Wire(broker.address) as wire:
        for offset, error in ((0, 0), (2, CORRUPT_MESSAGE), (2, CORRUPT_MESSAGE), (29, 0)):
            wire.send(ApiKey.FETCH, 11, fetch("t", 0, offset))
            assert fetched(wire.receive()[1])[0] == error, offset
    assert broker.words().count("there is no batch at byte") == 1, "said once"


def test_a_store_that_cannot_grow_is_told_to_clients_and_heals(broker: Broker) -> None:
    """Topics, positions and producer ids are in a file of their own, whose disk may be full too."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    store = broker.folder / "broker" / "coordination.sqlite-wal"
    seconds = timedelta(seconds=5)
    new = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopic")(
        name="new", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    auto = kind(ApiKey.METADATA, 4, "request", "MetadataRequestTopic")(name="auto")
    with Wire(broker.address) as wire:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (store.stat().st_size, before[1]))
        for _ in range(2):
            [created] = wire.ask(ApiKey.CREATE_TOPICS, 4, topics=(new,)).topics
            assert created.error_code == STORAGE_ERROR
            [asked] = wire.ask(
                ApiKey.METADATA, 4, topics=(auto,), allow_auto_topic_creation=True
            ).topics
            assert asked.error_code == LEADER_NOT_AVAILABLE
            numbered = wire.ask(
                ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout=seconds
            )
            assert numbered.error_code == COORDINATOR_NOT_AVAILABLE
            assert commit(wire) == COORDINATOR_NOT_AVAILABLE
            [deleted] = wire.ask(
                ApiKey.DELETE_TOPICS, 1, topic_names=("other",), timeout=seconds
            ).responses
            assert deleted.error_code == STORAGE_ERROR
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, before)
        assert commit(wire) == 0
        [created] = wire.ask(ApiKey.CREATE_TOPICS, 4, topics=(new,)).topics
        assert created.error_code == 0
        numbered = wire.ask(
            ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout=seconds
        )
        assert numbered.error_code == 0
        [forgotten] = wire.ask(ApiKey.DELETE_GROUPS, 0, groups_names=("g",)).results
        assert forgotten.error_code == 0
    words = broker.words()
    assert words.count("the coordination store cannot be written now: ") == 2
    assert words.count("the coordination store cannot be written now: over after") == 1
    assert "Traceback" not in words


def commit(wire: Wire) -> int:
    position = kind(ApiKey.OFFSET_COMMIT, 2, "request", "OffsetCommitRequestPartition")(
        partition_index=0, committed_offset=3, committed_metadata=""
    )
    topic = kind(ApiKey.OFFSET_COMMIT, 2, "request", "OffsetCommitRequestTopic")(
        name="t", partitions=(position,)
    )
    [answer] = wire.ask(ApiKey.OFFSET_COMMIT, 2, group_id="g", member_id="", topics=(topic,)).topics
    return int(answer.partitions[0].error_code)


def test_connections_and_new_partitions_leave_file_descriptors_for_served_logs(
    broker: Broker,
) -> None:
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    new = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopic")(
        name="new", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    asked = kind(ApiKey.METADATA, 4, "request", "MetadataRequestTopic")(name="new")
    with Wire(broker.address) as wire, ExitStack() as crowd:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (100, before[1]))
        for _ in range(120):
            last = crowd.enter_context(Wire(broker.address))
        assert last.closed()
        for number in range(20):  # over several segments, whose names must get on disk
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=3000)), acks=-1))
            assert produced(wire.receive()[1], "t") == (0, number)
        [created] = wire.ask(ApiKey.CREATE_TOPICS, 4, topics=(new,)).topics
        assert created.error_code == STORAGE_ERROR
        assert "Too many open files" in created.error_message
        crowd.close()

        def writes() -> bool:
            wire.ask(ApiKey.METADATA, 4, topics=(asked,), allow_auto_topic_creation=False)
            wire.send(ApiKey.PRODUCE, 7, produce("new", 0, bytes(batch(1)), acks=-1))
            return produced(wire.receive()[1], "new")[0] == 0

        eventually(writes)
    words = broker.words()
    assert "refusing 127.0.0.1" in words
    assert "too many files are open; the last 64 are kept for the logs" in words
    assert "accept failed" not in words


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file/broker cannot be used: Not a directory"):
        FolderLock(tmp_path / "file" / "broker")
    with pytest.raises(UsageError, match="nowhere/store cannot be opened"):
        LocalCoordination(tmp_path / "nowhere" / "store")


def test_the_lock_holds_when_its_name_is_deleted(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    (tmp_path / "lock").unlink()
    for _ in range(2):
        with pytest.raises(UsageError, match="in use by another broker"):
            FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_too_few_open_files_are_refused_with_the_number_that_is_needed(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path / "broker" / "logs" / "t-0", LogConfig())
    log.close()
    start = 'ulimit -n 129; exec "$@"'
    command = (sys.executable, "-P", "-m", "headworks._cli", "broker", "start")
    listen = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    done = subprocess.run(
        ["sh", "-c", start, "sh", *command, *listen],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert done.returncode == 2
    assert "the limit of open files is 129, and this broker needs at least 130" in done.stderr
    assert "ulimit -n 130" in done.stderr


@pytest.mark.parametrize("damage", ["cut", "deleted", "folder deleted", "replaced"])
@pytest.mark.parametrize("acks", [-1, 1])
def test_a_segment_that_is_lost_under_a_running_broker_ends_its_partition(
    broker: Broker, damage: str, acks: int
) -> None:
    with Wire(broker.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "t") == (0, 0)
        [path] = (broker.logs / "t-0").glob("*.log")
        if damage == "cut":
            os.truncate(path, 10)
        elif damage == "deleted":
            path.unlink()
        elif damage == "folder deleted":
            shutil.rmtree(path.parent)
        else:
            shutil.copy(path, path.with_suffix(".copy"))
            os.truncate(path.with_suffix(".copy"), 1 << 20)  # so that its size tells nothing
            path.with_suffix(".copy").replace(path)

        def refused() -> bool:
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=acks))
            return produced(wire.receive()[1], "t")[0] == STORAGE_ERROR

        assert refused() or (acks == 1 and damage != "cut")
        eventually(refused)
        wire.send(ApiKey.PRODUCE, 7, produce("other", 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "other")[0] == 0
    assert f"t-0: no longer writable: {path}: the file" in broker.words()


def test_a_partition_without_its_folder_is_refused_until_it_is_put_back_or_recreated(
    broker: Broker,
) -> None:
    with Wire(broker.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "t") == (0, 0)
    broker.stop()
    folder = broker.logs / "t-0"
    shutil.move(folder, broker.folder / "moved")
    for _ in range(2):
        broker.start()
        assert f"{folder} holds no log" in broker.words()
        assert "`headworks broker recreate t-0`" in broker.words()
        with Wire(broker.address) as wire:
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
            assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
            wire.send(ApiKey.PRODUCE, 7, produce("other", 0, bytes(batch(2)), acks=-1))
            assert produced(wire.receive()[1], "other")[0] == 0
        broker.stop()
        folder.mkdir(exist_ok=True)  # the second time, an empty one: a disk is not mounted
    folder.rmdir()
    shutil.move(broker.folder / "moved", folder)
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(ApiKey.FETCH, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 2)
    broker.stop()
    shutil.rmtree(folder)
    done = headworks("broker", "recreate", "t-0", "--data-dir", str(broker.logs.parent.parent))
    assert "t-0 begins again at offset 1000000000" in done.stderr
    again = headworks("broker", "recreate", "t-0", "--data-dir", str(broker.logs.parent.parent))
    assert "holds a log" in again.stderr
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(ApiKey.FETCH, 11, fetch("t", 0, 2))
        assert fetched(wire.receive()[1])[0] == OUT_OF_RANGE, "no group mistakes it for the old one"
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "t") == (0, 1_000_000_000)


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_a_lost_store_is_refused_and_its_topics_are_adopted(broker: Broker, damage: str) -> None:
    sent = encode_batch([Record(0, 1, b"k", b"v", ())], producer=(0, 0, 0))
    with Wire(broker.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(sent), acks=-1))
        assert produced(wire.receive()[1], "t") == (0, 0)
    broker.stop()
    data = broker.logs.parent
    store = data / "coordination.sqlite"
    if damage == "missing":
        store.unlink()
    else:
        store.write_bytes(b"" if damage == "empty" else b"garbage" * 999)
    start = ("broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(data.parent))
    refused = headworks(*start)
    assert refused.returncode == 1
    assert "`headworks broker adopt`" in refused.stderr
    if damage == "garbage":
        assert headworks("broker", "adopt", "--data-dir", str(data.parent)).returncode == 1
        store.rename(data / "moved")
    done = headworks("broker", "adopt", "--data-dir", str(data.parent))
    assert "adopted t with 1 partition\n" in done.stderr
    assert "adopted other with 1 partition\n" in done.stderr
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(ApiKey.FETCH, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 1)
        given = wire.ask(
            ApiKey.INIT_PRODUCER_ID,
            1,
            transactional_id=None,
            transaction_timeout=timedelta(seconds=1),
        )
        assert given.producer_id > 0, "an id of the log would make new messages look repeated"
