"""A thread with a producer of its own that publishes a tier's counts.

Rules: the counts are in a memory-mapped file, so the next process of the same folder publishes
those of a killed one. Trouble with the audit is logged, and never stops the tier.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.counters import CounterFile
from headworks._audit_counting.reporting import AuditReporter, audit_topic_sender
from headworks._kafka.clients import KafkaProducer, serve
from headworks._kafka.cluster_identity import ClusterOfClient
from headworks._kafka.partitioner import KeylessPartitioner
from headworks.errors import HeadworksError
from headworks.registry_client._schema_ids import EventSchemaIds

_log = logging.getLogger("headworks.audit")
_POLL_SECONDS = 0.2
_CLOSE_SECONDS = 5.0


class AuditPublisher:
    """Publishes `counters` as `tier`, every `every` seconds and when it is closed.

    `client` holds the properties of librdkafka for the cluster of the audit topic.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        ids: EventSchemaIds,
        folder: Path,
        *,
        tier: str,
        application: str,
        every: float,
    ) -> None:
        partitioner = KeylessPartitioner()
        properties = {**client, "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
        self._producer = KafkaProducer(partitioner.properties(properties))
        cluster = ClusterOfClient(self._producer, client["bootstrap.servers"], AUDIT_TOPIC)
        self.counters = CounterFile(folder, cluster=cluster.assumed)
        self._reporter = AuditReporter(
            folder,
            tier=tier,
            application=application,
            ids=ids,
            cluster=cluster,
            send=audit_topic_sender(self._producer, partitioner),
            every=every,
        )
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headworks-audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Publish the rest within a few seconds; the next process publishes what is left then."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)
        deadline = time.monotonic() + _CLOSE_SECONDS
        while (self._report(last=True) or self._reporter.waiting) and time.monotonic() < deadline:
            self._producer.flush(max(0.1, deadline - time.monotonic()))
        self._reporter.close()
        self.counters.close(remove=self._reporter.may_remove(self.counters))

    def _serve(self) -> None:
        due = time.monotonic() + self._every
        while not self._stopping.is_set():
            try:
                serve(self._producer, _POLL_SECONDS)
                self.counters.flush()
                if time.monotonic() >= due:
                    due = time.monotonic() + self._every
                    self._report()
            except Exception:
                _log.exception("publishing audit counts failed")
                self._stopping.wait(1.0)

    def _report(self, *, last: bool = False) -> int:
        try:
            sent = self._reporter.report(self.counters)
            sent += self._reporter.report_leftovers(self.counters)
            return sent + (last and self._reporter.report_end(self.counters))
        except HeadworksError as error:
            _log.warning("audit counts are kept for later: %s", error)
            return 0
