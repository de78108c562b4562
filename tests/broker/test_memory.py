"""Memory for requests is shared and bounded: what does not fit waits, and nothing is lost."""

from __future__ import annotations

import asyncio
import re
import resource
import struct
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._broker.server import BrokerServer, ServerConfig
from headworks._broker.server.limits import ClientLimits, MemoryPool
from headworks._broker.server.receive_buffer import ReceiveBuffer
from tests.broker.build import batch
from tests.broker.clients import DEADLINE
from tests.broker.wire import produce, produced
from tests.soak.process import Broker

pytestmark = pytest.mark.e2e

SIZE = 600_000


async def send(
    port: int, topic: str, hold: asyncio.Event | None, size: int = SIZE
) -> tuple[int, int]:
    """Produce a large batch; with `hold`, keep the last byte back until it is set."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = produce(topic, 0, bytes(batch(1, size=size)))
    frame = struct.pack(">ihhih", 10 + len(body), 0, 7, 1, -1) + body
    writer.write(frame[:-1] if hold else frame)
    await writer.drain()
    if hold:
        await hold.wait()
        writer.write(frame[-1:])
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
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
def test_a_machine_with_less_memory_than_the_pool_refuses_a_request() -> None:
    pool = MemoryPool(1 << 62)
    assert pool.try_allocate(3 << 60)
    buffer = ReceiveBuffer(pool, 0.0)
    with pytest.raises(MemoryError):
        buffer.make_room(0.0, expected=1 << 59)
    assert pool.available == 1 << 60
    assert buffer.make_room(0.0, expected=100_000)
    buffer.close()
    assert pool.available == 1 << 60


def test_a_broker_on_a_machine_without_memory_serves_who_asks_again(tmp_path: Path) -> None:
    size, clients = 4_000_000, 8
    broker = Broker(tmp_path)
    broker.start()
    port = int(broker.address.rpartition(":")[2])
    topic = NewTopic("t", 1, 1, config={"max.message.bytes": str(size + 1000)})
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([topic])["t"].result(DEADLINE)
    [in_use] = re.findall(r"VmSize:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    limit = int(in_use) * 1024 + 3 * size  # for a buffer, and one more while it grows
    resource.prlimit(broker.pid, resource.RLIMIT_AS, (limit, limit))
    refusals = 0

    async def insist() -> tuple[int, int]:
        nonlocal refusals
        while True:
            try:
                return await send(port, "t", None, size)
            except (ConnectionError, asyncio.IncompleteReadError):
                refusals += 1
                await asyncio.sleep(0.05)

    async def run() -> list[tuple[int, int]]:
        answers: list[tuple[int, int]] = []
        async with asyncio.timeout(DEADLINE):
            while not refusals:  # the limit bites once enough of them come at the same time
                answers += await asyncio.gather(*(insist() for _ in range(clients)))
        return answers

    try:
        answers = asyncio.run(run())
        assert all(error == 0 for error, _ in answers)
        assert len({offset for _, offset in answers}) == len(answers)
        words = broker.words()
        assert "the machine has no memory" in words
        assert "Traceback" not in words
    finally:
        broker.kill()


def test_a_broker_takes_no_more_memory_to_start_than_to_run(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    try:
        status = Path(f"/proc/{broker.pid}/status").read_text()
    finally:
        broker.kill()
    [peak], [now] = (re.findall(rf"{name}:\s+(\d+) kB", status) for name in ("VmHWM", "VmRSS"))
    assert int(peak) < 1.5 * int(now)
