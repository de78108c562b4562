"""A consumer group as a tier of the audit: its messages by topic, window, and outcome.

Rules: a message is counted when it is processed, in a memory-mapped file. If the process is killed,
the next one publishes its counts. A message that is processed twice is counted twice, because that
is what happened. The audit topic itself is not counted. The ids of the reader's own schemas are
looked up before the first message counts. A registry that does not answer never delays messages for
long: a schema counts as unregistered until a thread of ours finds it. An event loop never waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka

from headworks._audit_counting import AUDIT_TOPIC, window_of
from headworks._audit_counting.outcomes import CONSUMED, SKIPPED
from headworks._audit_counting.publishing import AuditPublisher
from headworks._audit_counting.schema_use import NO_SCHEMA, UNREGISTERED, ids_of
from headworks._audit_counting.tally import Report
from headworks._audit_counting.window_counts import HAS_GIL, WindowCounts
from headworks._wire import HEADER_SIZE
from headworks.codec import event_type
from headworks.errors import HeadworksError
from headworks.registry_client._schema_ids import EventSchemaIds

_LOOKUP_PAUSE_SECONDS = 60.0  # after a lookup of the readers' schemas
_MAX_LATEST = 1_000
Consume = Callable[[int, int], bool]
"""Counts a consumed message by its timestamp and size; False if it must be counted otherwise."""


class AuditTier:
    """Counts for `group`, and publishes every `every` seconds and when it is closed.

    The group reads the topics of `events` with these classes, and others as dicts.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        registry: str,
        group: str,
        application: str,
        state_dir: Path | str | None,
        events: Sequence[type] = (),
        *,
        every: float,
    ) -> None:
        folder = Path(state_dir or default_state_dir())
        self._ids = EventSchemaIds(registry, folder)
        schemas: dict[str, dict[str, type]] = {}  # a class of each schema, by topic
        for cls in events:
            kind = event_type(cls)
            schemas.setdefault(kind.topic, {}).setdefault(kind.fingerprint, cls)
        self._several = {topic for topic, found in schemas.items() if len(found) > 1}
        self._classes = {t: next(iter(f.values())) for t, f in schemas.items() if len(f) == 1}
        self._readers: dict[str, int] = {}  # the reader's schema id by topic
        self.is_ready = False  # whether the registry was asked for all of them once
        self._lookup_due = 0.0  # when it is asked for those that are unknown, in monotonic seconds
        self._last_windows: dict[str, int] = {}  # the window of the last message, by topic
        # The counts of the last message of each topic and framing, where the reader's id is known.
        self._latest: dict[tuple[str, bytes], WindowCounts] = {}
        self._folder = folder / group.replace("/", "%2F")
        self._client = client
        self._application, self._every = application, every
        self._publisher = self._publish(self._folder, f"consumer:{group}")
        self._retries: AuditPublisher | None = None  # as the producer of its retry topics

    def _publish(self, folder: Path, tier: str) -> AuditPublisher:
        application, every = self._application, self._every
        return AuditPublisher(
            self._client, self._ids, folder, tier=tier, application=application, every=every
        )

    def put_off(self, topic: str, message: confluent_kafka.Message) -> Report:
        """Count a message that is sent to a retry topic; return what counts its delivery."""
        if self._retries is None:
            self._retries = self._publish(self._folder / "retries", "producer")
        value, at = message.value(), message.timestamp()[1]
        counters = self._retries.counters
        return counters.attempt(topic, at, len(value or b""), ids_of(value)).report

    def processed(self, message: confluent_kafka.Message, outcome: int) -> Consume | None:
        """Count a message with its outcome, an index of OUTCOMES.

        Return what counts the next consumed messages of its topic and framing, if they need no
        more than that.
        """
        topic, value, at = message.topic(), message.value() or b"", message.timestamp()[1]
        if topic is None or topic == AUDIT_TOPIC:
            return None
        place = topic, value[:HEADER_SIZE]
        latest = self._latest.get(place) if outcome == CONSUMED else None
        if latest is not None and latest.consume(at, len(value)):
            self._last_windows[topic] = latest.window
            return latest.consume
        window = self._last_windows[topic] = window_of(at)
        ids = ids_of(value, self._reader(topic))
        counts = self._publisher.counters.count(topic, window, len(value), outcome, ids=ids)
        is_final = ids.written != NO_SCHEMA and not self._is_unknown(topic)
        if outcome != CONSUMED or not is_final or not HAS_GIL:
            return None
        if len(self._latest) >= _MAX_LATEST:
            self._latest.clear()
        self._latest[place] = counts
        return counts.consume

    def damaged(self, topic: str, messages: int) -> None:
        """Count messages that were skipped with their damaged batch.

        Their times are unknown: they count in the window of the topic's last message before them.
        """
        if messages and topic != AUDIT_TOPIC:
            window = self._last_windows.get(topic, 0)
            self._publisher.counters.count(topic, window, 0, SKIPPED, messages)

    def look_up(self) -> None:
        """Ask the registry for the readers' schema ids that are unknown, and wait for it."""
        for topic, cls in self._classes.items():
            if topic not in self._readers:
                with suppress(HeadworksError):
                    self._readers[topic] = self._ids.find(cls)
        self._lookup_due = time.monotonic() + _LOOKUP_PAUSE_SECONDS
        self.is_ready = True

    def _is_unknown(self, topic: str) -> bool:
        """Return whether the id of the schema that a topic is read with may yet be found."""
        return topic in self._classes and topic not in self._readers

    def _reader(self, topic: str) -> int | None:
        """Return the id of the schema that the group reads a topic with; None for dicts.

        If classes of several schemas read a topic, the count of a message does not tell which did.
        """
        if topic in self._several:
            return UNREGISTERED
        found = self._readers.get(topic)
        if found is not None or topic not in self._classes:
            return found
        if not self.is_ready:
            self.look_up()
            return self._readers.get(topic, UNREGISTERED)
        if time.monotonic() >= self._lookup_due:
            self._lookup_due = time.monotonic() + _LOOKUP_PAUSE_SECONDS
            threading.Thread(target=self.look_up, name="headworks-audit-ids", daemon=True).start()
        return UNREGISTERED

    def close(self) -> None:
        """Publish the rest within a few seconds; the next process publishes what is left then."""
        if self._retries is not None:
            self._retries.close()
        self._publisher.close()


def default_state_dir() -> Path:
    """Return the folder of the counts, unless the application names another."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "headworks" / "consumer"
