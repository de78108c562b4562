"""Rot in sealed segments is found in the background, told once, counted, and shown."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
import urllib3
from confluent_kafka import KafkaError

from headworks._broker.log import LogConfig, open_log
from headworks._broker.topics import Flusher, HostedPartition, resolve_config
from headworks._broker.topics.scrubber import Scrubber
from headworks._kafka.damaged_batch import DamagedBatch, offset_after
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import check_batch
from tests.broker.build import batch
from tests.broker.clients import DEADLINE, eventually
from tests.broker.test_durability import headworks
from tests.broker.wire import Wire, fetch, fetched, produce, produced
from tests.damage import batches
from tests.soak.process import Broker

pytestmark = pytest.mark.unit

_SIZES = [20, 400, 90_000, 20, 70_000, 20] * 3


def sealed(folder: Path) -> list[Path]:
    """A closed log with several segments, of small batches and some larger than a read."""
    log, _ = open_log(folder, LogConfig(segment_bytes=250_000))
    for size in _SIZES:
        data = batch(2, size=size)
        log.stage(memoryview(data), check_batch(data))
        log.commit()
    log.close()
    paths = [segment.path for segment in log.segments[:-1]]
    assert len(paths) > 2
    return paths


def scrubbed(folder: Path, damage: Callable[[], None] = lambda: None) -> tuple[list[str], int]:
    """What one pass over the log finds, and how many bytes it reads."""

    async def run() -> tuple[list[str], int]:
        config = resolve_config({}, {})
        log, _ = open_log(folder, config.log)
        flusher = Flusher(asyncio.get_running_loop())
        partition = HostedPartition("t", 0, log, config, flusher)
        damage()
        scrubber = Scrubber(lambda: [partition], mb_per_second=10_000)
        scrubber.start()
        async with asyncio.timeout(DEADLINE):
            while not scrubber.passes:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # the loop notes what the scrubber's thread has found
        scrubber.stop()
        flusher.stop()
        partition.stop("over")
        log.abandon()
        assert all(f"log salvage {folder} --repair" in what for what in partition.damage)
        return [what.partition("\n")[0] for what in partition.damage], scrubber.read_bytes

    return asyncio.run(run())


def test_a_whole_log_is_read_whole_and_nothing_is_found(tmp_path: Path) -> None:
    paths = sealed(tmp_path / "t-0")
    size = sum(path.stat().st_size for path in paths)
    assert scrubbed(tmp_path / "t-0") == ([], size)


@pytest.mark.parametrize(("at", "reason"), [(70, "CRC32C is"), (6, "where 2 follows")])
def test_one_wrong_bit_is_found_and_the_batches_behind_it_are_checked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, reason: str
) -> None:
    first, second, *_ = sealed(tmp_path / "t-0")
    places = {first: check_batch(first.read_bytes()).size, second: 0}

    def damage() -> None:
        for path, position in places.items():
            data = bytearray(path.read_bytes())
            data[position + at] ^= 1
            with path.open("r+b") as file:
                file.write(data)

    found, _ = scrubbed(tmp_path / "t-0", damage)
    assert [line.split(": ")[:2] for line in found] == [
        [str(path), f"damaged at byte {position}"] for path, position in places.items()
    ]
    assert reason in found[0]
    assert [
        message.removeprefix("t-0: ").partition("\n")[0] for message in caplog.messages
    ] == found


@pytest.mark.parametrize("damage", ["length", "cut"])
def test_bytes_that_hold_no_batch_are_found(tmp_path: Path, damage: str) -> None:
    path = sealed(tmp_path / "t-0")[1]
    size = path.stat().st_size

    def harm() -> None:
        if damage == "cut":
            os.truncate(path, size - 1)
        else:
            with path.open("r+b") as file:
                file.seek(8)
                file.write(b"\x7f")

    [found], _ = scrubbed(tmp_path / "t-0", harm)
    assert found.startswith(f"{path}: damaged at byte ")
    assert found.endswith("no whole batch starts here")


@pytest.mark.e2e
def test_users_see_damage_in_metrics_log_and_command(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "--segment-bytes", "5000", "--metrics", "127.0.0.1:0")
    broker.start()
    assert headworks("topic", "create", "t", "--partitions", "1", "--bootstrap", broker.address)
    with Wire(broker.address) as wire:
        for _ in range(20):
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2, size=500)), acks=-1))
            assert produced(wire.receive()[1], "t")[0] == 0
    broker.stop()
    path = min((broker.logs / "t-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    broker.start()
    eventually(lambda: f"{path}: damaged at byte 0: CRC32C is" in broker.words())
    url = re.findall(r"http://127.0.0.1:\d+/metrics", broker.words())[-1]

    def metrics() -> str:
        return urllib3.request("GET", url).data.decode()

    assert 'headworks_broker_log_damage{partition="0",topic="t"} 1.0' in metrics()
    # the pass goes on behind the damage
    eventually(lambda: "headworks_broker_scrub_passes_total 1.0" in metrics())
    shown = headworks("topic", "describe", "t", "--bootstrap", broker.address)
    assert f"damaged: t-0: {path}: damaged at byte 0: CRC32C is" in shown.stderr
    broker.stop()
    path.write_bytes(path.read_bytes()[:-1])
    broker.start()
    shown = headworks("topic", "describe", "t", "--bootstrap", broker.address)
    assert f"damaged: t-0 is refused: {path}: " in shown.stderr
    broker.stop()


@pytest.mark.e2e
def test_a_batch_that_was_found_damaged_is_served_no_more(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "--segment-bytes", "5000", "--metrics", "127.0.0.1:0")
    broker.start()
    assert headworks("topic", "create", "t", "--partitions", "1", "--bootstrap", broker.address)
    with Wire(broker.address) as wire:
        for _ in range(20):
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(2, size=500)), acks=-1))
            assert produced(wire.receive()[1], "t")[0] == 0
    broker.stop()
    path = min((broker.logs / "t-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    starts = [one.position for one in batches(path)]
    for damaged in starts[1:3]:
        data[damaged + 70] ^= 1
    path.write_bytes(data)
    broker.start()
    eventually(lambda: broker.words().count(": CRC32C is") == 2)
    client = {"bootstrap.servers": broker.address}
    with Wire(broker.address) as wire:

        def at(offset: int) -> tuple[int, bytes]:
            wire.send(ApiKey.FETCH, 11, fetch("t", 0, offset))
            error, _, found = fetched(wire.receive()[1])
            return error, found

        assert at(0) == at(1) == (0, bytes(data[: starts[1]]))
        assert [at(offset)[0] for offset in (2, 3, 4, 5)] == [int(ErrorCode.CORRUPT_MESSAGE)] * 4
        assert at(6)[1].startswith(data[starts[3] : starts[3] + 600])
    # librdkafka reports it, even without a check of its own, and stays in front of it.
    consumer = confluent_kafka.Consumer(client | {"group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    seen = [message for _ in range(6) if (message := consumer.poll(DEADLINE)) is not None]
    consumer.close()
    assert [message.offset() for message in seen[:2]] == [0, 1]
    problems = [message.error() for message in seen[2:]]
    assert {problem and problem.code() for problem in problems} == {KafkaError.INVALID_MSG}
    # Our consumers can skip it.
    first = DamagedBatch("t", 0, 2, "CORRUPT_MESSAGE")
    assert offset_after(client, first) == 6
    broker.stop()
