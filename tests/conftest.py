"""Fixtures that every part's tests share: a broker and a registry, run as child processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks import service

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    """A broker on loopback, one for the whole run: use topic names of your own."""
    folder = tmp_path_factory.mktemp("broker")
    with service.start(
        ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
    ) as running:
        yield running


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    """A registry on loopback, one for the whole run: use subjects of your own."""
    store = f"sqlite:///{tmp_path_factory.mktemp('registry') / 'registry.db'}"
    with service.start(
        ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    ) as running:
        yield running


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT
