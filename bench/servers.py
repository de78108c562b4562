"""A registry and a broker, as users start them, with their data in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headworks._server import child_process
from headworks._server.child_process import Service


@contextmanager
def registry_and_broker(folder: Path) -> Iterator[tuple[Service, Service]]:
    """Run both while the block runs."""
    listen = ("--listen", "127.0.0.1:0")
    store = f"sqlite:///{folder / 'registry.db'}"
    broker = ["broker", "start", *listen, "--data-dir", str(folder / "data")]
    with (
        child_process.start(["registry", "start", *listen, "--store", store]) as registry,
        child_process.start(broker) as running,
    ):
        yield registry, running
