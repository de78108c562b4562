"""A cache of the schema ids that a registry has for each topic.

An id is known for a topic if the registry has it under the topic's subject, `TOPIC-value`.

Rules:

- The event loop only reads the cache (`status`). Threads look up missing ids, and all requests for
  the same id wait for the same lookup.
- A known id never changes and is cached forever. An unknown id, and a failed lookup, are cached for
  seconds; their number is bounded.
- A failed lookup never counts as a known id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial

from headworks._broker.repeated_failure import RepeatedFailure
from headworks.errors import HeadworksError

__all__ = ["SchemaIdCache", "SchemaIdStatus", "TopicSchemaId"]

_log = logging.getLogger(__name__)
_MAX_THREADS = 4
_TIMEOUT_SECONDS = 2.0
_UNKNOWN_SECONDS = 2.0
_UNREACHABLE_SECONDS = 1.0
_MAX_CACHED = 10_000

TopicSchemaId = tuple[str, int]  # a topic, and a schema id


class SchemaIdStatus(Enum):
    """The status of a schema id for a topic."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"
    NOT_CACHED = "not cached"


class SchemaIdCache:
    """The cache of the ids in the registry at `url`."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        from headworks.registry_client import (
            RegistryClient,
        )  # only brokers that validate schema ids import it

        self._client = RegistryClient(url, timeout=_TIMEOUT_SECONDS)
        self._clock = clock
        self._lookup_failures = RepeatedFailure(_log, f"schema ids cannot be looked up at {url}")
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="schema-ids")
        self._known: set[TopicSchemaId] = set()  # bounded by the content of the registry
        # unknown ids and failed lookups: their status, and until when it is valid
        self._other: OrderedDict[TopicSchemaId, tuple[SchemaIdStatus, float]] = OrderedDict()
        self._asked: dict[TopicSchemaId, asyncio.Future[None]] = {}  # lookups in progress

    @property
    def url(self) -> str:
        """The registry's address."""
        return self._client.url

    def status(self, topic: str, schema_id: int) -> SchemaIdStatus:
        """Return the cached status of an id."""
        wanted = topic, schema_id
        if wanted in self._known:
            return SchemaIdStatus.KNOWN
        verdict, until = self._other.get(wanted, (SchemaIdStatus.NOT_CACHED, 0.0))
        return verdict if until > self._clock() else SchemaIdStatus.NOT_CACHED

    async def look_up(self, wanted: Iterable[TopicSchemaId]) -> None:
        """Look up ids in the registry and cache the results. Never fails."""
        loop = asyncio.get_running_loop()
        waiting = []
        for one in wanted:
            asked = self._asked.get(one)
            if asked is None:
                asked = self._asked[one] = loop.create_future()
                answer = loop.run_in_executor(self._threads, self._ask, one)
                answer.add_done_callback(partial(self._remember, one))
            waiting.append(asked)
        for asked in waiting:
            await asyncio.shield(asked)

    def close(self) -> None:
        """Stop looking up ids."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, wanted: TopicSchemaId) -> SchemaIdStatus:
        """Ask the registry; runs in a thread."""
        topic, schema_id = wanted
        version = self._client.version_of(schema_id, f"{topic}-value")
        return SchemaIdStatus.UNKNOWN if version is None else SchemaIdStatus.KNOWN

    def _remember(self, wanted: TopicSchemaId, answer: asyncio.Future[SchemaIdStatus]) -> None:
        asked = self._asked.pop(wanted)
        if not asked.done():
            asked.set_result(None)
        if answer.cancelled():
            return
        error, verdict = answer.exception(), SchemaIdStatus.UNREACHABLE
        about = {"topic": wanted[0], "schema_id": wanted[1]}
        if error is None:
            verdict = answer.result()
            self._lookup_failures.recovered(about)
        elif isinstance(error, HeadworksError):
            self._lookup_failures.failed(error, about)
        else:
            _log.error(
                "schema id %d of topic %s", wanted[1], wanted[0], exc_info=error, extra=about
            )
        if verdict is SchemaIdStatus.KNOWN:
            self._known.add(wanted)
            return
        seconds = _UNKNOWN_SECONDS if verdict is SchemaIdStatus.UNKNOWN else _UNREACHABLE_SECONDS
        self._other[wanted] = verdict, self._clock() + seconds
        self._other.move_to_end(wanted)
        if len(self._other) > _MAX_CACHED:
            self._other.popitem(last=False)
