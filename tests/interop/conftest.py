"""What the tests of the swap share; they run on request, because they fetch Apache Kafka."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.java_client import JavaClient, compile_client

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    asked = os.environ.get("HEADWORKS_INTEROP")
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        if not asked:
            item.add_marker(pytest.mark.skip(reason="`make interop` runs it"))
        elif asked != "long" and item.get_closest_marker("minutes"):
            item.add_marker(pytest.mark.skip(reason="minutes each: `make soak` runs it"))


@pytest.fixture(scope="session")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    """Java's own client, compiled."""
    return compile_client(tmp_path_factory.mktemp("java"))
