"""All sources of one console: where they are, and the threads that watch them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadoop_loader._storage.filesystem import Place
from headworks._ci.governance import read_governance
from headworks._console.sources.audits import AuditReader
from headworks._console.sources.groups import GroupReader
from headworks._console.sources.loads import LoadReader
from headworks._console.sources.messages import MessageReader
from headworks._console.sources.poller import Watched
from headworks._console.sources.subjects import SubjectReader
from headworks._console.sources.topics import TopicReader
from headworks.registry_client import RegistryClient

__all__ = ["Places", "Sources"]

_REGISTRY_DEADLINE = 3.0  # while somebody waits
_REGISTRY_ATTEMPTS = 2  # a connection that was kept may have been closed
_REGISTRY_PATIENCE = 30.0  # in the background: all subjects at once


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is: the settings of those names."""

    bootstrap: str
    registry: str
    warehouse: Place
    schemas: Path
    audit_store: str
    zookeeper: str | None = None


class Sources:
    """What the console reads from; `start` begins to watch, `stop` ends it."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.registry = RegistryClient(
            places.registry, timeout=_REGISTRY_DEADLINE, attempts=_REGISTRY_ATTEMPTS
        )
        patient = RegistryClient(places.registry, timeout=_REGISTRY_PATIENCE)
        self.governance = read_governance(places.schemas)
        self.messages = MessageReader(places.bootstrap, self.registry)
        self.audits = AuditReader(places.audit_store)
        self.subjects = Watched("registry", SubjectReader(patient), every=5.0)
        self.topics = Watched("broker", TopicReader(places.bootstrap), every=3.0)
        self.groups = Watched("groups", GroupReader(places.bootstrap, places.zookeeper), every=5.0)
        self.audit = Watched("audit", self.audits, every=5.0)
        self.loads = Watched("loads", LoadReader(places.warehouse), every=5.0)
        self._watched: tuple[Watched[Any], ...] = (
            self.subjects,
            self.topics,
            self.groups,
            self.audit,
            self.loads,
        )

    def start(self) -> None:
        """Begin to read everything."""
        for one in self._watched:
            one.start()

    def stop(self) -> None:
        """End the reading."""
        for one in self._watched:
            one.stop()
