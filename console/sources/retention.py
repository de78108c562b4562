"""How long the broker keeps the messages of a topic.

Rules: one request a minute for each topic that a page shows. A broker that refuses it, or does not
answer in time, leaves the answer unknown: no page fails for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from headworks._kafka.client_properties import client_properties

_TIMEOUT_SECONDS = 2.0
_FRESH_SECONDS = 60.0
_MAX_KEPT = 1_000
Describe = Callable[[str], Mapping[str, str | None]]


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """The limits of a topic's messages, in age and in bytes of a partition; None: there is none."""

    age_ms: int | None
    partition_bytes: int | None
    compacted: bool


class RetentionReader:
    """Reads the retention of topics at `bootstrap`; safe to share between threads."""

    def __init__(
        self,
        bootstrap: str,
        *,
        describe: Describe | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bootstrap = bootstrap
        self._describe = describe or self._ask
        self._clock = clock
        self._lock = Lock()
        self._admin: AdminClient | None = None
        self._known: dict[str, tuple[float, TopicRetention | None]] = {}

    def __call__(self, topic: str) -> TopicRetention | None:
        """Return the retention of a topic, or None if it is unknown."""
        now = self._clock()
        at, found = self._known.get(topic, (-_FRESH_SECONDS, None))
        if now - at < _FRESH_SECONDS:
            return found
        try:
            found = _retention(self._describe(topic))
        except (KafkaException, ValueError):
            found = None
        with self._lock:
            if len(self._known) >= _MAX_KEPT:
                self._known.clear()
            self._known[topic] = now, found
        return found

    def _ask(self, topic: str) -> Mapping[str, str | None]:
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient({**client_properties(self._bootstrap), "log_level": 0})
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_SECONDS)
        return {name: entry.value for name, entry in asked[resource].result().items()}


def _retention(configs: Mapping[str, str | None]) -> TopicRetention:
    policy = configs.get("cleanup.policy") or "delete"
    deletes = "delete" in policy
    return TopicRetention(
        _limit(configs.get("retention.ms")) if deletes else None,
        _limit(configs.get("retention.bytes")) if deletes else None,
        "compact" in policy,
    )


def _limit(value: str | None) -> int | None:
    return int(value) if value is not None and int(value) >= 0 else None
