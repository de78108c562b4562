"""Look up a topic in the store when another broker may have changed it just now.

A watch reports a change some milliseconds after the broker that made it has answered its client. A
client that asks in between must not hear that the topic is unknown, or that a free name is taken.

Rules:

- Only valid topic names are looked up. An unknown name is looked up once in `_REPEAT_SECONDS`, and
  at most `_MAX_UNKNOWN_NAMES` names in that time, so that typing errors do not load the store.
- A lookup takes at most `_TIMEOUT_SECONDS`; concurrent lookups of one name share one request.
- A broker whose lease is not valid looks nothing up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headworks._broker.coordination import Coordination, Topic
from headworks._broker.topics.hosted_topics import HostedTopics
from headworks._broker.topics.topic import HostedTopic, is_topic_name
from headworks._broker.topics.topic_changes import TopicChanges
from headworks.errors import UnreachableError

_log = logging.getLogger(__name__)
_REPEAT_SECONDS = 1.0
_MAX_UNKNOWN_NAMES = 20
_TIMEOUT_SECONDS = 2.0


class TopicLookup:
    """Finds a hosted topic, or else asks the store. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        hosted: HostedTopics,
        changes: TopicChanges,
        coordination: Coordination,
        clock: Callable[[], float],
    ) -> None:
        self._hosted = hosted
        self._changes = changes
        self._coordination = coordination
        self._clock = clock
        self._unknown: dict[str, float] = {}  # names not found, each with when it was looked up
        self._refreshing: dict[str, asyncio.Task[None]] = {}  # lookups in progress, by topic

    async def find(self, name: str) -> HostedTopic | None:
        """Return a topic, also if another broker has just created it; None if there is none."""
        topics = self._hosted.topics
        if name not in topics and (name in self._refreshing or self._may_ask(name)):
            await self.refresh(name)
        return topics.get(name)

    async def refresh(self, name: str) -> None:
        """Follow what another broker has just changed in a topic. For rare requests only."""
        if not self._coordination.lease_valid:
            return
        task = self._refreshing.get(name)
        if task is None:
            task = self._refreshing[name] = asyncio.ensure_future(self._refresh(name))
        await asyncio.wait([task], timeout=_TIMEOUT_SECONDS)

    async def _refresh(self, name: str) -> None:
        try:
            stored = await self._coordination.read_topic(name)
            if not _as_stored(self._hosted.topics.get(name), stored):
                await self._changes.follow()
        except UnreachableError as error:  # the known state has to suffice
            _log.debug("topic %s: %s", name, error, extra={"topic": name})
        finally:
            del self._refreshing[name]

    def _may_ask(self, name: str) -> bool:
        if not is_topic_name(name):
            return False
        now = self._clock()
        while self._unknown:
            first = next(iter(self._unknown))
            if now - self._unknown[first] < _REPEAT_SECONDS:
                break
            del self._unknown[first]
        if name in self._unknown or len(self._unknown) >= _MAX_UNKNOWN_NAMES:
            return False
        self._unknown[name] = now
        return True


def _as_stored(served: HostedTopic | None, stored: Topic | None) -> bool:
    if served is None or stored is None or stored.deleting:
        return served is None and (stored is None or stored.deleting)
    if served.topic_id != stored.topic_id:
        return False
    return served.assignment == stored.assignment and dict(served.configs) == dict(stored.configs)
