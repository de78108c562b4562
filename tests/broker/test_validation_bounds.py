"""The broker looks into a bounded number of records per produce request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headworks._broker.handlers.record_validation import batches_to_validate, validate_batches
from headworks._broker.topics import SchemaValidation
from headworks._broker.topics.config import VALIDATION, resolve_config
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.produce import PartitionRecords, ProduceRequest
from headworks._kafka.records.batch import Batch
from headworks._kafka.records.compression import Codec, compress
from headworks._kafka.records.rewrite import _sealed
from headworks._kafka.records.varint import write_varint

pytestmark = pytest.mark.unit


def _many(count: int, value: bytes) -> bytes:
    """A batch of as many equal records, which compresses to next to nothing."""
    record = b"\0\0\0\x01" + write_varint(len(value)) + value + b"\0"
    body = compress(int(Codec.ZSTD), (write_varint(len(record)) + record) * count)
    blank = Batch._make([0] * len(Batch._fields))
    return _sealed(
        blank._replace(
            magic=2, attributes=int(Codec.ZSTD), last_offset_delta=count - 1, record_count=count
        ),
        body,
    )


@pytest.mark.parametrize("sizes", [(100_001,), (50_000, 50_001)])
def test_what_is_looked_at_for_one_request_is_bounded(sizes: tuple[int, ...]) -> None:
    config = resolve_config({VALIDATION: SchemaValidation.IDS.value}, {})
    partition = SimpleNamespace(topic="t", config=config)
    hosted = SimpleNamespace(
        name_of=str,
        opened_topics={"t"},
        partition=lambda _topic, _index: partition,
        schema_ids=SimpleNamespace(url="http://r"),
    )
    node: Any = SimpleNamespace(hosted=hosted)
    client: Any = SimpleNamespace(sees_topic=lambda _api, _topic: True)
    buffer, parts = bytearray(), []
    for size in sizes:
        start = len(buffer)
        buffer += _many(size, b"")
        parts.append(PartitionRecords("t", 0, start, len(buffer)))
    asked = batches_to_validate(node, client, ProduceRequest(None, 1, parts), buffer)
    found = validate_batches(asked, buffer, hosted.schema_ids).refusals
    assert len(buffer) < 2000
    *before, last = (found[number] for number in range(len(sizes)))
    assert last.code == ErrorCode.MESSAGE_TOO_LARGE
    assert all(each.code == ErrorCode.INVALID_RECORD for each in before)
    assert all(len(each.records) == 100 for each in before)
