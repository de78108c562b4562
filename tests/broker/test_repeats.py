"""A produce request that is like the last one is known without being parsed: to the same effect."""

from __future__ import annotations

import importlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from broker.protocol.frame import parse_header
from broker.protocol.produce import Repeats, Result, encode_reply, parse_request
from broker.records.varint import write_unsigned


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
        body = b"\0\0" + struct.pack(">hi", acks, 500) + b"\x02" + size + name + b"\x02"
        length = write_unsigned(len(records) + 1)
        return head + body + struct.pack(">i", index) + length + records + b"\0\0\0"
    body = struct.pack(">hhiih", -1, acks, 500, 1, len(name)) + name
    return head + body + struct.pack(">iii", 1, index, len(records)) + records


def parsed(data: bytearray) -> tuple[object, ...]:
    """What parsing finds, but for where the body begins."""
    header = parse_header(data, 0, len(data))
    return header[:4], parse_request(data, header.body, len(data), header.version)


def learned(data: bytearray) -> Repeats:
    repeats = Repeats()
    header = parse_header(data, 0, len(data))
    repeats.learn(data, 0, header, parse_request(data, header.body, len(data), header.version))
    return repeats


@given(
    version=st.integers(3, 9),
    first=st.binary(min_size=1, max_size=300),
    second=st.binary(min_size=1, max_size=300),
    correlation=st.integers(0, (1 << 31) - 1),
    index=st.integers(0, (1 << 31) - 1),
    client=st.text(max_size=20),
)
def test_a_repeated_request_is_known(
    version: int, first: bytes, second: bytes, correlation: int, index: int, client: str
) -> None:
    repeats = learned(bytearray(request(version, 1, first, client=client)))
    data = bytearray(request(version, correlation, second, index=index, client=client))
    found = repeats.find(data, 0, len(data))
    assert found is not None
    assert (found[0][:4], found[1]) == parsed(data)


@given(data=st.data(), version=st.integers(3, 9))
def test_whatever_is_known_is_what_parsing_finds(data: st.DataObject, version: int) -> None:
    repeats = learned(bytearray(request(version, 1, b"records")))
    other = bytearray(request(version, 2, b"other records"))
    at = data.draw(st.integers(0, len(other) - 1))
    other[at] = data.draw(st.integers(0, 255))
    found = repeats.find(other, 0, len(other))
    if found is not None:
        assert (found[0][:4], found[1]) == parsed(other)


@pytest.mark.parametrize("version", [3, 7, 9])
@pytest.mark.parametrize("change", [{"topic": "tropic"}, {"acks": -1}, {"client": "clients"}])
def test_another_request_is_not_taken_for_the_last(version: int, change: dict[str, object]) -> None:
    repeats = learned(bytearray(request(version, 1, b"records")))
    data = bytearray(request(version, 2, b"records", **change))  # type: ignore[arg-type]
    assert repeats.find(data, 0, len(data)) is None


@pytest.mark.parametrize("version", [3, 9])
def test_a_request_of_another_version_or_a_cut_one_is_parsed(version: int) -> None:
    repeats = learned(bytearray(request(version, 1, b"records")))
    data = bytearray(request(version + 1 if version < 9 else 8, 2, b"records"))
    assert repeats.find(data, 0, len(data)) is None
    data = bytearray(request(version, 2, b"records"))
    for end in range(len(data)):
        assert repeats.find(data, 0, end) is None


def test_nothing_is_known_before_the_first_or_after_one_without_records() -> None:
    data = bytearray(request(7, 1, b"records"))
    assert Repeats().find(data, 0, len(data)) is None
    empty = bytearray(request(7, 1, b""))
    repeats = learned(data)
    header = parse_header(empty, 0, len(empty))
    repeats.learn(empty, 0, header, parse_request(empty, header.body, len(empty), 7))
    assert repeats.find(data, 0, len(data)) is None


@given(
    version=st.integers(3, 9),
    topic=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    index=st.integers(0, 1000),
    offset=st.integers(0, 1 << 62),
    log_start=st.integers(0, 1 << 62),
)
def test_the_short_way_to_a_reply_says_what_it_should(
    version: int, topic: str, index: int, offset: int, log_start: int
) -> None:
    frame = encode_reply(7, version, [Result(topic, index, 0, offset, -1, log_start)])
    head = 9 if version >= 9 else 8
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    module = importlib.import_module(f"kio.schema.produce.v{version}.response")
    reply, size = entity_reader(module.ProduceResponse)(frame[head:], 0)
    assert size == len(frame) - head
    (found,) = reply.responses
    (partition,) = found.partition_responses
    assert (found.name, partition.index, partition.base_offset) == (topic, index, offset)
    assert partition.error_code.value == 0
    assert version < 5 or partition.log_start_offset == log_start
