"""A consumer group as a tier of the audit: what it consumed and skipped, per topic and window.

Rules: a message is counted when it is processed, in a memory-mapped file, so that a killed
process's counts are published by the next one; a message that is processed twice is counted twice,
because that is what happened. The audit topic itself is not counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

from headworks.audit import AUDIT_TOPIC, window_of
from headworks.audit.counters import CONSUMED, SKIPPED, CounterFile
from headworks.audit.reporting import Reporter, through
from headworks.errors import HeadworksError
from headworks.kafka_clients import KafkaProducer
from headworks.registry_client.schema_ids import SchemaIds

__all__ = ["AuditTier"]

_log = logging.getLogger("headworks.consumer")
_POLL = 0.2
_CLOSE_SECONDS = 5.0


class AuditTier:
    """Counts for `group` and publishes every `every` seconds; `close` publishes the rest."""

    def __init__(
        self,
        client: Mapping[str, Any],
        registry: str,
        *,
        group: str,
        application: str,
        state_dir: Path,
        every: float,
    ) -> None:
        folder = state_dir / group.replace("/", "%2F")
        self._counters = CounterFile(folder)
        self._producer = KafkaProducer(
            {**client, "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
        )
        self._reporter = Reporter(
            folder,
            tier=f"consumer:{group}",
            application=application,
            ids=SchemaIds(registry, state_dir),
            send=through(self._producer),
        )
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headworks-audit", daemon=True)
        self._thread.start()

    def processed(self, message: confluent_kafka.Message, *, skipped: bool) -> None:
        """Count a message that the application is done with, or that was left out."""
        topic = message.topic()
        if topic is None or topic == AUDIT_TOPIC:
            return
        window = window_of(message.timestamp()[1])
        size = len(message.value() or b"")
        self._counters.count(topic, window, size, SKIPPED if skipped else CONSUMED)

    def close(self) -> None:
        """Publish what is left within a few seconds; the next process publishes the remainder."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self._report() and time.monotonic() < deadline:
            self._producer.flush(max(0.1, deadline - time.monotonic()))
        self._reporter.close()
        self._counters.close(remove=self._counters.settled())

    def _serve(self) -> None:
        due = time.monotonic() + self._every
        while not self._stopping.is_set():
            try:
                self._producer.poll(_POLL)
                if time.monotonic() >= due:
                    due = time.monotonic() + self._every
                    self._report()
            except Exception:
                _log.exception("publishing audit counts failed")
                self._stopping.wait(1.0)

    def _report(self) -> int:
        try:
            return self._reporter.report_leftovers() + self._reporter.report(self._counters)
        except HeadworksError as error:
            _log.warning("audit counts are kept for later: %s", error)
            return 0
