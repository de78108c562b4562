"""Small requests that would have large answers: each is answered in bounds, or not at all."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from pathlib import Path

import pytest

from headworks._broker.handlers.node import ReplyCache
from headworks._broker.server.limits import MemoryAccount, MemoryPool
from headworks._kafka.protocol import APIS, MalformedError, decode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.frame import MAX_ARRAY_ELEMENTS, MAX_REQUEST_ELEMENTS
from tests.broker.build import batch
from tests.broker.test_limits import closed, connected, framed, receive, run, serving
from tests.broker.wire import kind, produce, reply, request

pytestmark = pytest.mark.e2e

_KB = 1 << 10


def test_arrays_in_arrays_are_bounded_together() -> None:
    """A reply has an element for each, and takes longer to write than the request to read."""
    fetch = 9
    groups = struct.pack(">h", 1) + b"g"
    topic = (
        struct.pack(">h", 1)
        + b"t"
        + struct.pack(">i", MAX_ARRAY_ELEMENTS)
        + bytes(4) * MAX_ARRAY_ELEMENTS
    )
    fits, many = (
        MAX_REQUEST_ELEMENTS // MAX_ARRAY_ELEMENTS - 1,
        MAX_REQUEST_ELEMENTS // MAX_ARRAY_ELEMENTS,
    )
    message = decode(APIS[fetch], 5, groups + struct.pack(">i", fits) + topic * fits)
    assert len(message.topics) == fits
    with pytest.raises(MalformedError, match=f"more than {MAX_REQUEST_ELEMENTS} elements"):
        decode(APIS[fetch], 5, groups + struct.pack(">i", many) + topic * many)


def test_what_is_named_many_times_is_answered_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as server, connected(server) as (reader, writer):
            topic = kind(ApiKey.METADATA, 8, "request", "MetadataRequestTopic")(name="t")
            resource = kind(ApiKey.DESCRIBE_CONFIGS, 1, "request", "DescribeConfigsResource")(
                resource_type=2, resource_name="t", configuration_keys=None
            )
            group = kind(ApiKey.OFFSET_FETCH, 8, "request", "OffsetFetchRequestGroup")(
                group_id="g", topics=None
            )
            for key, version, where, fields in (
                (
                    *(3, 8, "topics"),
                    {
                        "topics": (topic,) * 5000,
                        "allow_auto_topic_creation": False,
                        "include_cluster_authorized_operations": False,
                        "include_topic_authorized_operations": False,
                    },
                ),
                (15, 0, "groups", {"groups": ("g",) * 5000}),
                (
                    *(32, 1, "results"),
                    {"resources": (resource,) * 1000, "include_synonyms": True},
                ),
                (9, 8, "groups", {"groups": (group,) * 5000, "require_stable": False}),
            ):
                writer.write(framed_request(key, version, request(key, version, **fields)))
                answer = reply(key, version, (await receive(reader))[4:])
                assert len(getattr(answer, where)) == 1, APIS[key].name

    run(test)


def framed_request(key: int, version: int, body: bytes) -> bytes:
    tags = b"\0" if APIS[key].is_flexible(version) else b""
    return framed(key, version, tags + body)


def test_replies_that_are_not_read_take_of_the_memory_and_give_it_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, memory_bytes=4 << 20, stall_seconds=60.0) as server:
            for number in range(300):
                await server.node.topic_changes.create(f"{'a-topic' * 30}-{number}", 1, {})
            every = framed(
                ApiKey.METADATA, 1, struct.pack(">i", -1)
            )  # all topics: 75 KB of reply each
            async with connected(server) as (reader, writer):
                for _ in range(3):
                    writer.write(every * 20)
                    for _ in range(20):
                        assert len(await receive(reader)) > 70_000
                assert server.memory.available == server.memory.size
            async with connected(server) as (_, writer):
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                for _ in range(3):
                    writer.write(every * 60)
                while server.connections:
                    await asyncio.sleep(0.01)
            assert server.node.counters.failed["memory"] == 1
            assert server.memory.available == server.memory.size

    run(test)


def test_small_requests_that_wait_add_up() -> None:
    memory = MemoryPool(1 << 20)
    account = MemoryAccount(memory)
    costs = [account.charge_request(_KB) for _ in range(16)]
    assert memory.available == memory.size, "a little is free"
    more = [account.charge_request(_KB) for _ in range(64)]
    assert memory.available == 0
    assert account.charge_request(_KB) is None
    for cost in (*costs, *more):
        assert cost == 16 * _KB
        account.release(cost)
    assert memory.available == memory.size
    assert account.try_allocate(1 << 20)
    account.close()
    assert memory.available == memory.size


def test_replies_are_kept_in_bounds() -> None:
    replies = ReplyCache(limit=3, size=100)
    replies.keep("large", 1, bytes(101))
    assert replies.find("large", 1) is None
    replies.keep("a", 1, bytes(60))
    replies.keep("b", 1, bytes(40))
    assert replies.find("a", 1) == bytes(60)
    replies.keep("c", 1, bytes(1))
    assert replies.find("a", 1) is None
    assert replies.find("c", 1) == bytes(1)
    assert replies.find("c", 2) is None


def test_what_a_client_calls_a_topic_stays_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as server, connected(server) as (reader, writer):
            name = "x\n2026-01-01 INFO all is well " + "x" * 30_000
            writer.write(framed(ApiKey.PRODUCE, 7, produce(name, 0, bytes(batch()), acks=0)))
            assert await closed(reader)

    with caplog.at_level(logging.WARNING):
        run(test)
    [said] = [one for one in caplog.messages if "acks=0" in one]
    assert "\n" not in said
    assert len(said) < 1000


def test_a_client_whose_machine_is_gone_is_noticed(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as server, connected(server) as (reader, writer):
            writer.write(framed(ApiKey.LIST_GROUPS, 0, b""))
            await receive(reader)
            [connection] = server.connections
            sock = connection._stream.sock
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60

    run(test)
