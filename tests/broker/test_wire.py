"""The bytes on the wire: the pitfalls of other brokers, one by one."""

from __future__ import annotations

import os
import struct
import time
from datetime import timedelta
from typing import Any

import psutil
import pytest

from headworks._kafka.protocol import APIS, ErrorCode
from headworks._kafka.protocol.apis import SASL_APIS
from headworks._kafka.records import check_batch, iter_batches
from headworks._server import child_process
from tests.broker.build import batch
from tests.broker.clients import DEADLINE, eventually
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced

pytestmark = pytest.mark.e2e

HOURS = 10_000_000  # milliseconds
PRODUCE, FETCH, OFFSETS, METADATA, VERSIONS, PRODUCER_ID = 0, 1, 2, 3, 18, 22


def put(wire: Wire, topic: str, records: bytes | None, *, acks: int = 1) -> tuple[int, int]:
    wire.send(PRODUCE, 7, produce(topic, 0, records, acks=acks))
    return produced(wire.receive()[1], topic)


def get(wire: Wire, topic: str, offset: int, **options: Any) -> tuple[int, int, bytes]:
    wire.send(FETCH, 11, fetch(topic, 0, offset, **options))
    return fetched(wire.receive()[1])


@pytest.mark.parametrize("version", range(4))
def test_versions_are_listed(address: str, version: int) -> None:
    fields = {"client_software_name": "t", "client_software_version": "1"} if version == 3 else {}
    with Wire(address) as wire:
        message = wire.ask(VERSIONS, version, **fields)
    assert message.error_code == 0
    listed = {k.api_key: (k.min_version, k.max_version) for k in message.api_keys}
    assert listed == {
        api.key: (api.minimum, api.maximum) for api in APIS.values() if api.key not in SASL_APIS
    }
    assert listed[PRODUCE][0] == 0, "or old librdkafka does not compress"


def test_a_version_of_versions_that_is_too_high_is_answered_in_the_oldest_layout(
    address: str,
) -> None:
    with Wire(address) as wire:
        wire.send(VERSIONS, 4, b"\0\x02x\x02y\0")
        _, body = wire.receive()
        error, count = struct.unpack_from(">hi", body)
        assert error == ErrorCode.UNSUPPORTED_VERSION
        assert len(body) == 6 + 6 * count
        assert wire.ask(VERSIONS, 0).error_code == 0, "the connection goes on"


@pytest.mark.parametrize("version", range(3))
def test_old_produce_is_answered_in_its_own_layout(address: str, topic: str, version: int) -> None:
    body = produce(topic, 0, bytes(batch()))[2:]
    with Wire(address) as wire:
        wire.send(PRODUCE, version, body)
        _, answer = wire.receive()
    size = [14, 18, 26][version]
    assert len(answer) == 4 + 2 + len(topic) + 4 + size
    assert produced(answer, topic)[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("key", "version"), [(FETCH, 3), (FETCH, 19), (PRODUCE, 14), (999, 0), (METADATA, -1)]
)
def test_what_is_not_served_closes_the_connection_and_only_that(
    address: str, key: int, version: int
) -> None:
    with Wire(address) as other, Wire(address) as wire:
        wire.send(key, version, bytes(30))
        assert wire.closed()
        assert other.ask(VERSIONS, 0).error_code == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        b"\0\0\0\x0a" + b"\0\x03\0\1\0\0\0\1\x7f\xff",
        b"\0\0\0\x10" + b"\0\x03\0\1\0\0\0\1\xff\xff\x7f\xff\xff\xff\0\0",
    ],
)
def test_nonsense_closes_the_connection_and_only_that(address: str, data: bytes) -> None:
    with Wire(address) as other, Wire(address) as wire:
        wire.socket.sendall(data)
        assert wire.closed()
        assert other.ask(VERSIONS, 0).error_code == 0


def test_random_bytes_never_hurt(running: child_process.Service) -> None:
    for _ in range(60):
        with Wire(running.address) as wire:
            body = os.urandom(40)
            key, version = body[0] % 62, body[1] % 10
            head = struct.pack(">ihhi", 8 + len(body), key, version, 1)
            wire.socket.sendall(head + body)
    with Wire(running.address) as wire:
        assert wire.ask(VERSIONS, 0).error_code == 0
    assert running.process.poll() is None


def test_a_request_may_come_in_pieces(address: str, topic: str) -> None:
    with Wire(address) as wire:
        body = produce(topic, 0, bytes(batch(2)))
        head = struct.pack(">ihhih", 10 + len(body), PRODUCE, 7, 9, -1)
        for byte in head + body:
            wire.socket.sendall(bytes([byte]))
        correlation, answer = wire.receive()
    assert correlation == 9
    assert produced(answer, topic) == (0, 0)


def test_many_requests_in_one_piece_are_answered_in_order(address: str, topic: str) -> None:
    with Wire(address) as wire:
        sent = bytearray()
        for number in range(500):
            body = produce(topic, 0, bytes(batch(2)))
            sent += struct.pack(">ihhih", 10 + len(body), PRODUCE, 7, number, -1) + body
        wire.socket.sendall(sent)
        for number in range(500):
            correlation, answer = wire.receive()
            assert correlation == number
            assert produced(answer, topic) == (0, 2 * number)


def test_a_parked_fetch_delays_later_replies_of_its_connection(address: str, topic: str) -> None:
    with Wire(address) as wire:
        began = time.monotonic()
        parked = wire.send(FETCH, 11, fetch(topic, 0, 0, wait_ms=400))
        later = wire.send(VERSIONS, 0, b"")
        assert [wire.receive()[0], wire.receive()[0]] == [parked, later]
        assert time.monotonic() - began > 0.3


def test_a_parked_fetch_wakes_on_an_append(address: str, topic: str) -> None:
    with Wire(address) as reader, Wire(address) as writer:
        reader.send(FETCH, 11, fetch(topic, 0, 0, wait_ms=HOURS))
        assert reader.silent(0.2)
        assert put(writer, topic, bytes(batch(3)))[0] == 0
        error, high, records = fetched(reader.receive()[1])
    assert (error, high) == (0, 3)
    assert [b.record_count for b in iter_batches(records)] == [3]


def test_a_fetch_waits_for_as_many_bytes_as_it_asks(address: str, topic: str) -> None:
    one = bytes(batch(1))
    with Wire(address) as reader, Wire(address) as writer:
        reader.send(FETCH, 11, fetch(topic, 0, 0, wait_ms=HOURS, min_bytes=len(one) + 1))
        put(writer, topic, one, acks=-1)
        assert reader.silent(0.2)
        put(writer, topic, one, acks=-1)
        assert len(fetched(reader.receive()[1])[2]) == 2 * len(one)


def test_an_empty_fetch_is_not_answered_before_its_time(address: str, topic: str) -> None:
    with Wire(address) as wire:
        began = time.monotonic()
        assert get(wire, topic, 0, wait_ms=300) == (0, 0, b"")
        assert time.monotonic() - began >= 0.25

        def at_once() -> bool:
            """Others on the machine may hold up one answer, and not all."""
            began = time.monotonic()
            assert get(wire, topic, 0, wait_ms=0) == (0, 0, b"")
            return time.monotonic() - began < 0.2

        eventually(at_once)


def test_a_client_that_goes_while_parked_leaves_nothing_behind(
    running: child_process.Service, topic: str
) -> None:
    for _ in range(20):
        with Wire(running.address) as wire:
            wire.send(FETCH, 11, fetch(topic, 0, 0, wait_ms=200))
    time.sleep(0.4)
    with Wire(running.address) as wire:
        assert put(wire, topic, bytes(batch())) == (0, 0)
    assert "Traceback" not in running.words()


def test_an_idle_broker_with_parked_consumers_uses_no_cpu(
    running: child_process.Service, topic: str
) -> None:
    process = psutil.Process(running.process.pid)
    with Wire(running.address) as wire:
        wire.send(FETCH, 11, fetch(topic, 0, 0, wait_ms=HOURS))

        def idle() -> bool:
            """For a second; what came before may still be under way in the first."""
            before = process.cpu_times()
            time.sleep(1.0)
            after = process.cpu_times()
            return (after.user + after.system) - (before.user + before.system) <= 0.03

        eventually(idle)


def test_the_first_batch_comes_whole_however_little_is_asked(address: str, topic: str) -> None:
    with Wire(address) as wire:
        data = batch(1, size=5000)
        put(wire, topic, bytes(data), acks=-1)
        put(wire, topic, bytes(data), acks=-1)
        error, _, records = get(wire, topic, 0, max_bytes=100)
    assert error == 0
    assert len(records) == len(data)


def test_fetching_outside_the_log_says_so_with_its_ends(address: str, topic: str) -> None:
    with Wire(address) as wire:
        put(wire, topic, bytes(batch(3)), acks=-1)
        for offset in (-1, 4, 1 << 40):
            error, high, _ = get(wire, topic, offset, wait_ms=5_000)
            assert (error, high) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)
        assert get(wire, "nobody-made-me", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert get(wire, topic, 0, epoch=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert get(wire, topic, 0, epoch=0)[0] == 0


def test_fetch_sessions_are_declined(address: str, topic: str) -> None:
    with Wire(address) as wire:
        wire.send(FETCH, 11, fetch(topic, 0, 0, session=(0, 0)))
        _, body = wire.receive()
        assert struct.unpack_from(">ihi", body) == (0, 0, 0)
        assert get(wire, topic, 0, session=(17, 4))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_acks_0_is_never_answered(address: str, topic: str) -> None:
    with Wire(address) as wire:
        for _ in range(3):
            wire.send(PRODUCE, 7, produce(topic, 0, bytes(batch(2)), acks=0))
        last = wire.send(VERSIONS, 0, b"")
        assert wire.receive()[0] == last
        assert put(wire, topic, bytes(batch(1)), acks=-1) == (0, 6)


def test_an_error_at_acks_0_closes_the_connection(address: str) -> None:
    with Wire(address) as wire:
        wire.send(PRODUCE, 7, produce("nobody-made-me", 0, bytes(batch()), acks=0))
        assert wire.closed()


def damaged(change: Any) -> bytes:
    """A batch with some header fields changed and the CRC made true again."""
    from crc32c import crc32c

    data = batch(2)
    change(data)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def set_at(form: str, position: int, value: int) -> Any:
    return lambda data: struct.pack_into(form, data, position, value)


REFUSED = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "short": (bytes(batch())[:40], ErrorCode.CORRUPT_MESSAGE),
    "cut": (bytes(batch())[:-1], ErrorCode.CORRUPT_MESSAGE),
    "crc": (bytes(batch())[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (damaged(set_at(">b", 16, 1)), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "two batches": (bytes(batch()) * 2, ErrorCode.INVALID_RECORD),
    "transactional": (damaged(set_at(">h", 21, 16)), ErrorCode.INVALID_TXN_STATE),
    "control": (damaged(set_at(">h", 21, 48)), ErrorCode.INVALID_RECORD),
    "append time": (damaged(set_at(">h", 21, 8)), ErrorCode.INVALID_TIMESTAMP),
    "delete horizon": (damaged(set_at(">h", 21, 64)), ErrorCode.INVALID_RECORD),
    "codec 5": (damaged(set_at(">h", 21, 5)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "count": (damaged(set_at(">i", 57, 3)), ErrorCode.INVALID_RECORD),
    "no count": (damaged(set_at(">i", 57, 0)), ErrorCode.INVALID_RECORD),
    "deltas": (damaged(set_at(">i", 23, -1)), ErrorCode.CORRUPT_MESSAGE),
    "no epoch": (damaged(set_at(">q", 43, 7)), ErrorCode.INVALID_RECORD),
    "too large": (bytes(batch(1, size=1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_that_is_wrong_is_refused_by_name(address: str, topic: str, case: str) -> None:
    records, code = REFUSED[case]
    with Wire(address) as wire:
        assert put(wire, topic, records) == (code, -1)
        assert put(wire, topic, bytes(batch())) == (0, 0), "and nothing of it was kept"


def test_acks_that_do_not_exist_are_refused(address: str, topic: str) -> None:
    with Wire(address) as wire:
        assert put(wire, topic, bytes(batch()), acks=2)[0] == ErrorCode.INVALID_REQUIRED_ACKS


def test_idempotence_over_the_wire(address: str, topic: str) -> None:
    with Wire(address) as wire:
        ids = [
            wire.ask(
                PRODUCER_ID, 1, transactional_id=None, transaction_timeout=timedelta(seconds=1)
            ).producer_id
            for _ in range(3)
        ]
        assert len(set(ids)) == 3
        me = ids[0]
        assert put(wire, topic, bytes(batch(2, producer=(me, 0, 0)))) == (0, 0)
        assert put(wire, topic, bytes(batch(2, producer=(me, 0, 2))), acks=-1) == (0, 2)
        assert put(wire, topic, bytes(batch(2, producer=(me, 0, 2))), acks=-1) == (0, 2)
        gap = put(wire, topic, bytes(batch(2, producer=(me, 0, 9))))
        assert gap[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert put(wire, topic, bytes(batch(1, producer=(me, 1, 0)))) == (0, 4)
        old = put(wire, topic, bytes(batch(2, producer=(me, 0, 4))))
        assert old[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_that_lost_its_place_gets_the_next_epoch(address: str) -> None:
    with Wire(address) as wire:
        fields = {"transactional_id": None, "transaction_timeout": timedelta(seconds=1)}
        first = wire.ask(PRODUCER_ID, 3, **fields)
        bumped = wire.ask(PRODUCER_ID, 3, **fields, producer_id=first.producer_id, producer_epoch=0)
        assert (bumped.producer_id, bumped.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_are_found_by_place_and_time(address: str, topic: str, version: int) -> None:
    with Wire(address) as wire:
        for timestamp in (1000, 2000, 3000):
            put(wire, topic, bytes(batch(2, timestamp=timestamp)), acks=-1)

        def ask(timestamp: int, index: int = 0) -> tuple[int, int, int]:
            more = {"current_leader_epoch": -1} if version >= 4 else {}
            part = kind(OFFSETS, version, "request", "ListOffsetsPartition")(
                partition_index=index, timestamp=timestamp, **more
            )
            asked = kind(OFFSETS, version, "request", "ListOffsetsTopic")(
                name=topic, partitions=(part,)
            )
            isolation = {"isolation_level": 1} if version >= 2 else {}
            reply = wire.ask(OFFSETS, version, replica_id=-1, topics=(asked,), **isolation)
            found = reply.topics[0].partitions[0]
            if version >= 4 and found.offset >= 0:
                assert found.leader_epoch == 0
            return int(found.error_code), found.offset, found.timestamp

        assert ask(-2) == (0, 0, -1)
        assert ask(-1) == (0, 6, -1)
        assert ask(0) == (0, 0, 1000)
        assert ask(2001) == (0, 3, 2001)
        assert ask(3002) == (0, -1, -1)
        assert ask(-1, index=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if version >= 7:
            assert ask(-3) == (0, 5, 3001)
        for tiered in (-4, -5):  # known from version 8 and 9 on
            assert ask(tiered)[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(13))
def test_metadata(address: str, topic: str, version: int) -> None:
    name = kind(METADATA, version, "request", "MetadataRequestTopic")
    more: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    if version >= 8:
        more["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        more["include_cluster_authorized_operations"] = False
    ids: dict[str, Any] = {"topic_id": None} if version >= 10 else {}
    with Wire(address) as wire:
        one = wire.ask(METADATA, version, topics=(name(name=topic, **ids),), **more)
        every = wire.ask(METADATA, version, topics=None if version else (), **more)
        missing = None
        if version >= 4:
            asked = (name(name="nobody-made-me", **ids),)
            missing = wire.ask(METADATA, version, topics=asked, **more)
    [found] = one.topics
    [part] = found.partitions
    assert (found.name, found.error_code, part.leader_id) == (topic, 0, 1)
    assert [f"{b.host}:{b.port}" for b in one.brokers] == [address]
    assert topic in [t.name for t in every.topics]
    if version >= 7:
        assert part.leader_epoch == 0
    if missing is not None:
        assert missing.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_came_before_nonsense_is_taken_and_answered(address: str, topic: str) -> None:
    body = produce(topic, 0, bytes(batch(2)))
    good = struct.pack(">ihhih", 10 + len(body), PRODUCE, 7, 1, -1) + body
    with Wire(address) as wire:
        wire.socket.sendall(good + b"\0\0\0\x08nonsense")
        assert produced(wire.receive()[1], topic) == (0, 0)
        assert wire.closed()
    with Wire(address) as wire:
        assert put(wire, topic, bytes(batch())) == (0, 2)


def test_stored_batches_equal_sent_batches_except_for_their_offsets(
    address: str, topic: str
) -> None:
    with Wire(address) as wire:
        put(wire, topic, bytes(batch(2)), acks=-1)
        sent = bytes(batch(3, timestamp=77))
        put(wire, topic, sent, acks=-1)
        _, _, records = get(wire, topic, 2)
    assert check_batch(records).base_offset == 2
    assert records[16:] == sent[16:]


def test_a_client_that_does_not_read_is_not_read_from(address: str, topic: str) -> None:
    with Wire(address) as writer:
        for _ in range(8):
            put(writer, topic, bytes(batch(1, size=900_000)))
        put(writer, topic, bytes(batch(1)), acks=-1)
    with Wire(address) as wire:
        asked = 3000
        body = fetch(topic, 0, 0, max_bytes=1 << 23)
        frame = struct.pack(">ihhih", 10 + len(body), FETCH, 11, 1, -1) + body
        sent = 0
        wire.socket.settimeout(1.0)
        try:
            for _ in range(asked):
                wire.socket.sendall(frame)
                sent += 1
        except TimeoutError:
            pass
        with Wire(address) as other:
            assert other.ask(VERSIONS, 0).error_code == 0
        wire.socket.settimeout(DEADLINE)
        for _ in range(5):
            assert wire.receive()[0] == 1
