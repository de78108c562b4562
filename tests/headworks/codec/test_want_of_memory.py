"""Each allocation of the compiled codec fails once: MemoryError is raised, or nothing is wrong.

The failures are injected below Python's allocators, so those of the C files are among them. What a
failure leaves behind is seen by the next call, which must give the right result.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from consumer_sdk._event_program import event_decoder
from headworks._decoding.datum_check import DatumCheck
from headworks._native import decoder
from headworks._wire import prefix
from headworks.schema import parse
from tests.headworks.codec.generated_packages import build
from tests.headworks.decoding.test_compiled_decoder import record
from tests.tools import needs
from tests.want_of_memory import fail_each_allocation

pytestmark = [pytest.mark.e2e, needs("extensions")]

SCHEMA = {
    "type": "record",
    "name": "Seen",
    "namespace": "memory",
    "headworks": {"event_time": "at", "key": ["member"]},
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "member", "type": "long"},
        {"name": "score", "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "pages", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "raw", "type": "bytes"},
    ],
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    modules = build(tmp_path_factory.mktemp("memory"), {"seen.avsc": json.dumps(SCHEMA)})
    return next(m for m in modules.values() if hasattr(m, "Seen"))


@pytest.fixture(scope="module")
def event(module: Any) -> Any:
    return module.Seen(
        at=datetime(2026, 5, 1, tzinfo=UTC),
        id=UUID(int=1 << 100),
        member=1 << 40,
        score=0.5,
        tags={f"key {n}": "value" * n for n in range(20)},
        pages=[None, "é" * 300, *map(str, range(30))],
        raw=bytes(1000),
    )


def test_encoding(module: Any, event: Any) -> None:
    encoder = module.Seen.__headworks__.encoder
    fail_each_allocation(lambda: encoder.encode(event), least=1)
    fail_each_allocation(lambda: encoder.message(prefix(7), event), least=3)


def test_events(module: Any, event: Any) -> None:
    schema, kind = parse(json.dumps(SCHEMA)), module.Seen.__headworks__
    data = kind.encode(event)
    decode = event_decoder(schema, schema, kind.types)
    fail_each_allocation(lambda: repr(decode(data, 0)), least=60)


def test_verdicts(module: Any, event: Any) -> None:
    data = module.Seen.__headworks__.encode(event)
    check, numbers = DatumCheck(parse(json.dumps(SCHEMA))), (0).to_bytes(8, "little")
    spans = numbers + len(data).to_bytes(8, "little")
    fail_each_allocation(lambda: check.find_bad(data, numbers, spans, 0, 9), least=3)


def test_frames() -> None:
    body = b"".join(record(n, b"key", b"\0\0\0\0\1value") for n in range(9))
    fail_each_allocation(lambda: decoder.find_frames(body, 9), least=4)
