"""A power cut takes nothing that was acknowledged as flushed, and nothing that was shown."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from headworks import _system_calls
from headworks._broker.coordination import LocalCoordination
from headworks._broker.log import LogConfig, PartitionLog, open_log
from headworks._broker.topics import Flusher, HostedTopics, TopicChanges
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import check_batch
from tests.broker.build import batch
from tests.broker.conftest import start_broker
from tests.broker.wire import Wire, kind, produce, produced
from tests.soak.process import soak

pytestmark = pytest.mark.unit

CONFIG = LogConfig()


class Disk:
    """Notes what is put on disk: sizes of files and names in folders, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: dict[str, int] = {}
        self.folders: dict[str, set[str]] = {}
        self.steps: list[str] = []
        really_replace = os.replace

        def sync(fd: int) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                self.folders[path] = set(os.listdir(path))
            else:
                self.files[path] = os.fstat(fd).st_size
            self.steps.append(f"sync {Path(path).name}")

        def replace(source: Path, target: Path) -> None:
            self.steps.append(f"name {target.name}")
            really_replace(source, target)

        monkeypatch.setattr(_system_calls, "sync_data", sync)
        monkeypatch.setattr(_system_calls, "sync", sync)
        monkeypatch.setattr(os, "replace", replace)

    def holds(self, log: PartitionLog) -> bool:
        """Whether everything that consumers of the log may see is on disk, names included."""
        names = self.folders.get(str(log.folder), set())
        for segment in log.segments:
            shown = [b for b in segment.headers() if b.last_offset < log.flushed_offset]
            on_disk = self.files.get(str(segment.path), 0) >= sum(b.size for b in shown)
            if shown and not (on_disk and segment.path.name in names):
                return False
        return True


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def append(log: PartitionLog, count: int = 1, *, size: int = 10) -> None:
    for _ in range(count):
        data = batch(2, size=size)
        log.stage(memoryview(data), check_batch(data))
        log.commit()


def test_only_what_is_on_disk_counts_as_flushed(tmp_path: Path, disk: Disk) -> None:
    log, _ = open_log(tmp_path / "p", LogConfig(segment_bytes=1024))
    for _ in range(5):
        append(log, 3, size=60)
        assert log.flushed_offset < log.log_end_offset
        assert disk.holds(log), "rolling flushes what it seals"
        log.mark_flushed(log.sync())
        assert log.flushed_offset == log.log_end_offset
        assert disk.holds(log)
    assert len(log.segments) > 2
    log.close()


def test_what_is_written_while_a_flush_runs_is_not_covered_by_it(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path / "p", CONFIG)
    append(log)
    flush = _system_calls.sync_data

    def slowly(fd: int) -> None:
        flush(fd)
        append(log)

    monkeypatch.setattr(_system_calls, "sync_data", slowly)
    log.mark_flushed(log.sync())
    assert (log.flushed_offset, log.log_end_offset) == (2, 4)
    assert disk.holds(log)
    log.abandon()


@pytest.mark.parametrize("torn", [False, True])
def test_what_a_crash_left_in_the_page_cache_is_put_on_disk_before_it_is_served(
    tmp_path: Path, disk: Disk, torn: bool
) -> None:
    log, _ = open_log(tmp_path / "p", CONFIG)
    append(log, 3)
    log.abandon()
    if torn:
        with log.segments[-1].path.open("ab") as file:
            file.write(b"torn")
    assert not disk.files.get(str(log.segments[-1].path))
    again, recovery = open_log(tmp_path / "p", CONFIG)
    assert (again.flushed_offset, recovery.cut_bytes) == (6, 4 if torn else 0)
    assert disk.holds(again)
    again.abandon()


def test_a_log_that_was_closed_is_not_flushed_again_but_one_that_was_written_since_is(
    tmp_path: Path, disk: Disk
) -> None:
    log, _ = open_log(tmp_path / "p", CONFIG)
    append(log)
    log.close()
    disk.steps.clear()
    log, _ = open_log(tmp_path / "p", CONFIG)
    assert disk.steps == []
    append(log)
    log.abandon()
    log, _ = open_log(tmp_path / "p", CONFIG)
    assert disk.holds(log)
    log.abandon()


@pytest.mark.parametrize("config", [LogConfig(retention_ms=0), LogConfig(64, retention_bytes=0)])
def test_the_only_segment_that_retention_leaves_has_its_name_on_disk(
    tmp_path: Path, disk: Disk, config: LogConfig
) -> None:
    """Without it and those before it, offsets would begin at 0 again."""
    log, _ = open_log(tmp_path / "t-0", config)
    append(log, 2)
    dropped = log.expire(log.segments[-1].last_write_ms() + 1000)
    assert dropped
    [left] = log.segments
    assert left.base_offset > 0
    assert left.path.name in disk.folders[str(log.folder)]
    log.abandon()


def test_a_segment_that_could_not_be_sealed_does_not_look_closed(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path / "p", CONFIG)
    append(log)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("headworks._broker.log.segment.MappedIndex", full)
        with pytest.raises(OSError, match="No space"):
            log.roll()
    append(log)
    log.abandon()
    again, _ = open_log(tmp_path / "p", CONFIG)
    assert again.flushed_offset == 4
    assert disk.holds(again)
    again.abandon()


def test_small_files_are_on_disk_before_they_have_their_name(tmp_path: Path, disk: Disk) -> None:
    log, _ = open_log(tmp_path / "p", CONFIG)
    append(log, 3)
    log.mark_flushed(log.sync())
    disk.steps.clear()
    log.delete_before(2)
    assert disk.steps == ["sync start-offset-new", "name start-offset", "sync p"]
    disk.steps.clear()
    log.roll()
    new = "00000000000000000006.producers"
    at = disk.steps.index(f"name {new}")
    assert disk.steps[at - 1 : at + 2] == [f"sync {new}-new", f"name {new}", "sync p"]
    log.abandon()


def test_folders_of_topics_have_their_names_on_disk_and_lose_them_there(
    tmp_path: Path, disk: Disk
) -> None:
    async def run() -> None:
        flusher = Flusher(asyncio.get_running_loop())
        coordination = LocalCoordination(tmp_path / "store")
        hosted = HostedTopics(tmp_path / "logs", flusher, {})
        changes = TopicChanges(hosted, coordination)
        await changes.load()
        await changes.create("t", 2, {})
        assert disk.folders[str(tmp_path / "logs")] == {"t-0", "t-1"}
        await changes.add_partitions("t", 3)
        assert disk.folders[str(tmp_path / "logs")] == {"t-0", "t-1", "t-2"}
        await changes.delete("t")
        assert disk.folders[str(tmp_path / "logs")] == set()
        flusher.stop()
        hosted.close()
        await coordination.close()

    asyncio.run(run())


@pytest.mark.e2e
def test_the_end_that_clients_are_told_is_what_is_on_disk(tmp_path: Path) -> None:
    topic, partition = (
        kind(ApiKey.LIST_OFFSETS, 1, "request", name)
        for name in ("ListOffsetsTopic", "ListOffsetsPartition")
    )
    latest = topic(name="t", partitions=(partition(partition_index=0, timestamp=-1),))
    with (
        start_broker(tmp_path, "--flush-ms", "60000", "--default-partitions", "1") as process,
        Wire(process.address) as wire,
    ):
        wire.send(ApiKey.METADATA, 4, b"\0\0\0\1\0\1t\1")  # creates it
        wire.receive()
        for acks, end in ((1, 3), (-1, 6)):
            wire.send(ApiKey.PRODUCE, 7, produce("t", 0, bytes(batch(3)), acks=acks))
            assert produced(wire.receive()[1], "t")[0] == 0
            answer = wire.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=(latest,))
            assert answer.topics[0].partitions[0].offset == end


@pytest.mark.e2e
def test_power_cuts_under_load_take_back_nothing(tmp_path: Path) -> None:
    """The short form of `python -m tests.soak cuts`."""
    done = soak("cuts", "6", "--seed", "11", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kills" in done.stdout
