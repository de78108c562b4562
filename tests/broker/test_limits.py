"""Limits: a slow, greedy, or silent client is dropped or throttled, and harms nobody."""

from __future__ import annotations

import asyncio
import struct
import time
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headworks._broker.server import BrokerServer, ServerConfig
from headworks._broker.server.limits import ClientLimits
from headworks._broker.server.stall_detector import StallDetector
from headworks._kafka.protocol.apis import ApiKey
from tests.broker.build import batch
from tests.broker.wire import fetch, produce, request
from tests.waiting import within_some_time

pytestmark = pytest.mark.e2e

LIST = request(ApiKey.LIST_GROUPS, 0)
VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def framed(key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">ihhih", 10 + len(body), key, version, 1, -1) + body


@asynccontextmanager
async def serving(folder: Path, **limits: Any) -> AsyncIterator[BrokerServer]:
    server = BrokerServer(ServerConfig(folder, limits=ClientLimits(**limits)))
    await server.start()
    try:
        await server.node.topic_changes.create("t", 1, {})
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(server: BrokerServer) -> AsyncIterator[tuple[Reader, Writer]]:
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def receive(reader: Reader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


async def closed(reader: Reader) -> bool:
    try:
        return await reader.read(1) == b""
    except OSError:
        return True


def test_a_request_that_comes_drop_by_drop_is_dropped(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path, stall_seconds=0.5, min_bytes_per_second=10_000) as server,
            connected(server) as (reader, writer),
            connected(server) as (other, to),
        ):
            body = framed(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=50_000))))
            to.write(VERSIONS)
            await receive(other)
            await asyncio.sleep(1.0)  # silent, with nothing begun: that is no stall
            began = time.monotonic()
            writer.write(body[:100])
            gone = asyncio.ensure_future(closed(reader))
            while not gone.done():
                writer.write(b"x")
                await asyncio.sleep(0.05)
            assert time.monotonic() - began > 0.4
            assert gone.result()
            assert server.node.counters.failed["stalled"] == 1
            to.write(VERSIONS)
            assert await receive(other)

    run(test)


def test_a_slow_request_that_moves_is_served(tmp_path: Path) -> None:
    def check(stall_seconds: float) -> None:
        folder = tmp_path / str(stall_seconds)
        run(lambda: move(folder, stall_seconds))

    async def move(folder: Path, stall_seconds: float) -> None:
        async with (
            serving(folder, stall_seconds=stall_seconds, min_bytes_per_second=10) as server,
            connected(server) as (reader, writer),
        ):
            body = framed(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=20_000))))
            for at in range(0, len(body), 2_000):
                writer.write(body[at : at + 2_000])
                await asyncio.sleep(stall_seconds / 3)
            assert not await closed(reader)

    within_some_time(check, 0.3, 1.5, 12.0)


def test_replies_that_are_not_read_are_held_in_bounds_and_then_dropped(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, stall_seconds=1.0, max_unsent_bytes=100_000) as server:
            for number in range(300):
                await server.node.topic_changes.create(f"a-topic-{number}", 1, {})
            async with connected(server) as (_, writer):
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                every = framed(
                    ApiKey.METADATA, 1, struct.pack(">i", -1)
                )  # all topics: 20 KB of reply each
                writer.write(every * 3000)
                most = 0
                while server.connections:
                    most = max(most, *(c.unsent for c in server.connections), 0)
                    await asyncio.sleep(0.02)
                assert 0 < most < 100_000 + 64 * 30_000
                assert server.node.counters.failed["stalled"] == 1

    run(test)


def test_replies_behind_one_that_waits_are_held_in_bounds(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_unsent_bytes=50_000) as server:
            for number in range(100):
                await server.node.topic_changes.create(f"a-topic-{number}", 1, {})
            async with connected(server) as (reader, writer):
                parked = framed(ApiKey.FETCH, 11, fetch("t", 0, 0, wait_ms=1500))
                every = framed(ApiKey.METADATA, 1, struct.pack(">i", -1))
                writer.write(parked + every * 2000)
                await asyncio.sleep(0.7)
                [connection] = server.connections
                assert connection.unsent < 50_000 + 64 * 10_000
                for _ in range(2001):
                    await receive(reader)

    run(test)


def test_requests_that_wait_are_limited_per_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path, max_pending=4) as server,
            connected(server) as (reader, writer),
            connected(server) as (other, to),
        ):
            writer.write(framed(ApiKey.FETCH, 11, fetch("t", 0, 0, wait_ms=300)) * 9)
            partition = server.node.hosted.partition("t", 0)
            assert partition is not None
            while not partition.readers:
                await asyncio.sleep(0.001)
            assert partition.readers == 4
            to.write(VERSIONS)
            assert await receive(other)
            for _ in range(9):
                assert partition.readers <= 4
                await receive(reader)

    run(test)


def test_memory_that_others_hold_without_moving_is_taken_back(tmp_path: Path) -> None:
    async def test() -> None:
        size = 600_000
        limits = {
            "memory_bytes": size + 200_000,
            "stall_seconds_low_memory": 0.3,
            "stall_seconds": 30.0,
        }
        async with serving(tmp_path, **limits) as server:
            body = framed(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=size))))
            async with connected(server) as (idle, hoarder), connected(server) as (reader, writer):
                hoarder.write(body[:400_000])
                while server.memory.size - server.memory.available < size - 20_000:
                    await asyncio.sleep(0.01)
                writer.write(body)
                assert struct.unpack_from(">h", await receive(reader), 4 + 4 + 3 + 4 + 4) == (0,)
                assert await closed(idle)

    run(test)


def test_a_promise_alone_holds_little(tmp_path: Path) -> None:
    async def test() -> None:
        size = 900_000
        async with serving(tmp_path, memory_bytes=4 << 20, stall_seconds=60.0) as server:
            body = framed(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=size))))
            async with AsyncExitStack() as stack:
                for _ in range(8):
                    _, promising = await stack.enter_async_context(connected(server))
                    promising.write(body[:20])
                reader, writer = await stack.enter_async_context(connected(server))
                writer.write(body)
                assert await receive(reader)
                assert server.node.counters.failed["stalled"] == 0

    run(test)


def test_idle_connections_release_buffers_for_busy_ones(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, memory_bytes=4 << 20) as server:
            body = framed(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=900_000))))
            async with AsyncExitStack() as stack:
                clients = []
                for _ in range(10):
                    clients.append(await stack.enter_async_context(connected(server)))
                    clients[-1][1].write(body)
                    assert await receive(clients[-1][0])
                for reader, writer in clients:
                    writer.write(body)
                    assert await receive(reader)
            assert not server.node.counters.failed

    run(test)


def test_standing_still_is_noticed_however_fast_it_began() -> None:
    limits = ClientLimits(
        stall_seconds=60.0, stall_seconds_low_memory=5.0, min_bytes_per_second=4096
    )
    stalls = StallDetector(limits)
    assert not stalls.check_unfinished_request(5.0, 0.0, 1_000_000, low_memory=True)
    assert stalls.check_unfinished_request(10.0, 0.0, 1_000_000, low_memory=True)
    stalls = StallDetector(limits)
    for second in range(0, 600, 10):
        assert not stalls.check_unfinished_request(
            float(second), 0.0, 5000 * second, low_memory=False
        )
    assert not stalls.check_unfinished_request(659.0, 600.0, 0, low_memory=False), "another request"
    assert stalls.check_unfinished_request(661.0, 600.0, 4096 * 60, low_memory=False)


@pytest.mark.parametrize("key", [1, 3])
def test_a_large_request_that_is_not_produce_is_refused(tmp_path: Path, key: int) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path, max_other_request_bytes=100_000) as server,
            connected(server) as (reader, writer),
        ):
            writer.write(framed(key, 5, bytes(100_001)))
            assert await closed(reader)

    run(test)


def test_large_requests_that_are_worked_on_are_accounted_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, memory_bytes=1 << 20) as server:
            names = [b"\0\x04name"] * 15_000  # 90 KB, and as objects much more
            many = framed(
                ApiKey.DESCRIBE_GROUPS, 0, struct.pack(">i", len(names)) + b"".join(names)
            )
            async with connected(server) as (reader, writer):
                writer.write(many)
                assert await closed(reader)
            assert server.node.counters.failed["memory"] == 1
            assert server.memory.available == server.memory.size

    run(test)


def test_what_was_taken_of_the_memory_is_given_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as server:
            names = [b"\0\x04name"] * 15_000
            many = framed(
                ApiKey.DESCRIBE_GROUPS, 0, struct.pack(">i", len(names)) + b"".join(names)
            )
            large = framed(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=900_000))))
            async with connected(server) as (reader, writer):
                for _ in range(3):
                    writer.write(many + large)
                    await receive(reader)
                    await receive(reader)
                writer.write(many[:-1])
                while server.memory.available == server.memory.size:
                    await asyncio.sleep(0.01)
            while server.connections:
                await asyncio.sleep(0.01)
            assert server.memory.available == server.memory.size

    run(test)


def test_a_reply_of_many_megabytes_goes_in_turns_and_comes_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as server, connected(server) as (reader, writer):
            large = framed(
                ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(1, size=1_000_000)), acks=-1)
            )
            for _ in range(40):
                writer.write(large)
                await receive(reader)
            all_of_it = framed(ApiKey.FETCH, 11, fetch("t", 0, 0, wait_ms=5000, max_bytes=1 << 30))
            writer.write(all_of_it)
            assert len(await receive(reader)) > 39_000_000

    run(test)
