"""Topics that another broker has changed just now: the store is asked before a client is misled.

Watches tell a broker of a change some milliseconds after the broker that made it has answered. Who
asks in between would hear of no such topic, or be refused a name that is free again.

Rules: only names that a topic can have are asked for, and a name that nobody knows only once in
`_AGAIN` seconds, of all such names `_MOST` in that time: typing errors cost the store nothing that
matters. Nobody waits longer than `_PATIENCE` seconds. Without certainty of its place in the cluster
a broker asks nothing. Whoever asks for one name at the same time shares the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headworks._broker.coordination import Coordination, Topic
from headworks._broker.topics.hosted_topics import Catalogue
from headworks._broker.topics.topic import ServedTopic, is_topic_name
from headworks.errors import UnreachableError

__all__ = ["Finder"]

_log = logging.getLogger(__name__)
_AGAIN = 1.0
_MOST = 20
_PATIENCE = 2.0


class Finder:
    """Finds topics in the catalogue, or else in the store. `clock` is monotonic, in seconds."""

    def __init__(
        self, catalogue: Catalogue, coordination: Coordination, clock: Callable[[], float]
    ) -> None:
        self._catalogue = catalogue
        self._coordination = coordination
        self._clock = clock
        self._unknown: dict[str, float] = {}  # when they were asked for last, in that order
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def find(self, name: str) -> ServedTopic | None:
        """The topic, also if another broker has made it just now; None if there is none."""
        topics = self._catalogue.topics
        if name not in topics and (name in self._looking or self._may_ask(name)):
            await self.look(name)
        return topics.get(name)

    async def look(self, name: str) -> None:
        """Follow what another broker has just done to a topic; for what seldom happens."""
        if not self._coordination.sure:
            return
        looking = self._looking.get(name)
        if looking is None:
            looking = self._looking[name] = asyncio.ensure_future(self._look(name))
        await asyncio.wait([looking], timeout=_PATIENCE)

    async def _look(self, name: str) -> None:
        try:
            stored = await self._coordination.look(name)
            if not _as_stored(self._catalogue.topics.get(name), stored):
                await self._catalogue.follow()
        except UnreachableError as error:  # what is known has to do
            _log.debug("topic %s: %s", name, error, extra={"topic": name})
        finally:
            del self._looking[name]

    def _may_ask(self, name: str) -> bool:
        if not is_topic_name(name):
            return False
        now = self._clock()
        while self._unknown:
            first = next(iter(self._unknown))
            if now - self._unknown[first] < _AGAIN:
                break
            del self._unknown[first]
        if name in self._unknown or len(self._unknown) >= _MOST:
            return False
        self._unknown[name] = now
        return True


def _as_stored(served: ServedTopic | None, stored: Topic | None) -> bool:
    if served is None or stored is None or stored.deleting:
        return served is None and (stored is None or stored.deleting)
    return served.assignment == stored.assignment and dict(served.configs) == dict(stored.configs)
