from __future__ import annotations

from collections.abc import Iterator

import pytest

from headworks import service
from tests.console.fetch import Fetch


@pytest.fixture(scope="module")
def console(
    broker: service.Service, registry: service.Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fetch]:
    """A console over the session's broker and registry, and a warehouse that is not there yet."""
    folder = tmp_path_factory.mktemp("console")
    places = ["--bootstrap", broker.address, "--registry", registry.url]
    places += ["--warehouse", str(folder / "warehouse"), "--schemas", str(folder / "schemas")]
    with service.start(["console", "start", "--listen", "127.0.0.1:0", *places]) as running:
        yield Fetch(running.url)
