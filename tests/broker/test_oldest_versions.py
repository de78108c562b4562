"""What clients of 2017 and 2018 send: versions that kio has no schema of, and any bytes as text."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.oldest_versions import (
    OldestListOffsetsPartition,
    OldestListOffsetsRequest,
    OldestListOffsetsTopic,
    OldestOffsetCommitPartition,
    OldestOffsetCommitRequest,
    OldestOffsetCommitTopic,
)
from tests.broker.build import batch
from tests.broker.wire import Wire, kind, plain, produce, produced

pytestmark = pytest.mark.e2e


def newest(wire: Wire, topic: str, timestamp: int, most: int, partition: int = 0) -> list[int]:
    """Ask ListOffsets 0. An error is a negative code."""
    part = OldestListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, max_num_offsets=most
    )
    asked = OldestListOffsetsTopic(name=topic, partitions=(part,))
    wire.send(
        ApiKey.LIST_OFFSETS, 0, plain(OldestListOffsetsRequest(replica_id=-1, topics=(asked,)))
    )
    body = wire.receive()[1]
    at = 4 + 2 + len(topic) + 4
    index, error, count = struct.unpack_from(">ihi", body, at)
    assert index == partition
    assert len(body) == at + 10 + 8 * count
    return [-error] if error else list(struct.unpack_from(f">{count}q", body, at + 10))


def put(wire: Wire, topic: str, records: bytes) -> int:
    wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, records))
    error, offset = produced(wire.receive()[1], topic)
    assert error == 0
    return offset


def test_the_oldest_versions_that_have_no_schema_any_more(address: str) -> None:
    topic = b"\0\3old" + struct.pack(">ihii", 1, 1, 0, 0)
    bad = b"\0\1/" + struct.pack(">ihii", 1, 1, 0, 0)
    timeout = struct.pack(">i", 1000)
    with Wire(address) as wire:
        wire.send(ApiKey.CREATE_TOPICS, 0, struct.pack(">i", 1) + topic + timeout)
        assert wire.receive()[1] == b"\0\0\0\1" + b"\0\3old" + b"\0\0"
        wire.send(ApiKey.CREATE_TOPICS, 1, struct.pack(">i", 1) + bad + timeout + b"\0")
        answer = wire.receive()[1]
        assert answer[:9] == b"\0\0\0\1" + b"\0\1/" + b"\0\x11"
        assert b"is not 1 to 249 of" in answer
        wire.send(
            ApiKey.DESCRIBE_CONFIGS,
            0,
            struct.pack(">ib", 1, 2) + b"\0\3old" + b"\0\0\0\1\0\x08flush.ms",
        )
        answer = wire.receive()[1]
        assert answer[4:] == (
            b"\0\0\0\1" + b"\0\0" + b"\xff\xff" + b"\2" + b"\0\3old"
            b"\0\0\0\1" + b"\0\x08flush.ms" + b"\0\x03200" + b"\0\1\0"
        )
        wire.send(ApiKey.DELETE_TOPICS, 0, struct.pack(">i", 1) + b"\0\3old" + timeout)
        assert wire.receive()[1] == b"\0\0\0\1" + b"\0\3old" + b"\0\0"


def test_the_ends_of_a_log_in_the_oldest_version(address: str, topic: str) -> None:
    with Wire(address) as wire:
        assert newest(wire, topic, -1, 1) == newest(wire, topic, -2, 1) == [0]
        put(wire, topic, bytes(batch(3)))
        assert newest(wire, topic, -1, 1) == [3]
        assert newest(wire, topic, -1, 9) == [3, 0]
        assert newest(wire, topic, -2, 9) == [0]
        assert newest(wire, topic, -1, 0) == newest(wire, topic, -1, -1) == []
        assert newest(wire, topic, -1, 1, partition=7) == [-ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert newest(wire, topic, -3, 1) == [-ErrorCode.UNSUPPORTED_VERSION]


def test_segments_by_their_last_write_in_the_oldest_version(
    address: str, topic: str, data_dir: Path
) -> None:
    """The broker of these tests begins a segment after 100,000 bytes."""
    with Wire(address) as wire:
        starts = [put(wire, topic, bytes(batch(1, size=90_000))) for _ in range(3)]
        assert starts == [0, 1, 2]
        [folder] = data_dir.rglob(f"{topic}-0")
        for number, path in enumerate(sorted(folder.glob("*.log"))):
            os.utime(path, (1000 + number, 1000 + number))
        assert newest(wire, topic, 999_999, 9) == []
        assert newest(wire, topic, 1_001_000, 9) == [1, 0]
        assert newest(wire, topic, 1_002_000, 2) == [2, 1]
        assert newest(wire, topic, int(time.time() * 1000) + 60_000, 9) == [3, 2, 1, 0]


def test_a_commit_in_the_oldest_version(
    address: str, topic: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    places = [
        OldestOffsetCommitPartition(
            partition_index=index,
            committed_offset=17,
            commit_timestamp=-1,
            committed_metadata=note,
        )
        for index, note in ((0, None), (5, "a note"))
    ]
    asked = OldestOffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(OldestOffsetCommitTopic(name=topic, partitions=tuple(places)),),
    )
    with Wire(address) as wire:
        wire.send(ApiKey.OFFSET_COMMIT, 1, plain(asked))
        name = struct.pack(">h", len(topic)) + topic.encode()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers = struct.pack(">iihih", 2, 0, 0, 5, unknown)
        assert wire.receive()[1] == struct.pack(">i", 1) + name + answers
        assert committed(wire, group, topic) == (17, "")


def committed(wire: Wire, group: str, topic: str) -> tuple[int, str]:
    """The offset that a group has committed for partition 0, and its metadata."""
    asked = kind(ApiKey.OFFSET_FETCH, 1, "request", "OffsetFetchRequestTopic")(
        name=topic, partition_indexes=(0,)
    )
    answer = wire.ask(ApiKey.OFFSET_FETCH, 1, group_id=group, topics=(asked,))
    [part] = answer.topics[0].partitions
    return part.committed_offset, part.metadata


@pytest.mark.parametrize("note", [b"\xff\xfe", b"\xed\xa0\x80", "né".encode("latin-1")])
def test_text_that_is_not_utf_8_is_taken_as_kafka_takes_it(
    address: str, topic: str, new_name: Callable[[], str], note: bytes
) -> None:
    """C and Go programs may commit any bytes as metadata. Kafka replaces them one by one."""
    group = new_name()
    name, text = topic.encode(), struct.Struct(">h")
    body = (
        *(text.pack(len(group)), group.encode(), struct.pack(">ihqi", -1, 0, -1, 1)),
        *(text.pack(len(name)), name, struct.pack(">iiq", 1, 0, 5), text.pack(len(note)), note),
    )
    with Wire(address) as wire:
        wire.send(ApiKey.OFFSET_COMMIT, 2, b"".join(body))
        assert wire.receive()[1][-2:] == b"\0\0"
        offset, metadata = committed(wire, group, topic)
    assert (offset, metadata) == (5, note.decode(errors="replace"))
    assert "\ufffd" in metadata


def test_a_name_that_is_not_utf_8_is_no_topic(address: str) -> None:
    with Wire(address) as wire:
        body = produce("abc", 0, bytes(batch())).replace(b"abc", b"a\xffc")
        wire.send(ApiKey.PRODUCE, 7, body)
        answer = wire.receive()[1]
        name = "a\ufffdc".encode()
        assert answer[4 : 6 + len(name)] == struct.pack(">h", len(name)) + name
        (error,) = struct.unpack_from(">h", answer, 6 + len(name) + 8)
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert wire.ask(ApiKey.API_VERSIONS, 0).error_code == 0, "the connection goes on"
