"""What tests of the loader share: one Spark session (a JVM takes seconds to start), a world."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader.config import WarehouseConfig
from hadoop_loader.session import start_session, stop_session
from tests.loader.memory import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A warehouse and what is around it, in this process: its crashes need no durable disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    return World(tmp_path / "warehouse")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    session = start_session(WarehouseConfig(data_dir=folder, bootstrap="", registry=""))
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def hive(spark: Any) -> str:
    """Address of a HiveServer2 in the session."""
    from hadoop_loader.serve import serve

    host, port = serve(spark, "127.0.0.1", 0)
    return f"{host}:{port}"
