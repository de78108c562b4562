"""All sources of one console: where they are, and the threads that watch them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ci.governance import Governance, read_governance
from console.sources.loads import LoadReader, Loads
from console.sources.messages import MessageReader
from console.sources.subjects import SubjectReader, Subjects
from console.sources.topics import TopicReader, Topics
from console.sources.watched import Watched
from headworks.registry_client import RegistryClient

__all__ = ["Places", "Sources"]

_REGISTRY_DEADLINE = 3.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is: the settings of those names."""

    bootstrap: str
    registry: str
    warehouse: Path
    schemas: Path


class Sources:
    """What the console reads from; `start` begins to watch, `stop` ends it."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.registry = RegistryClient(places.registry, timeout=_REGISTRY_DEADLINE)
        self.governance: Governance = read_governance(places.schemas)
        self.subjects: Watched[Subjects] = Watched(
            "registry", SubjectReader(self.registry), every=5.0
        )
        self.messages = MessageReader(places.bootstrap, self.registry)
        self.topics: Watched[Topics] = Watched("broker", TopicReader(places.bootstrap), every=3.0)
        self.loads: Watched[Loads] = Watched("loads", LoadReader(places.warehouse), every=5.0)

    @property
    def watched(self) -> tuple[Watched[Subjects] | Watched[Topics] | Watched[Loads], ...]:
        """Every source that is read in the background."""
        return self.subjects, self.topics, self.loads

    def start(self) -> None:
        """Begin to read everything."""
        for one in self.watched:
            one.start()

    def stop(self) -> None:
        """End the reading."""
        for one in self.watched:
            one.stop()
