"""One bit that changes on the broker's disk: no reader returns it as good, and each names it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer, DamagedBatchError, Partition
from headworks import _bundled_schemas
from headworks._audit import reader
from headworks._audit_counting import AUDIT_TOPIC
from headworks._server.child_process import Service
from headworks.groups import Groups
from headworks.registry_client import RegistryClient
from tests.command_line import run_process
from tests.consumer_sdk.zookeeper_group.cluster import encoder
from tests.damage import PATIENCE, batches, flip_bit, produce_batches, segment
from tests.waiting import until

pytestmark = pytest.mark.e2e

GOOD = [*range(20), *range(30, 40)]
Dicts = Consumer[dict[str, Any]]


class Rotten:
    """A topic of forty numbers, ten in a batch; the third batch is damaged."""

    def __init__(self, name: str, broker: Service, registry: Service, folder: Path) -> None:
        self.name, self.broker, self.registry = name, broker, registry
        produce_batches(broker.address, name, list(map(encoder(registry.url, name), range(40))))
        self.path = segment(folder, name)
        flip_bit(self.path, batches(self.path)[2])

    @property
    def place(self) -> str:
        return f"{self.name} partition 0 offset 20: the record batch there is damaged: "

    def consumer(self, group: str, **options: Any) -> Dicts:
        options = {"topics": [self.name], "group": group, **options}
        return Consumer(bootstrap=self.broker.address, registry=self.registry.url, **options)

    def committed(self, group: str) -> list[int]:
        with Groups(self.broker.address) as groups:
            return list(groups.described([group], age_timeout=0)[0].offsets.values())


@pytest.fixture(scope="module")
def rotten(broker: Service, registry: Service, broker_folder: Path) -> Rotten:
    return Rotten("rotten", broker, registry, broker_folder)


def numbers(reading: Dicts, count: int) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        message = reading.poll(1)
        found.extend(() if message is None else (message.event["number"],))
        return len(found) == count

    until(enough)
    return found


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_a_consumer_stops_in_front_of_the_damage(rotten: Rotten, reset: str, strategy: str) -> None:
    """librdkafka would reset the offset after it, and repeat or skip without a word."""
    group = f"stops-{reset}-{strategy}"
    config = {"partition.assignment.strategy": strategy}
    with rotten.consumer(group, config=config) as reading:
        assert numbers(reading, 15) == GOOD[:15]
    config["auto.offset.reset"] = reset
    with rotten.consumer(group, config=config) as reading:
        assert numbers(reading, 5) == GOOD[15:20]
        for _ in range(3):
            with pytest.raises(DamagedBatchError) as caught:
                until(lambda: reading.poll(1))
            assert rotten.place in str(caught.value)
            assert "skip_damaged=True" in str(caught.value)
    assert rotten.committed(group) == [20]
    with rotten.consumer(group, config=config, skip_damaged=True) as reading:
        assert numbers(reading, 10) == GOOD[20:]


def test_a_member_that_begins_inside_the_damage_names_its_own_offset(rotten: Rotten) -> None:
    with rotten.consumer("inside") as reading:
        numbers(reading, 1)
        reading.rewind({Partition(rotten.name, 0): 23})
        with pytest.raises(DamagedBatchError, match="partition 0 offset 23"):
            until(lambda: reading.poll(1))
    assert rotten.committed("inside") == [23]
    with rotten.consumer("inside", skip_damaged=True) as reading:
        assert numbers(reading, 10) == list(range(30, 40))
        assert reading.skipped_damaged == 7


def test_a_consumer_may_skip_exactly_the_damaged_batch(
    rotten: Rotten, caplog: pytest.LogCaptureFixture
) -> None:
    with rotten.consumer("skips-rotten", skip_damaged=True) as reading:
        assert numbers(reading, 30) == GOOD
        assert reading.skipped_damaged == 10
    assert rotten.committed("skips-rotten") == [40]
    lines = [r.getMessage() for r in caplog.records if r.name == "headworks.consumer"]
    (line,) = (line for line in lines if "answer" not in line)  # a busy broker may be silent
    assert "rotten partition 0 offset 20: skipped 10 offsets, up to 30" in line


def test_a_batch_that_ends_the_log_is_skipped_and_not_met_again(
    broker: Service, registry: Service, broker_folder: Path
) -> None:
    ends = Rotten("rotten-ends", broker, registry, broker_folder)
    flip_bit(ends.path, batches(ends.path)[3])
    with ends.consumer("ends", skip_damaged=True, commit_every=None) as reading:
        assert numbers(reading, 20) == GOOD[:20]
        until(lambda: reading.poll(0.5) is None and reading.skipped_damaged == 20)
        reading.commit()
    assert ends.committed("ends") == [40]


def test_a_skip_at_the_end_of_the_log_is_committed_by_the_close(
    broker: Service, registry: Service, broker_folder: Path
) -> None:
    last = Rotten("rotten-last", broker, registry, broker_folder)
    flip_bit(last.path, batches(last.path)[3])
    with last.consumer("last", skip_damaged=True, commit_every=0.1) as reading:
        numbers(reading, 20)
        until(lambda: last.committed("last") == [19])  # the last one is still being processed
        until(lambda: reading.poll(0.5) is None and reading.skipped_damaged == 20)
    assert last.committed("last") == [40]


def test_asyncio_skips_it_as_well(rotten: Rotten) -> None:
    async def read() -> list[int]:
        found: list[int] = []
        with rotten.consumer("async", skip_damaged=True) as reading:
            async for message in reading:
                found.append(message.event["number"])
                if len(found) == 30:
                    return found
        return found

    assert asyncio.run(asyncio.wait_for(read(), PATIENCE)) == GOOD


def test_the_audit_counts_what_a_group_skipped(
    rotten: Rotten, tmp_path: Path, registry: Service
) -> None:
    text = _bundled_schemas.audit_schema()
    RegistryClient(registry.url).register(f"{AUDIT_TOPIC}-value", text)
    options: dict[str, Any] = {"audit": True, "state_dir": tmp_path, "skip_damaged": True}
    with rotten.consumer("audited", **options) as reading:
        numbers(reading, 30)
    ledger = reader.read_ledger(rotten.broker.address, registry.url)
    found = ledger.balances("consumer:audited", "rotten")
    assert sum(balance.accounted for balance in found) == 40
    assert all(balance.window_start for balance in found)


def test_the_sum_of_the_whole_audit_is_refused(
    broker: Service, broker_folder: Path, registry: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "rotten-audit"
    produce_batches(broker.address, topic, [b"an increment, as far as the broker knows"])
    path = segment(broker_folder, topic)
    flip_bit(path, batches(path)[0])
    monkeypatch.setattr(reader, "AUDIT_TOPIC", topic)
    with pytest.raises(DamagedBatchError, match=f"{topic} partition 0 offset 0: the record batch"):
        reader.read_ledger(broker.address, registry.url)


def consume(rotten: Rotten, *options: str) -> subprocess.CompletedProcess[str]:
    at = ["--bootstrap", rotten.broker.address, "--registry", rotten.registry.url]
    return run_process("consume", rotten.name, *at, *options)


def test_the_command_stops_at_the_damage_with_exit_1(rotten: Rotten) -> None:
    found = consume(rotten, "--idle", "60")
    assert found.returncode == 1
    assert [json.loads(line.split("\t")[1])["number"] for line in found.stdout.splitlines()] == (
        GOOD[:20]
    )
    assert f"error: {rotten.place}" in found.stderr
    assert "skip this batch alone with --skip-damaged" in found.stderr


def test_the_command_may_skip_it(rotten: Rotten) -> None:
    found = consume(rotten, "--max", "30", "--skip-damaged")
    assert found.returncode == 0, found.stderr
    assert [json.loads(line.split("\t")[1])["number"] for line in found.stdout.splitlines()] == GOOD
    assert "skipped 10 offsets of damaged batches" in found.stderr
