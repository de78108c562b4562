"""A served partition: who is answered when, and what a failing disk does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headworks._broker.log import open_log
from headworks._broker.topics import Flusher, HostedPartition, StorageFailureError, resolve_config
from headworks._kafka.records import check_batch
from tests.broker.build import batch
from tests.broker.clients import DEADLINE

pytestmark = pytest.mark.unit

LATER: dict[str, str] = {"flush.ms": "60000"}


@asynccontextmanager
async def serving(
    folder: Path,
    configs: Mapping[str, str] = LATER,
    took: Callable[[float], None] = lambda _seconds: None,
) -> AsyncIterator[HostedPartition]:
    config = resolve_config(configs, {})
    log, _ = open_log(folder, config.log)
    flusher = Flusher(asyncio.get_running_loop(), took)
    partition = HostedPartition("t", 0, log, config, flusher)
    try:
        yield partition
    finally:
        flusher.stop()
        partition.stop("over")
        log.abandon()


def append(partition: HostedPartition, *, urgent: bool = False, size: int = 10) -> int:
    data = batch(1, size=size)
    base = partition.stage(memoryview(data), check_batch(data))
    partition.commit(urgent=urgent)
    return base


async def flushed(partition: HostedPartition, offset: int) -> str | None:
    done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    partition.when_flushed(offset, done.set_result)
    async with asyncio.timeout(DEADLINE):
        return await done


def test_a_flush_answers_all_that_it_covers(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as partition:
            append(partition)
            append(partition, urgent=True)
            answers = await asyncio.gather(flushed(partition, 2), flushed(partition, 1))
            assert list(answers) == [None, None]
            assert partition.log.high_watermark == 2
            assert await flushed(partition, 2) is None, "at once: it is on disk"

    asyncio.run(run())


@pytest.mark.parametrize("configs", [{"flush.ms": "10"}, LATER | {"flush.messages": "3"}])
def test_the_policy_flushes_by_time_and_by_count(
    tmp_path: Path, configs: Mapping[str, str]
) -> None:
    async def run() -> None:
        async with serving(tmp_path, configs) as partition:
            for _ in range(3):
                append(partition)
            assert await flushed(partition, 3) is None

    asyncio.run(run())


def test_a_shorter_time_counts_for_what_is_written_already(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as partition:
            append(partition)
            partition.configure(resolve_config({"flush.ms": "10"}, {}))
            assert await flushed(partition, 1) is None

    asyncio.run(run())


@pytest.mark.parametrize("first", ["the reader", "the write"])
def test_a_waiting_reader_brings_the_flush_forward(tmp_path: Path, first: str) -> None:
    async def run() -> None:
        async with serving(tmp_path) as partition:
            woken = asyncio.Event()
            if first == "the write":
                append(partition)
            partition.watch(woken.set)
            if first == "the reader":
                append(partition)
            async with asyncio.timeout(DEADLINE):
                await woken.wait()
            assert partition.log.high_watermark == 1
            partition.unwatch(woken.set)
            assert partition.readers == 0

    asyncio.run(run())


def test_one_flush_serves_all_who_ask_where_the_log_ends(tmp_path: Path) -> None:
    async def run() -> None:
        flushes: list[float] = []
        async with serving(tmp_path, took=flushes.append) as partition:
            await partition.wait_until_exposed()
            assert flushes == [], "there is nothing to flush"
            append(partition)
            append(partition)
            async with asyncio.timeout(DEADLINE):
                await asyncio.gather(*(partition.wait_until_exposed() for _ in range(50)))
            assert partition.log.high_watermark == 2
            assert len(flushes) == 1

    asyncio.run(run())


def test_an_end_is_not_answered_while_earlier_records_cannot_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    async def run() -> None:
        async with serving(tmp_path) as partition:
            append(partition)
            monkeypatch.setattr("headworks._system_calls.sync_data", broken)
            for _ in range(2):  # while it fails, and after it has failed
                with pytest.raises(StorageFailureError, match="Input/output"):
                    await partition.wait_until_exposed()

    asyncio.run(run())


def test_a_failed_flush_ends_the_partition_and_tells_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    async def run() -> None:
        async with serving(tmp_path) as partition:
            monkeypatch.setattr("headworks._system_calls.sync_data", broken)
            woken = asyncio.Event()
            partition.watch(woken.set)
            append(partition, urgent=True)
            answer = await flushed(partition, 1)
            assert answer is not None
            assert "Input/output error" in answer
            assert woken.is_set()
            monkeypatch.undo()
            with pytest.raises(StorageFailureError, match="Input/output"):
                append(partition)
            assert await flushed(partition, 1) == answer
            assert partition.log.high_watermark == 0, "what may not be on disk is not shown"

    asyncio.run(run())


def test_a_failed_flush_while_rolling_ends_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    async def run() -> None:
        async with serving(tmp_path, LATER | {"segment.bytes": "1024"}) as partition:
            append(partition, size=900)
            monkeypatch.setattr("headworks._system_calls.sync_data", broken)
            with pytest.raises(StorageFailureError):
                append(partition, size=900)
            monkeypatch.undo()
            assert partition.failure is not None

    asyncio.run(run())


def test_a_failed_flush_in_retention_expires_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    async def run() -> None:
        async with serving(tmp_path, LATER | {"retention.ms": "1000"}) as partition:
            append(partition)
            later = partition.log.segments[-1].last_write_ms() + 2000
            monkeypatch.setattr("headworks._system_calls.sync_data", broken)
            assert partition.expire(later) == []
            monkeypatch.undo()
            with pytest.raises(StorageFailureError, match="Input/output"):
                append(partition)
            assert partition.expire(later) == []
            assert partition.log.high_watermark == 0, "no later flush puts on disk what may be lost"

    asyncio.run(run())


def test_a_full_disk_refuses_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        async with serving(tmp_path) as partition:
            append(partition)
            monkeypatch.setattr("headworks._broker.log.segment.os.pwritev", full)
            with pytest.raises(StorageFailureError, match="No space"):
                append(partition)
            monkeypatch.undo()
            assert partition.failure is None
            assert append(partition, urgent=True) == 1
            assert await flushed(partition, 2) is None

    asyncio.run(run())


def test_a_segment_that_is_nearly_full_is_flushed_before_it_is_sealed(tmp_path: Path) -> None:
    """Sealing flushes in the loop: there must be little left to flush."""

    async def run() -> None:
        async with serving(tmp_path, LATER | {"segment.bytes": "100000"}) as partition:
            log = partition.log
            while not log.nearly_full:
                assert log.flushed_offset == 0
                end = append(partition, size=1000) + 1
            assert await asyncio.wait_for(flushed(partition, end), 60) is None
            assert len(log.segments) == 1

    asyncio.run(run())
