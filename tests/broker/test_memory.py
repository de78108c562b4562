"""Memory for requests is shared and bounded: what does not fit waits, and nothing is lost."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from headworks._broker.server import BrokerServer, ServerConfig
from headworks._broker.server.limits import ClientLimits, MemoryPool
from headworks._broker.server.receive_buffer import ReceiveBuffer
from tests.broker.build import batch
from tests.broker.clients import DEADLINE
from tests.broker.wire import produce, produced

pytestmark = pytest.mark.e2e

SIZE = 600_000


async def send(port: int, topic: str, hold: asyncio.Event | None) -> tuple[int, int]:
    """Produce a large batch; with `hold`, keep the last byte back until it is set."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = produce(topic, 0, bytes(batch(1, size=SIZE)))
    frame = struct.pack(">ihhih", 10 + len(body), 0, 7, 1, -1) + body
    writer.write(frame[:-1] if hold else frame)
    await writer.drain()
    if hold:
        await hold.wait()
        writer.write(frame[-1:])
    size = int.from_bytes(await reader.readexactly(4), "big")
    answer = await reader.readexactly(size)
    writer.close()
    await writer.wait_closed()
    return produced(answer[4:], topic)


def test_requests_that_do_not_fit_wait_for_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        server = BrokerServer(
            ServerConfig(tmp_path, limits=ClientLimits(memory_bytes=SIZE + 200_000))
        )
        await server.start()
        port = int(server.address.rpartition(":")[2])
        try:
            await server.node.topic_changes.create("t", 1, {})
            hold = asyncio.Event()
            first = asyncio.create_task(send(port, "t", hold))
            while server.memory.available == server.memory.size:
                await asyncio.sleep(0.01)
            others = [asyncio.create_task(send(port, "t", None)) for _ in range(3)]
            await asyncio.sleep(0.3)
            assert not any(task.done() for task in others)
            hold.set()
            async with asyncio.timeout(DEADLINE):
                answers = await asyncio.gather(first, *others)
            assert sorted(answers) == [(0, 0), (0, 1), (0, 2), (0, 3)]
        finally:
            await server.stop()

    asyncio.run(run())


@pytest.mark.unit
def test_a_machine_with_less_memory_than_the_pool_makes_a_request_wait() -> None:
    pool = MemoryPool(1 << 62)
    assert pool.try_allocate(3 << 60)
    buffer = ReceiveBuffer(pool, 0.0)
    assert not buffer.make_room(0.0, expected=1 << 59)
    assert (pool.available, pool.exhausted) == (1 << 60, True)
    assert buffer.make_room(0.0, expected=100_000)
    buffer.close()
    assert pool.available == 1 << 60
