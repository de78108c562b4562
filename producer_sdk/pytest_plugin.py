"""Fixtures for users' tests; pytest finds them when Headworks is installed.

- `headworks_stack`: a running broker and registry; Producer() and Consumer() find them.
- `hung_broker`: a broker that accepts connections and never answers.
- `recording_producer`: a producer that records events, and needs no broker.

Rules: the servers are child processes, started once a run and only if a test uses them. The user's
modules therefore cannot shadow theirs. They end with the test process, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from producer_sdk._hung_broker import HungBroker
    from producer_sdk.testing import RecordingProducer

__all__ = ["Stack", "headworks_stack", "hung_broker", "recording_producer"]


@dataclass(frozen=True, slots=True)
class Stack:
    """A running broker (`bootstrap`, HOST:PORT) and registry (`registry`, a URL)."""

    bootstrap: str
    registry: str

    def register(self, *events: type) -> None:
        """Register the schemas of generated classes, as the deploy step does."""
        from headworks.codec import event_type
        from headworks.registry_client import RegistryClient

        client = RegistryClient(self.registry)
        for kind in map(event_type, events):
            client.register(kind.subject, kind.schema)


@pytest.fixture(scope="session")
def _headworks_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    from headworks._server.child_process import start

    folder = tmp_path_factory.mktemp("headworks")
    address = ("--listen", "127.0.0.1:0")
    commands = (
        ("registry", "start", *address, "--store", f"sqlite:///{folder / 'registry.db'}"),
        ("broker", "start", *address, "--data-dir", str(folder)),
    )
    with ThreadPoolExecutor(2) as pool:
        starting = [pool.submit(start, command) for command in commands]
        # Loaded while the servers start.
        from headworks import _bundled_schemas
        from headworks._audit_counting import AUDIT_TOPIC
        from headworks.registry_client import RegistryClient
        from headworks.schema import subject_of
    try:
        registry, broker = (each.result() for each in starting)
        text = _bundled_schemas.audit_schema()
        RegistryClient(registry.url).register(subject_of(AUDIT_TOPIC), text)
        yield Stack(broker.address, registry.url)
    finally:
        for each in starting:
            if each.exception() is None:
                each.result().stop()


@pytest.fixture
def headworks_stack(
    _headworks_servers: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stack:
    """Return a broker and a registry; the settings of this test name them."""
    monkeypatch.setenv("HEADWORKS_BOOTSTRAP", _headworks_servers.bootstrap)
    monkeypatch.setenv("HEADWORKS_REGISTRY", _headworks_servers.registry)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "headworks-state"))
    return _headworks_servers


@pytest.fixture
def hung_broker() -> Iterator[HungBroker]:
    """Return a broker that accepts connections at `.address` and never answers."""
    from producer_sdk._hung_broker import HungBroker

    with HungBroker() as broker:
        yield broker


@pytest.fixture
def recording_producer() -> Iterator[RecordingProducer]:
    """Return a producer that records events."""
    from producer_sdk.testing import RecordingProducer

    with RecordingProducer() as producer:
        yield producer
