"""Hostile clients: each gets a proper reply or is disconnected, and no other client notices.

A canary works on a connection of its own during every test; the broker's memory is watched.
"""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)
from crc32c import crc32c

from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.frame import MAX_ARRAY_ELEMENTS
from headworks._kafka.records.batch import HEADER
from headworks._kafka.records.varint import write_varint
from headworks._server import child_process
from tests.broker.build import batch
from tests.broker.clients import DEADLINE, eventually
from tests.broker.conftest import start_broker
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced, request
from tests.soak.siege import CANARY, Report, sing

pytestmark = pytest.mark.e2e

_MB = 1 << 20
_LIMIT = 40  # partitions
_BOUND = 8.0  # seconds that the broker works at most while the canary waits


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    options = {
        "--default-partitions": "1",
        "--max-partitions": str(_LIMIT),
        "--max-connections": "700",
        "--stall-seconds": "2",
    }
    flat = [word for option in options.items() for word in option]
    with start_broker(tmp_path_factory.mktemp("data"), *flat) as process:
        yield process


_SONGS = "songs of the canary"
_songs = 0


@contextmanager
def unnoticed(process: child_process.Service, growth: int = 64 * _MB) -> Iterator[None]:
    """Nobody else notices what happens inside, and memory grows by no more than `growth`."""
    global _songs
    topic = f"{CANARY}-{_songs}"
    _songs += 1
    admin = AdminClient({"bootstrap.servers": process.address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE)
    report, stop = Report(), threading.Event()
    wire = Wire(process.address)
    canary = threading.Thread(target=sing, args=(wire, report, stop, topic))
    memory = psutil.Process(process.process.pid)
    before = most = memory.memory_info().rss
    longest = 0.0
    canary.start()

    def watch() -> None:
        nonlocal most, longest
        songs, since = 0, worked(process)
        while not stop.is_set():
            most = max(most, memory.memory_info().rss)
            if songs != (songs := report.counts[_SONGS]):
                since = worked(process)
            longest = max(longest, worked(process) - since)
            stop.wait(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
        eventually(lambda: report.counts[_SONGS] > 0 or bool(report.wrong))
    finally:
        stop.set()
        canary.join()
        watcher.join()
        wire.socket.close()
        admin.delete_topics([topic])[topic].result(DEADLINE)
    assert not report.wrong
    assert longest <= _BOUND
    assert most - before <= growth, f"{before >> 20} MB became {most >> 20} MB"
    assert "Traceback" not in process.words()


def worked(process: child_process.Service) -> float:
    """Seconds of the processors that the broker has had: others on the machine add none."""
    spent = psutil.Process(process.process.pid).cpu_times()
    return spent.user + spent.system


def create(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE)


def test_500_connections_that_stall_are_dropped(hostile: child_process.Service) -> None:
    with unnoticed(hostile), ExitStack() as stack:
        stalled = [stack.enter_context(Wire(hostile.address)) for _ in range(500)]
        for number, wire in enumerate(stalled):
            wire.socket.sendall(b"\0" if number % 2 else struct.pack(">ih", 100_000, 0))
        assert all(wire.closed() for wire in stalled)


def test_a_client_that_never_reads_its_replies_is_dropped(hostile: child_process.Service) -> None:
    create(hostile.address, "unread")
    with Wire(hostile.address) as wire:
        for _ in range(8):
            wire.send(
                ApiKey.PRODUCE, 7, produce("unread", 0, bytes(batch(1, size=900_000)), acks=-1)
            )
            assert produced(wire.receive()[1], "unread")[0] == 0
    with unnoticed(hostile), Wire(hostile.address) as wire:
        body = fetch("unread", 0, 0, max_bytes=8 * _MB)
        frame = struct.pack(">ihhih", 10 + len(body), 1, 11, 1, -1) + body
        with pytest.raises(ConnectionError):
            wire.socket.sendall(frame * 200_000)


def test_a_length_that_promises_much_allocates_nothing(hostile: child_process.Service) -> None:
    with unnoticed(hostile, 16 * _MB):
        for size in (300 * _MB, 64 * _MB, (1 << 31) - 1, -1):
            with Wire(hostile.address) as wire:
                wire.socket.sendall(struct.pack(">i", size) + bytes(100))
                assert wire.closed()
            with Wire(hostile.address) as wire:
                wire.socket.sendall(struct.pack(">ihh", 20, 99, 0) + bytes(16))
                wire.socket.sendall(struct.pack(">i", size))
                assert wire.closed()


def test_fetches_of_ten_thousand_partitions(hostile: child_process.Service) -> None:
    create(hostile.address, "many")
    with Wire(hostile.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("many", 0, bytes(batch()), acks=-1))
        wire.receive()
    head = struct.pack(">iiiibiii", -1, 5000, 1 << 29, 1 << 20, 0, 0, -1, 1)
    partitions = b"".join(struct.pack(">iiqqi", 0, -1, 0, -1, 1 << 20) for _ in range(10_000))
    tail = struct.pack(">ih", 0, 0)
    body = head + struct.pack(">h", 4) + b"many" + struct.pack(">i", 10_000) + partitions + tail
    with unnoticed(hostile), Wire(hostile.address) as wire:
        wire.send(ApiKey.FETCH, 11, body)
        with Wire(hostile.address) as writer:  # each append wakes it, in vain
            for _ in range(100):
                writer.send(ApiKey.PRODUCE, 7, produce("many", 0, bytes(batch()), acks=-1))
                assert produced(writer.receive()[1], "many")[0] == 0
        assert len(wire.receive()[1]) > 10_000


def ask_for(count: int) -> bytes:
    """A metadata request that has so many topics created."""
    topic = kind(ApiKey.METADATA, 8, "request", "MetadataRequestTopic")
    return request(
        *(3, 8),
        topics=tuple(topic(name=f"spam-{number}") for number in range(count)),
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def test_a_hundred_thousand_topics_are_not_created(hostile: child_process.Service) -> None:
    with unnoticed(hostile, 200 * _MB):
        with Wire(hostile.address) as wire:
            wire.send(ApiKey.METADATA, 8, ask_for(100_000))
            assert wire.closed()
        with Wire(hostile.address) as wire:
            wire.send(ApiKey.METADATA, 8, ask_for(MAX_ARRAY_ELEMENTS))
            assert len(wire.receive()[1]) > MAX_ARRAY_ELEMENTS
        admin = AdminClient({"bootstrap.servers": hostile.address})
        topics = admin.list_topics(timeout=DEADLINE).topics
        assert sum(len(t.partitions) for t in topics.values()) == _LIMIT
        [gone] = admin.create_topics([NewTopic("one-more", 1, 1)]).values()
        with pytest.raises(Exception, match="limit of 40"):
            gone.result(DEADLINE)
        [grown] = admin.create_partitions([NewPartitions("spam-0", 5)]).values()
        with pytest.raises(Exception, match="limit of 40"):
            grown.result(DEADLINE)
        spam = [name for name in topics if name.startswith("spam-")]
        for future in admin.delete_topics(spam).values():
            future.result(DEADLINE)
        create(hostile.address, "there-is-room-again")


@pytest.mark.parametrize("count", [(1 << 31) - 1, 100_000, _LIMIT + 1, 0, -2])
def test_partition_counts_that_cannot_be(hostile: child_process.Service, count: int) -> None:
    creatable = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopic")
    with unnoticed(hostile, 16 * _MB), Wire(hostile.address) as wire:
        topic = creatable(
            name="huge", num_partitions=count, replication_factor=1, assignments=(), configs=()
        )
        answer = wire.ask(
            ApiKey.CREATE_TOPICS, 4, topics=(topic,), timeout=timedelta(0), validate_only=False
        )
        assert answer.topics[0].error_code in (37, 44)


@pytest.mark.parametrize("key", [0, 1, 3])
def test_counts_that_fit_and_are_absurd_close_the_connection(
    hostile: child_process.Service, key: int
) -> None:
    version = {0: 9, 1: 12, 3: 12}[key]
    head = struct.pack(">hhih", key, version, 1, -1)
    tags = b"\x80\x80\x80\x01" + bytes(2 * (1 << 21))  # two million of nothing
    bodies = [tags]
    if key == 0:
        topics = b"\0\0\1" + bytes(4) + b"\x80\x80\x80\x01" + b"\2t\1\0" * (1 << 20)
        parts = b"\0\0\1" + bytes(4) + b"\2\2t\x80\x80\x80\x01" + bytes(6) * (1 << 20)
        bodies += [b"\0" + topics, b"\0" + parts]
    for body in bodies:
        said = len(hostile.words())
        with unnoticed(hostile), Wire(hostile.address) as wire:
            began = worked(hostile)
            wire.socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            assert wire.closed()
            assert worked(hostile) - began < 5
        assert "are more than" in hostile.words()[said:]


def test_a_topic_named_again_and_again_is_refused_soon(hostile: child_process.Service) -> None:
    creatable = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopic")
    topic = creatable(name="t", num_partitions=1, replication_factor=1, assignments=(), configs=())
    with unnoticed(hostile, 400 * _MB), Wire(hostile.address) as wire:
        began = worked(hostile)
        answer = wire.ask(
            19, 4, topics=(topic,) * MAX_ARRAY_ELEMENTS, timeout=timedelta(0), validate_only=False
        )
        assert {int(result.error_code) for result in answer.topics} == {42}
        assert worked(hostile) - began < 30


def test_a_change_is_finished_when_its_client_has_gone(hostile: child_process.Service) -> None:
    admin = AdminClient({"bootstrap.servers": hostile.address})
    for number in range(20):
        name = f"abandoned-{number}"
        create(hostile.address, name)
        with Wire(hostile.address) as wire:
            wire.send(
                ApiKey.DELETE_TOPICS,
                3,
                request(ApiKey.DELETE_TOPICS, 3, topic_names=(name,), timeout=timedelta(0)),
            )
            if number % 2:
                time.sleep(0.002)
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.05)
        if name in admin.list_topics(timeout=DEADLINE).topics:  # not heard, or not yet
            delete(admin, name)
        create(hostile.address, name)
        delete(admin, name)


def delete(admin: AdminClient, topic: str) -> None:
    """Delete a topic, which somebody else may have deleted in this moment."""
    failure = admin.delete_topics([topic])[topic].exception(DEADLINE)
    assert failure is None or failure.args[0].name() == "UNKNOWN_TOPIC_OR_PART"


def join(group: str, metadata: bytes, member: str = "", count: int = 1) -> bytes:
    protocol = kind(ApiKey.JOIN_GROUP, 3, "request", "JoinGroupRequestProtocol")
    return request(
        *(11, 3),
        group_id=group,
        session_timeout=timedelta(seconds=2),
        rebalance_timeout=timedelta(seconds=1),
        member_id=member,
        protocol_type="consumer",
        protocols=tuple(protocol(name=f"p{n}", metadata=metadata) for n in range(count)),
    )


def test_members_cannot_fill_the_memory(hostile: child_process.Service) -> None:
    codes = set()
    with unnoticed(hostile, 400 * _MB), ExitStack() as stack:
        wires = []
        for number in range(40):  # together more than all groups may hold
            wire = stack.enter_context(Wire(hostile.address))
            wire.send(ApiKey.JOIN_GROUP, 3, join(f"fat-{number}", bytes(7 * _MB)))
            wires.append(wire)
        for wire in wires:
            try:
                codes.add(struct.unpack_from(">h", wire.receive()[1], 4)[0])
            except (EOFError, OSError):
                codes.add(-1)  # refused for want of memory
    assert codes & {15, -1}
    assert codes <= {0, 15, -1}


def test_a_connection_that_has_ended_holds_nothing(hostile: child_process.Service) -> None:
    with unnoticed(hostile):
        for _ in range(30):
            with Wire(hostile.address) as wire:
                wire.socket.sendall(struct.pack(">ih", 9 * _MB, 0) + bytes(8 * _MB))


def test_ids_that_are_only_given_out_are_counted(hostile: child_process.Service) -> None:
    protocol = kind(ApiKey.JOIN_GROUP, 4, "request", "JoinGroupRequestProtocol")
    body = request(
        *(11, 4),
        group_id="crowd",
        session_timeout=timedelta(minutes=5),
        rebalance_timeout=timedelta(seconds=1),
        member_id="",
        protocol_type="consumer",
        protocols=(protocol(name="p", metadata=b""),),
    )
    codes = []
    with unnoticed(hostile), Wire(hostile.address) as wire:
        for _ in range(1100):
            wire.send(ApiKey.JOIN_GROUP, 4, body)
            codes.append(struct.unpack_from(">h", wire.receive()[1], 4)[0])
    assert codes == [79] * 1000 + [81] * 100


@pytest.mark.parametrize(
    ("group", "count", "code"), [("g" * 30_000, 1, 24), ("", 1, 24), ("g", 101, 23)]
)
def test_names_and_protocols_of_groups_are_bounded(
    hostile: child_process.Service, group: str, count: int, code: int
) -> None:
    with unnoticed(hostile), Wire(hostile.address) as wire:
        wire.send(ApiKey.JOIN_GROUP, 3, join(group, b"", count=count))
        assert struct.unpack_from(">h", wire.receive()[1], 4)[0] == code


@pytest.mark.parametrize(
    ("group", "metadata", "code"),
    [("g", "m" * 4096, 0), ("g", "m" * 4097, 12), ("g" * 30_000, "", 24)],
)
def test_commits_are_bounded(
    hostile: child_process.Service, group: str, metadata: str, code: int
) -> None:
    name = f"commits-{code}"
    create(hostile.address, name)
    topic = kind(ApiKey.OFFSET_COMMIT, 2, "request", "OffsetCommitRequestTopic")
    partition = kind(ApiKey.OFFSET_COMMIT, 2, "request", "OffsetCommitRequestPartition")
    with unnoticed(hostile), Wire(hostile.address) as wire:
        answer = wire.ask(
            *(8, 2),
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time=timedelta(-1),
            topics=(
                topic(
                    name=name,
                    partitions=(
                        partition(
                            partition_index=0, committed_offset=3, committed_metadata=metadata
                        ),
                    ),
                ),
            ),
        )
        assert answer.topics[0].partitions[0].error_code == code


def bomb(size: int) -> bytes:
    """A small batch that decompresses to `size` bytes of nothing."""
    data = bytearray(batch())
    values = list(HEADER.unpack_from(data))
    data[HEADER.size :] = gzip.compress(bytes(size))
    values[1], values[5], values[8] = len(data) - 12, 1, 1 << 40
    HEADER.pack_into(data, 0, *values)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


def test_a_batch_that_swells_does_not_swell_the_broker(hostile: child_process.Service) -> None:
    create(hostile.address, "bomb")
    with unnoticed(hostile, 200 * _MB), Wire(hostile.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("bomb", 0, bomb(300 * _MB), acks=-1))
        assert produced(wire.receive()[1], "bomb") == (0, 0)
        topic = kind(ApiKey.LIST_OFFSETS, 1, "request", "ListOffsetsTopic")
        partition = kind(ApiKey.LIST_OFFSETS, 1, "request", "ListOffsetsPartition")
        asked = topic(name="bomb", partitions=(partition(partition_index=0, timestamp=1 << 39),))
        for _ in range(3):
            answer = wire.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=(asked,))
            assert answer.topics[0].partitions[0].offset == 0


def test_a_record_that_lies_about_its_place_is_not_believed(hostile: child_process.Service) -> None:
    create(hostile.address, "liar")
    data = bytearray(batch())
    values = list(HEADER.unpack_from(data))
    # one record: attributes, timestamp delta 2^60, offset delta 2^62, nulls, no headers
    body = b"\0" + write_varint(1 << 60) + write_varint(1 << 62) + b"\1\1\0"
    data[HEADER.size :] = write_varint(len(body)) + body
    values[1], values[8] = len(data) - 12, 1 << 61
    HEADER.pack_into(data, 0, *values)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    with unnoticed(hostile), Wire(hostile.address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("liar", 0, bytes(data), acks=-1))
        assert produced(wire.receive()[1], "liar") == (0, 0)
        topic = kind(ApiKey.LIST_OFFSETS, 1, "request", "ListOffsetsTopic")
        partition = kind(ApiKey.LIST_OFFSETS, 1, "request", "ListOffsetsPartition")
        asked = topic(name="liar", partitions=(partition(partition_index=0, timestamp=5000),))
        [found] = (
            wire.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=(asked,)).topics[0].partitions
        )
        assert (found.offset, found.timestamp) == (0, 1000)


def test_acks_all_with_any_timeout_is_answered(hostile: child_process.Service) -> None:
    create(hostile.address, "patient")
    with unnoticed(hostile), Wire(hostile.address) as wire:
        for timeout in (-1, 0, (1 << 31) - 1):
            body = bytearray(produce("patient", 0, bytes(batch()), acks=-1))
            struct.pack_into(">i", body, 4, timeout)
            wire.send(ApiKey.PRODUCE, 7, bytes(body))
            assert produced(wire.receive()[1], "patient")[0] == 0
        wire.send(ApiKey.FETCH, 11, fetch("patient", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 3)


def test_a_fetch_that_waits_for_ever_ends_with_its_connection(
    hostile: child_process.Service, tmp_path: Path
) -> None:
    create(hostile.address, "never")
    memory = psutil.Process(hostile.process.pid)
    files = memory.num_fds()
    with unnoticed(hostile), ExitStack() as stack:
        for _ in range(100):
            wire = stack.enter_context(Wire(hostile.address))
            for _ in range(10):
                wire.send(ApiKey.FETCH, 11, fetch("never", 0, 0, wait_ms=(1 << 31) - 1))
    deadline = time.monotonic() + DEADLINE
    while memory.num_fds() > files + 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert memory.num_fds() <= files + 3


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_without_a_name_is_answered(hostile: child_process.Service, version: int) -> None:
    topic = kind(ApiKey.METADATA, version, "request", "MetadataRequestTopic")(
        topic_id=None, name=None
    )
    more = {"include_cluster_authorized_operations": False} if version == 10 else {}
    with unnoticed(hostile), Wire(hostile.address) as wire:
        answer = wire.ask(
            *(3, version),
            topics=(topic,),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            **more,
        )
        assert answer.topics[0].error_code == 100
