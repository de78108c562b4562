"""One Spark session for all tests of the loader: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hadoop_loader.config import WarehouseConfig
from hadoop_loader.session import start_session, stop_session


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
