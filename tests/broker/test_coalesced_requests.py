"""Produce requests like the last one are known without being parsed: to the same effect."""

from __future__ import annotations

import importlib
import itertools
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.frame import parse_header
from headworks._kafka.protocol.produce import (
    MatchedRequest,
    ProduceResult,
    ProduceTemplate,
    encode_offset_replies,
    encode_reply,
    parse_request,
)
from headworks._kafka.records.varint import write_unsigned
from tests.broker.build import batch
from tests.broker.conftest import start_broker
from tests.broker.wire import Wire, agrees, fetch, fetched, kind, produce, produced

pytestmark = pytest.mark.unit

_topics = itertools.count()


def request(
    version: int,
    correlation: int,
    records: bytes,
    *,
    client: str = "client",
    topic: str = "topic",
    index: int = 3,
    acks: int = 1,
) -> bytes:
    """A produce request without its length; `records` stand for a batch."""
    name, who = topic.encode(), client.encode()
    head = struct.pack(">hhih", 0, version, correlation, len(who)) + who
    if version >= 9:
        size = write_unsigned(len(name) + 1)
        named = topic_id(topic) if version >= 13 else size + name
        body = b"\0\0" + struct.pack(">hi", acks, 500) + b"\x02" + named + b"\x02"
        length = write_unsigned(len(records) + 1)
        return head + body + struct.pack(">i", index) + length + records + b"\0\0\0"
    body = struct.pack(">hhiih", -1, acks, 500, 1, len(name)) + name
    return head + body + struct.pack(">iii", 1, index, len(records)) + records


def topic_id(topic: str) -> bytes:
    """The id that a topic of this name has in these tests."""
    return uuid.uuid5(uuid.NAMESPACE_URL, topic).bytes


def learned(data: bytearray) -> ProduceTemplate:
    template = ProduceTemplate()
    header = parse_header(data, 0, len(data))
    template.learn(data, header, parse_request(data, header.body, len(data), header.version))
    return template


def framed(*requests: bytes) -> bytearray:
    return bytearray(b"".join(struct.pack(">i", len(one)) + one for one in requests))


def found_in(
    template: ProduceTemplate, data: bytearray, *, end: int | None = None
) -> list[MatchedRequest]:
    return list(template.matches(data, 0, len(data) if end is None else end, 1 << 20))


@given(
    version=st.integers(3, 13),
    first=st.binary(min_size=1, max_size=300),
    others=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=300),
            st.integers(0, (1 << 31) - 1),
            st.integers(0, (1 << 31) - 1),
        ),
        max_size=4,
    ),
    client=st.text(max_size=20),
)
def test_repeated_requests_are_known(
    version: int, first: bytes, others: list[tuple[bytes, int, int]], client: str
) -> None:
    template = learned(bytearray(request(version, 1, first, client=client)))
    data = framed(
        *(
            request(version, number, records, index=index, client=client)
            for records, number, index in others
        )
    )
    found = found_in(template, data)
    assert len(found) == len(others)
    starts = [0, *(one[-1] for one in found)]
    assert all(agrees(template, data, one, at) for one, at in zip(found, starts, strict=False))
    assert starts[-1] == len(data)


@given(data=st.data(), version=st.integers(3, 13))
def test_matched_requests_equal_parsed_requests(data: st.DataObject, version: int) -> None:
    template = learned(bytearray(request(version, 1, b"records")))
    others = framed(*(request(version, number, b"other records") for number in range(3)))
    at = data.draw(st.integers(0, len(others) - 1))
    others[at] = data.draw(st.integers(0, 255))
    start = 0
    for one in found_in(template, others):
        assert agrees(template, others, one, start)
        start = one[-1]


@pytest.mark.parametrize("version", [3, 7, 9, 13])
@pytest.mark.parametrize("change", [{"topic": "tropic"}, {"acks": -1}, {"client": "clients"}])
def test_another_request_is_not_taken_for_the_last(version: int, change: dict[str, object]) -> None:
    template = learned(bytearray(request(version, 1, b"records")))
    same = request(version, 2, b"records")
    data = framed(same, request(version, 3, b"records", **change), same)  # type: ignore[arg-type]
    assert [one[0] for one in found_in(template, data)] == [2]


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_request_of_another_version_or_a_cut_or_large_one_is_parsed(version: int) -> None:
    template = learned(bytearray(request(version, 1, b"records")))
    data = framed(request(version + 1 if version < 13 else 12, 2, b"records"))
    assert not found_in(template, data)
    data = framed(request(version, 2, b"records"))
    for end in range(len(data)):
        assert not found_in(template, data, end=end)
    assert list(template.matches(data, 0, len(data), len(data) - 4))
    assert not list(template.matches(data, 0, len(data), len(data) - 5))


def test_nothing_is_known_before_the_first_or_after_one_without_records() -> None:
    one = request(7, 1, b"records")
    data = framed(one)
    assert not found_in(ProduceTemplate(), data)
    empty = bytearray(request(7, 1, b""))
    template = learned(bytearray(one))
    header = parse_header(empty, 0, len(empty))
    template.learn(empty, header, parse_request(empty, header.body, len(empty), 7))
    assert not found_in(template, data)


@given(
    version=st.integers(3, 13),
    topic=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    index=st.integers(0, 1000),
    offset=st.integers(0, 1 << 62),
    log_start=st.integers(0, 1 << 62),
)
def test_prepared_replies_equal_encoded_replies(
    version: int, topic: str, index: int, offset: int, log_start: int
) -> None:
    named = topic_id(topic) if version >= 13 else topic
    frame = encode_reply(7, version, [ProduceResult(named, index, 0, offset, -1, log_start)])
    assert encode_offset_replies(version, named, index, log_start, [(7, offset)] * 3) == 3 * frame
    head = 9 if version >= 9 else 8
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    module = importlib.import_module(f"kio.schema.produce.v{version}.response")
    reply, size = entity_reader(module.ProduceResponse)(frame[head:], 0)
    assert size == len(frame) - head
    (found,) = reply.responses
    (partition,) = found.partition_responses
    assert (partition.index, partition.base_offset) == (index, offset)
    assert (found.topic_id.bytes if version >= 13 else found.name) == named
    assert partition.error_code.value == 0
    assert version < 5 or partition.log_start_offset == log_start


# -- what a run of them leads to, at a broker ----------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_broker(tmp_path_factory.mktemp("runs"), "--default-partitions", "2") as process:
        yield process.address


class Sent(NamedTuple):
    """A produce request of a law's example."""

    partition: int
    acks: int
    records: bytes


@st.composite
def work(draw: st.DrawFn) -> list[Sent]:
    """Requests, one or the other with something wrong, of two producers and of none."""
    numbers = {1: 0, 2: 0}
    out = []
    for _ in range(draw(st.integers(2, 25))):
        what = draw(st.sampled_from(["good"] * 9 + ["crc", "again", "gap", "nowhere", "two"]))
        producer, count = draw(st.sampled_from([None, 1, 2])), draw(st.integers(1, 3))
        numbered = (-1, -1, -1)
        if producer is not None:
            first = numbers[producer] + {"gap": 5, "again": -count}.get(what, 0)
            numbered = (producer, 0, max(first, 0))
            numbers[producer] += count if what == "good" else 0
        records = batch(count, size=draw(st.integers(0, 100)), producer=numbered)
        records[-1] ^= what == "crc"
        partition = 99 if what == "nowhere" else draw(st.sampled_from([0, 0, 0, 1]))
        acks = draw(st.sampled_from([1] * 9 + [-1] + [0] * (what == "good" and producer is None)))
        out.append(Sent(partition, acks, bytes(records) * (1 + (what == "two"))))
    return out


def outcome(address: str, sent: Sequence[Sent], *, alike: bool) -> list[object]:
    """The replies to requests sent all at once, and what then lies in the partitions."""
    topic = f"run-{next(_topics)}"
    frames = framed(
        *(
            # One client's requests repeat each other, those of two in turn never do.
            request(
                7,
                n,
                one.records,
                topic=topic,
                index=one.partition,
                acks=one.acks,
                client="client" if alike else f"client-{n % 2}",
            )
            for n, one in enumerate(sent)
        )
    )
    with Wire(address) as wire:
        wire.ask(
            3,
            4,
            topics=(kind(ApiKey.METADATA, 4, "request", "MetadataRequestTopic")(name=topic),),
            allow_auto_topic_creation=True,
        )
        wire.socket.sendall(frames)
        replies: list[object] = []
        for number, one in enumerate(sent):
            if one.acks:
                correlation, body = wire.receive()
                assert correlation == number
                replies.append(produced(body, topic))
        for partition in (0, 1):
            wire.send(ApiKey.PRODUCE, 7, produce(topic, partition, bytes(batch()), acks=-1))
            wire.receive()  # all before it is flushed, and can be read
            wire.send(ApiKey.FETCH, 11, fetch(topic, partition, 0))
            replies.append(fetched(wire.receive()[1]))
    return replies


@pytest.mark.e2e
@settings(max_examples=60, deadline=None)
@given(sent=work())
def test_a_run_of_requests_has_the_effect_of_each_by_itself(address: str, sent: list[Sent]) -> None:
    assert outcome(address, sent, alike=True) == outcome(address, sent, alike=False)
