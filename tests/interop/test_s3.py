"""A warehouse in a store that speaks S3, read by Spark over S3A: loaders that are killed there."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._storage.filesystem import sorted_glob
from hadoop_loader._storage.s3 import S3Path, s3_path
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.errors import UsageError
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.test_killed import Stack
from tests.hadoop_loader.test_loading import V1, V2
from tests.interop import s3 as s3_itself
from tests.interop.queries import WANTED, all_there
from tests.waiting import until

pytestmark = pytest.mark.contract

# Where a loader is killed, and by what it ends: because its worker was, or itself. The second one
# has made the commit by which it takes over from the first, and dies in front of its own.
KILLS = [("writing:2", 2), ("committing:2", -9), ("renaming:3", -9)]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("s3")
    with s3_itself.start(folder) as running, pytest.MonkeyPatch.context() as patch:
        s3_itself.configure(patch, running)
        yield running


@pytest.fixture
def root(s3: Service, request: pytest.FixtureRequest) -> S3Path:
    return s3_path(f"s3a://{s3_itself.BUCKET}/{request.node.name}")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    broker = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "broker")]
    registry = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    with child_process.start(broker) as logs, child_process.start(registry) as schemas:
        yield Stack(tmp_path, logs, schemas)


@pytest.fixture
def s3a(root: S3Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark reads S3 by, and `root` as the warehouse of every command."""
    conf = tmp_path / "conf"
    conf.mkdir()
    conf.joinpath("spark-defaults.conf").write_text(
        f"spark.driver.extraClassPath {s3_itself.jars()[0].parent}/*\n"
        f"spark.executor.extraClassPath {s3_itself.jars()[0].parent}/*\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    monkeypatch.setenv("HEADWORKS_WAREHOUSE", str(root))


def config_of(stack: Stack, root: S3Path) -> WarehouseConfig:
    return WarehouseConfig(
        data_dir=stack.folder / "data",
        bootstrap=stack.broker.address,
        registry=stack.registry.url,
        warehouse=str(root),
    )


def test_without_s3a_spark_is_not_asked_to_read(stack: Stack, root: S3Path) -> None:
    with pytest.raises(UsageError, match=r"class path has no .*S3AFileSystem") as refused:
        Warehouse.open(config_of(stack, root))
    assert "put org.apache.hadoop:hadoop-aws:3." in str(refused.value)


@pytest.mark.minutes
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("s3a")
def test_killed_in_s3_and_nothing_is_lost_or_doubled(stack: Stack, root: S3Path) -> None:
    client = RegistryClient(stack.registry.url)
    first = client.register("clicks-value", json.dumps(V1))
    stack.produce(V1, first.id, range(100))
    for step, code in KILLS:
        killed = stack.headworks("load", "run", HEADWORKS_CRASH_AT=step)
        assert killed.returncode == code, killed.stderr
    second = client.register("clicks-value", json.dumps(V2))
    stack.produce(V2, second.id, range(100, 150))
    log = CommitLog(root / "_headworks")
    assert [log.read(number).kind for number in log.numbers()] == ["takeover", "takeover", "load"]
    with Warehouse.open(config_of(stack, root)) as warehouse:
        all_there(warehouse, stack)
    status = json.loads(stack.headworks("load", "status").stdout)
    clicks = next(t for t in status["topics"] if t["topic"] == "clicks")
    assert (status["applied"], clicks["rows"], clicks["schema_version"]) == (True, 150, 2)
    verified = stack.headworks("audit", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    asked = stack.headworks("sql", f"SELECT {WANTED} FROM clicks")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == [{"n": 150, "messages": 150, "total": sum(range(150))}]
    assert sorted_glob(root, ".staging") == []


@pytest.mark.minutes
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("s3a")
def test_a_loader_that_sleeps_past_its_lease_changes_nothing(stack: Stack, root: S3Path) -> None:
    """Another machine, with a metastore of its own, takes the warehouse over meanwhile."""
    client = RegistryClient(stack.registry.url)
    first = client.register("clicks-value", json.dumps(V1))
    stack.produce(V1, first.id, range(100))
    asleep = stack.begin("load", "run")
    try:
        until(lambda: sorted_glob(root, ".staging/*/*") or asleep.poll() is not None, patience=120)
        asleep.send_signal(signal.SIGSTOP)
        assert CommitLog(root / "_headworks").numbers() == []
        there = {"HEADWORKS_DATA_DIR": str(stack.folder / "there")}
        for command in ("run", "compact"):
            done = stack.headworks("load", command, **there)
            assert done.returncode == 0, done.stderr
        before = sorted(root.bucket.keys(root.prefix))
        asleep.send_signal(signal.SIGCONT)
        out, err = asleep.communicate(timeout=120)
    finally:
        asleep.kill()
        asleep.communicate()
    assert asleep.returncode in (2, 3), out + err
    assert "another loader has made load 1" in err or "the loader's hold on" in err
    assert set(before) - set(root.bucket.keys(root.prefix)) == set()
    asked = stack.headworks("sql", f"SELECT {WANTED} FROM clicks", **there)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == [{"n": 100, "messages": 100, "total": sum(range(100))}]
    verified = stack.headworks("audit", "verify", **there)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    again = stack.headworks("load", "run", **there)
    assert again.returncode == 0, again.stderr
    assert sorted_glob(root, ".staging") == []
