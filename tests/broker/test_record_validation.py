"""Record validation: bounded per request, and large requests delay no other client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headworks._broker.handlers.record_validation import BatchToValidate, is_large, validate_batches
from headworks._broker.topics import TopicConfig
from headworks._broker.topics.config import resolve_config
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import Codec, Record, check_batch, encode_batch
from tests.broker.test_limits import connected, framed, receive, run, serving
from tests.broker.wire import produce, produced

pytestmark = pytest.mark.unit

MB = 1 << 20
COMPACTED = {"cleanup.policy": "compact"}


@dataclass
class Target:
    """What `validate_batches` sees of a partition."""

    topic: str
    config: TopicConfig


def asked(number: int, config: TopicConfig, buffer: bytearray, data: bytes) -> BatchToValidate:
    buffer += data
    batch = check_batch(buffer, len(buffer) - len(data), len(buffer))
    target: Any = Target("t", config)
    return BatchToValidate(number, target, batch)


def packed(size: int, count: int = 1) -> bytes:
    value = bytes(size // count)
    records = [Record(0, 1000, b"k", value, ()) for _ in range(count)]
    return encode_batch(records, codec=Codec.ZSTD)


def test_what_the_parts_of_a_request_become_is_bounded_together() -> None:
    config = resolve_config(COMPACTED, {})
    buffer = bytearray()
    parts = [asked(number, config, buffer, packed(12 * MB)) for number in range(4)]
    refusals = validate_batches(parts, buffer, None).refusals
    assert sorted(refusals) == [2, 3]
    assert "decompressed, the records exceed" in str(refusals[2])
    one = [asked(0, config, buffer, packed(31 * MB))]
    assert not validate_batches(one, buffer, None).refusals


def test_large_requests_are_those_above_the_bound() -> None:
    config = resolve_config(COMPACTED, {})
    buffer = bytearray()
    assert not is_large([asked(0, config, buffer, packed(MB, 2000))])
    assert is_large([asked(n, config, buffer, packed(MB, 1500)) for n in range(2)])


@pytest.mark.e2e
def test_a_large_request_is_looked_at_beside_and_stays_in_order(tmp_path: Path) -> None:
    """It and a small one behind it come in one piece; others are answered meanwhile."""

    async def test() -> None:
        large, small = packed(MB, 50_000), packed(10)
        async with serving(tmp_path) as server:
            hosted = server.node.hosted
            for name in ("large", "other"):
                await server.node.topic_changes.create(name, 1, COMPACTED)
            log = hosted.topics["large"].partitions[0].log
            async with connected(server) as (reader, writer), connected(server) as (other, to):
                async with server.node.validation_lock:  # whatever that takes: here until this ends
                    for data in (large, small, large, small):
                        writer.write(framed(ApiKey.PRODUCE, 7, produce("large", 0, data)))
                    to.write(framed(ApiKey.PRODUCE, 7, produce("other", 0, small)))
                    assert produced((await receive(other))[4:], "other") == (0, 0)
                    assert log.log_end_offset == 0
                answers = [(await receive(reader))[4:] for _ in range(4)]
                found = [produced(answer, "large") for answer in answers]
                assert found == [(0, 0), (0, 50_000), (0, 50_001), (0, 100_001)]

    run(test)


def test_a_large_batch_that_gets_another_codec_is_large_even_if_it_is_not_packed() -> None:
    data = encode_batch([Record(0, 1000, b"k", bytes(MB), ())])
    for codec, large in (("zstd", True), ("uncompressed", False), ("producer", False)):
        config = resolve_config({"compression.type": codec}, {})
        assert is_large([asked(0, config, bytearray(), data)]) is large
