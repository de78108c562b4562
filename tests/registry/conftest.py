from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks import service
from tests.registry.rest import Rest


def start_registry(folder: Path) -> service.Service:
    store = f"sqlite:///{folder / 'registry.db'}"
    return service.start(["registry", "start", "--listen", "127.0.0.1:0", "--store", store])


@pytest.fixture
def rest(registry: service.Service) -> Iterator[Rest]:
    """The registry that all tests share."""
    client = Rest(registry.url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    """A registry for one module, whose global settings its tests may change."""
    with start_registry(tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def own(own_registry: service.Service) -> Iterator[Rest]:
    client = Rest(own_registry.url)
    yield client
    client.close()
