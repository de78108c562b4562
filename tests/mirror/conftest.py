"""Three clusters and two registries that all tests here share, and mirrors between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headworks._server import child_process
from tests.interop.in_place import start_in_place

_numbers = itertools.count()


@dataclass(frozen=True)
class Clusters:
    """Two to copy from, one to copy into; `folder` holds the data of each under its name."""

    folder: Path
    east: child_process.Service
    west: child_process.Service
    target: child_process.Service


@pytest.fixture(scope="package")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("clusters")
    with (
        start_in_place(folder / "east") as east,
        start_in_place(folder / "west") as west,
        start_in_place(folder / "target") as target,
    ):
        yield Clusters(folder, east, west, target)


@pytest.fixture(scope="package")
def other_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    """A registry beside the shared one, which has other ids."""
    store = f"sqlite:///{tmp_path_factory.mktemp('other') / 'registry.db'}"
    with child_process.start(
        ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    ) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """The beginning of names of topics that nobody else uses."""
    return f"m{next(_numbers)}."


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Callable[..., child_process.Service]]:
    """Starts mirrors; their log is `mirror.log` in the test's folder."""
    started: list[child_process.Service] = []

    def start(*arguments: str, **options: str) -> child_process.Service:
        given = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        each = ["--commit-every", "0.3", "--refresh-every", "0.5", "--data-dir", str(tmp_path)]
        started.append(
            child_process.start(
                ["mirror", *each, *arguments, *given], log_file=tmp_path / "mirror.log"
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.stop()
