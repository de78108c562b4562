"""The console over a stage of services, and a browser to look at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from headworks._server import child_process
from tests.console.browser import browsing
from tests.console.fetch import Fetch
from tests.console.stage import Stage, staged


@pytest.fixture(scope="module")
def console(
    broker: child_process.Service,
    registry: child_process.Service,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fetch]:
    """A console over the session's broker and registry, and a warehouse that is not there yet."""
    folder = tmp_path_factory.mktemp("console")
    places = ["--bootstrap", broker.address, "--registry", registry.url]
    places += ["--warehouse", str(folder / "warehouse"), "--schemas", str(folder / "schemas")]
    with child_process.start(["console", "start", "--listen", "127.0.0.1:0", *places]) as running:
        yield Fetch(running.url)


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The demo's events in a running installation, once for all screens."""
    with staged(tmp_path_factory.mktemp("stage"), limit=60) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module and no longer: while it is open, no other test can start an event loop."""
    with browsing() as running:
        yield running
