"""Registries on each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._registry.store import RegistryStore
from headworks._server import child_process
from tests.registry.postgresql import Cluster, running_cluster
from tests.registry.rest import Rest
from tests.tools import needs

STORES = ["sqlite", pytest.param("postgresql", marks=needs("postgresql"))]


def start_registry(folder: Path) -> child_process.Service:
    return start_on(f"sqlite:///{folder / 'registry.db'}")


def start_on(store: str) -> child_process.Service:
    return child_process.start(["registry", "start", "--listen", "127.0.0.1:0", "--store", store])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[RegistryStore, RegistryStore]]:
    """Two servers on one file."""
    one, other = (RegistryStore(f"sqlite:///{tmp_path / 'r.db'}") for _ in range(2))
    yield one, other
    one.close()
    other.close()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store; tests that ask for it run on every kind."""
    return new_store(request, tmp_path)


def new_store(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder / 'registry.db'}"
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.new_store()


@pytest.fixture(scope="session", params=STORES)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[child_process.Service]:
    with start_on(new_store(request, tmp_path_factory.mktemp("shared"))) as running:
        yield running


@pytest.fixture
def rest(shared: child_process.Service) -> Iterator[Rest]:
    """The registry that all tests share, on every kind of store: use subjects of your own."""
    client = Rest(shared.url)
    yield client
    client.close()


@pytest.fixture(scope="module", params=STORES)
def own_registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[child_process.Service]:
    """A registry for one module, whose global settings its tests may change."""
    with start_on(new_store(request, tmp_path_factory.mktemp("own"))) as running:
        yield running


@pytest.fixture
def own(own_registry: child_process.Service) -> Iterator[Rest]:
    client = Rest(own_registry.url)
    yield client
    client.close()
