"""Looking into batches: bounded for a request as a whole, and large ones keep nobody waiting."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.handlers.inspection import Asked, is_large, judge
from broker.records import Codec, Record, check_batch, encode_batch
from broker.topics import TopicConfig
from broker.topics.config import resolve_config
from tests.broker.conftest import start_broker
from tests.broker.test_validation import create
from tests.broker.wire import Wire, produce, produced

MB = 1 << 20
COMPACTED = {"cleanup.policy": "compact"}


@dataclass
class Target:
    """What `judge` sees of a partition."""

    topic: str
    config: TopicConfig


def asked(number: int, config: TopicConfig, buffer: bytearray, data: bytes) -> Asked:
    buffer += data
    batch = check_batch(buffer, len(buffer) - len(data), len(buffer))
    target: Any = Target("t", config)
    return Asked(number, target, batch)


def packed(size: int, count: int = 1) -> bytes:
    value = bytes(size // count)
    records = [Record(0, 1000, b"k", value, ()) for _ in range(count)]
    return encode_batch(records, codec=Codec.ZSTD)


def test_what_the_parts_of_a_request_become_is_bounded_together() -> None:
    config = resolve_config(COMPACTED, {})
    buffer = bytearray()
    parts = [asked(number, config, buffer, packed(12 * MB)) for number in range(4)]
    refusals = judge(parts, buffer, None).refusals
    assert sorted(refusals) == [2, 3]
    assert "decompressed, the records exceed" in str(refusals[2])
    one = [asked(0, config, buffer, packed(31 * MB))]
    assert not judge(one, buffer, None).refusals


def test_large_is_what_would_keep_the_loop() -> None:
    config = resolve_config(COMPACTED, {})
    buffer = bytearray()
    assert not is_large([asked(0, config, buffer, packed(MB, 2000))])
    assert is_large([asked(n, config, buffer, packed(MB, 1500)) for n in range(2)])


def test_a_large_request_is_looked_at_beside_and_stays_in_order(tmp_path: Path) -> None:
    """It and a small one behind it come in one piece; others are answered meanwhile."""
    with start_broker(tmp_path) as broker:
        create(broker.address, "t", COMPACTED)
        create(broker.address, "u", COMPACTED)
        large, small = packed(MB, 50_000), packed(10)
        with Wire(broker.address, 60.0) as wire, Wire(broker.address, 60.0) as other:
            bodies = [produce("t", 0, data) for data in (large, small, large, small)]
            for body in bodies:
                wire.send(0, 7, body)
            began = time.monotonic()
            other.send(0, 7, produce("u", 0, small))
            assert produced(other.receive()[1], "u") == (0, 0)
            waited = time.monotonic() - began
            answers = [wire.receive() for _ in bodies]
            whole = time.monotonic() - began
            found = [produced(answer, "t") for _, answer in answers]
        assert found == [(0, 0), (0, 50_000), (0, 50_001), (0, 100_001)]
        assert waited < whole
