"""Clients that have more time to find the brokers in ZooKeeper than those of a user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headworks._kafka import bootstrap
from tests.waiting import PATIENCE


@pytest.fixture(scope="package", autouse=True)
def busy_zookeeper() -> Iterator[None]:
    """A ZooKeeper on a busy machine may not answer for 5 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "_ZOOKEEPER_TIMEOUT_SECONDS", PATIENCE)
        yield
