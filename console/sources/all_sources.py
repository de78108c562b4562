"""All sources of one console: their addresses, and the threads that poll them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadoop_loader._storage.filesystem import AnyPath
from headworks._console.sources import quarantine
from headworks._console.sources.audits import AuditReader
from headworks._console.sources.dead_letters import DeadLetterDesk
from headworks._console.sources.governance import GovernanceReader
from headworks._console.sources.groups import GroupReader
from headworks._console.sources.histories import HistoryReader
from headworks._console.sources.loads import LoadReader
from headworks._console.sources.messages import MessageReader
from headworks._console.sources.poller import Poller
from headworks._console.sources.retention import RetentionReader
from headworks._console.sources.subjects import SubjectReader
from headworks._console.sources.topics import TopicReader
from headworks.registry_client import RegistryClient

_REGISTRY_TIMEOUT_SECONDS = 3.0  # while somebody waits
_REGISTRY_ATTEMPTS = 2  # a connection that was kept may have been closed
_TREND_INTERVAL_SECONDS = 15.0  # the state of a group needs samples while nobody looks
_BACKGROUND_TIMEOUT_SECONDS = 30.0  # in the background: all subjects at once


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of all sources, named like the settings."""

    bootstrap: str
    registry: str
    warehouse: AnyPath
    schemas: Path
    audit_store: str
    zookeeper: str | None = None


class Sources:
    """The sources of a console; `start` starts the threads, and `stop` ends them.

    `now` is the wall clock of all pages, in seconds since 1970. `guarded` consoles have readers who
    are not on this machine: pages name no path of its disk.
    """

    guarded = False

    def __init__(self, endpoints: Endpoints, *, now: Callable[[], float] = time.time) -> None:
        self.endpoints = endpoints
        self._now = now
        self.registry = RegistryClient(
            endpoints.registry, timeout=_REGISTRY_TIMEOUT_SECONDS, attempts=_REGISTRY_ATTEMPTS
        )
        self.histories = HistoryReader(self.registry)
        background = RegistryClient(endpoints.registry, timeout=_BACKGROUND_TIMEOUT_SECONDS)
        self.governance = GovernanceReader(endpoints.schemas)
        self.dead_letters = DeadLetterDesk(endpoints.bootstrap, endpoints.registry)
        self.messages = MessageReader(endpoints.bootstrap, self.registry)
        self.retention = RetentionReader(endpoints.bootstrap)
        self.audits = AuditReader(endpoints.audit_store, now=now)
        self.subjects = Poller("registry", SubjectReader(background), interval=5.0)
        self.topics = Poller("broker", TopicReader(endpoints.bootstrap, now=now), interval=3.0)
        self.groups = Poller(
            "groups",
            GroupReader(endpoints.bootstrap, endpoints.zookeeper),
            interval=5.0,
            idle_interval=_TREND_INTERVAL_SECONDS,
        )
        self.audit = Poller("audit", self.audits, interval=5.0)
        loads = LoadReader(endpoints.warehouse, when_quarantined=quarantine.prepare)
        self.loads = Poller("loads", loads, interval=5.0)
        self._pollers: tuple[Poller[Any], ...] = (
            self.subjects,
            self.topics,
            self.groups,
            self.audit,
            self.loads,
        )

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return round(self._now() * 1000)

    def start(self) -> None:
        """Start all pollers."""
        for one in self._pollers:
            one.start()

    def stop(self) -> None:
        """Stop all pollers, and close what pages keep open."""
        for one in self._pollers:
            one.stop()
        self.messages.close()
