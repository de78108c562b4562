"""Decisions end with the grants they were made by; looking into batches is bounded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headworks._broker.handlers.client import Authority
from headworks._broker.handlers.record_validation import asked_for, judge
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import FETCH
from headworks._kafka.protocol.produce import Part, ProduceRequest
from headworks._kafka.records.batch import Batch
from headworks._kafka.records.compression import Codec, compress
from headworks._kafka.records.rewrite import _sealed
from headworks._kafka.records.varint import write_varint
from headworks._server.security import Access, Principal
from headworks._server.security.grants import read_grants
from headworks._server.security.rereading import Reread
from headworks._server.security.sasl import LoginError, ScramExchange

NARROW = '[[grants]]\nto = ["ann"]\nroles = ["reader"]\nprefix = "shop."\n'
WIDE = '[[grants]]\nto = ["ann"]\nroles = ["reader"]\n'


@pytest.mark.parametrize("meanwhile", [WIDE, "not TOML"])
def test_a_decision_by_grants_that_were_there_for_a_moment_does_not_stay(
    tmp_path: Path, meanwhile: str
) -> None:
    file, now = tmp_path / "access.toml", [0.0]
    file.write_text(NARROW)
    authority = Authority(Access(Reread(file, read_grants, clock=lambda: now[0])))
    may = authority.permissions(Principal("ann"))
    assert may is not None

    file.write_text(meanwhile)
    now[0] += 1.0
    asked = {name: may.topic(FETCH, name) for name in ("shop.orders", "pay.cards")}
    assert asked["pay.cards"] == (meanwhile == WIDE)

    file.write_text(NARROW)
    now[0] += 1.0
    authority.refresh()
    assert may.topic(FETCH, "shop.orders")
    assert not may.topic(FETCH, "pay.cards")


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
    config = SimpleNamespace(
        inspected=True, compacted=False, schema_validation=True, max_message_bytes=1 << 20
    )
    partition = SimpleNamespace(topic="t", config=config)
    catalogue = SimpleNamespace(
        partition=lambda _topic, _index: partition, schema_ids=SimpleNamespace(url="http://r")
    )
    node: Any = SimpleNamespace(catalogue=catalogue)
    client: Any = SimpleNamespace(sees_topic=lambda _api, _topic: True)
    buffer, parts = bytearray(), []
    for size in sizes:
        start = len(buffer)
        buffer += _many(size, b"")
        parts.append(Part("t", 0, start, len(buffer)))
    asked = asked_for(node, client, ProduceRequest(None, 1, parts), buffer)
    found = judge(asked, buffer, catalogue.schema_ids).refusals
    assert len(buffer) < 2000
    *before, last = (found[number] for number in range(len(sizes)))
    assert last.code == ErrorCode.MESSAGE_TOO_LARGE
    assert all(each.code == ErrorCode.INVALID_RECORD for each in before)
    assert all(len(each.records) == 100 for each in before)


def test_a_proof_that_is_not_even_ascii_is_a_failed_login() -> None:
    exchange = ScramExchange(lambda _: None, lambda: "server")
    exchange.step(b"n,,n=ann,r=client")
    with pytest.raises(LoginError, match="not base64"):
        exchange.step("c=biws,r=clientserver,p=é".encode())
