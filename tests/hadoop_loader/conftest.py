"""What tests of the loader share: one Spark session (a JVM takes seconds to start), a world."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._config import WarehouseConfig
from hadoop_loader._spark.session import start_session, stop_session
from hadoop_loader._storage.filesystem import AnyPath, parse_path
from headworks._server.child_process import Service
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.real import Stage
from tests.interop import hdfs as hdfs_itself
from tests.interop import s3 as s3_itself


def pytest_itemcollected(item: pytest.Item) -> None:
    """A warehouse in HDFS or S3 takes a server and connections, which no unit test may have."""
    if os.environ.get(hdfs_itself.VARIABLE) and "place" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.contract)


@pytest.fixture
def world(place: AnyPath, monkeypatch: pytest.MonkeyPatch) -> World:
    """A warehouse and what is around it, in this process: its crashes need no durable disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    return World(place / "warehouse")


@pytest.fixture
def stage(broker: Service, registry: Service, tmp_path: Path) -> Stage:
    """A warehouse beside a real broker and a real registry."""
    return Stage(broker, registry, tmp_path)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> AnyPath:
    """A folder that is there and empty, of this machine or of the file system that is asked for."""
    wanted = os.environ.get(hdfs_itself.VARIABLE)
    if wanted is None:
        return tmp_path
    server = request.getfixturevalue(wanted)
    site = f"s3a://{s3_itself.BUCKET}" if wanted == "s3" else f"hdfs://{server.address}"
    found = parse_path(f"{site}/{uuid.uuid4().hex}")
    found.mkdir()
    return found


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """HDFS, and HADOOP_CONF_DIR naming it."""
    folder = tmp_path_factory.mktemp("hdfs")
    with hdfs_itself.start(folder) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(folder / "conf"))
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A store that speaks S3, and AWS's settings naming it."""
    folder = tmp_path_factory.mktemp("s3")
    with s3_itself.start(folder) as running, pytest.MonkeyPatch.context() as patch:
        s3_itself.configure(patch, running)
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp('spark\'s "folder"')
    session = start_session(WarehouseConfig(data_dir=folder, bootstrap="", registry=""))
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def hive(spark: Any) -> str:
    """Address of a HiveServer2 in the session."""
    from hadoop_loader._spark.hiveserver2 import serve

    host, port = serve(spark, "127.0.0.1", 0)
    return f"{host}:{port}"
