"""A warehouse in HDFS itself: who holds it, and loaders that are killed on the way to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._storage.filesystem import create_exclusive, sorted_glob
from hadoop_loader._storage.hdfs import HdfsPath, hdfs_path
from hadoop_loader._storage.lock import HdfsLock
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.test_commits import a_commit
from tests.hadoop_loader.test_killed import Stack
from tests.hadoop_loader.test_loading import V1, V2
from tests.interop import hdfs as hdfs_itself
from tests.interop.queries import all_there
from tests.waiting import until

pytestmark = pytest.mark.contract

HOLD = """
import os, sys, time
from hadoop_loader._storage.hdfs import hdfs_path
from hadoop_loader._storage.lock import HdfsLock
lock = HdfsLock(hdfs_path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("hdfs")
    with hdfs_itself.start(folder) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(folder / "conf"))
        yield running


@pytest.fixture
def root(hdfs: Service, request: pytest.FixtureRequest) -> HdfsPath:
    return hdfs_path(f"hdfs://{hdfs.address}/{request.node.name}")


def test_a_second_loader_is_refused_with_the_holder(root: HdfsPath) -> None:
    folder = root / "loaders"
    first = HdfsLock(folder)
    with pytest.raises(UsageError, match=rf"in use by another loader, process {os.getpid()} on "):
        HdfsLock(folder)
    first.check()
    first.release()
    assert sorted_glob(folder, "*") == []
    HdfsLock(folder).release()


@pytest.mark.parametrize("cut_off", [False, True], ids=["killed", "stopped, then killed"])
def test_a_lock_ends_with_its_holder(root: HdfsPath, cut_off: bool) -> None:
    folder = root / "loaders"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        if cut_off:
            holder.send_signal(signal.SIGSTOP)
            with pytest.raises(UsageError, match=f"process {holder.pid} on "):
                HdfsLock(folder)
    finally:
        holder.kill()
        holder.communicate()
    after = HdfsLock(folder)
    after.check()
    assert sorted_glob(folder, "*") == [after.record_folder]
    after.release()


def test_a_loader_that_was_taken_over_commits_nothing(root: HdfsPath) -> None:
    cut_off = HdfsLock(root / "loaders")
    log = CommitLog(root, cut_off.record_folder)
    cut_off.record_folder.remove_tree()
    with pytest.raises(UsageError, match="another loader has taken"):
        log.create(a_commit())
    assert log.numbers() == []
    cut_off.release()


def test_a_hold_that_broke_is_noticed(tmp_path: Path) -> None:
    with hdfs_itself.start(tmp_path) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
        held = HdfsLock(hdfs_path(f"hdfs://{running.address}/w/loaders"))
        held.check()
        running.kill()
        until(lambda: not held._lease.alive())
        with pytest.raises(UnreachableError, match="its data node went away"):
            held.check()
        with pytest.raises(UnreachableError, match="no name node answers over WebHDFS"):
            create_exclusive(held.record_folder / "x", "")
        held.release()


@pytest.mark.minutes
@pytest.mark.timeout(900)
def test_killed_in_hdfs_and_nothing_is_lost_or_doubled(
    root: HdfsPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_WAREHOUSE", str(root))
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    broker = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "broker")]
    registry = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    with child_process.start(broker) as logs, child_process.start(registry) as schemas:
        _killed(Stack(tmp_path, logs, schemas), root)


def _killed(stack: Stack, root: HdfsPath) -> None:
    client = RegistryClient(stack.registry.url)
    first = client.register("clicks-value", json.dumps(V1))
    stack.produce(V1, first.id, range(100))
    for step in ("writing:2", "committing", "renaming:3"):
        killed = stack.headworks("load", "run", HEADWORKS_CRASH_AT=step)
        assert killed.returncode == (2 if step == "writing:2" else -9), killed.stderr
    second = client.register("clicks-value", json.dumps(V2))
    stack.produce(V2, second.id, range(100, 150))
    config = WarehouseConfig(
        data_dir=stack.folder / "data",
        bootstrap=stack.broker.address,
        registry=stack.registry.url,
        warehouse=str(root),
    )
    with Warehouse.open(config) as warehouse:
        all_there(warehouse, stack)
    status = json.loads(stack.headworks("load", "status").stdout)
    clicks = next(t for t in status["topics"] if t["topic"] == "clicks")
    assert (status["applied"], clicks["rows"], clicks["schema_version"]) == (True, 150, 2)
    verified = stack.headworks("audit", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert sorted_glob(root, ".staging") == []
