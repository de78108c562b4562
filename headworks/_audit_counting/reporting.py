"""Counts to audit events: the counts of this process, and those that a killed process left.

Rules: an increment is in the counter file before it is sent. It is marked as published when the
broker has acknowledged it. Until then it is sent again under the same id, and never under another.
Counts that a dead process left for another cluster stay in the folder (`cluster_identity`), and a
warning says so. Each process also sends `heartbeats`.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from headworks._audit_counting import AUDIT_TOPIC, window_of
from headworks._audit_counting.counters import (
    CounterFile,
    PendingIncrement,
    counter_paths,
    leftover_files,
)
from headworks._audit_counting.event import AuditCount, SchemaUse
from headworks._audit_counting.heartbeats import ENDED, HEARTBEAT_SECONDS, RUNNING
from headworks._audit_counting.schema_use import NO_SCHEMA
from headworks._kafka.clients import KafkaProducer
from headworks._kafka.cluster_identity import ClusterOfClient
from headworks._kafka.partitioner import KeylessPartitioner
from headworks._wire import prefix
from headworks.codec import event_type
from headworks.registry_client._schema_ids import EventSchemaIds

_log = logging.getLogger("headworks.audit")
# The outcomes by which a tier has used a schema, once for every message.
_USES = ("delivered", "mirrored", "consumed", "skipped", "dead", "retried")
Send = Callable[[bytes, Callable[[object, object], None]], bool]


class AuditReporter:
    """Publishes the counter files of `folder` as `tier`: those of its own `cluster`.

    `send(value, on_delivery)` enqueues a message for the audit topic; it returns False if the queue
    is full. The caller reports every `every` seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tier: str,
        application: str,
        ids: EventSchemaIds,
        cluster: ClusterOfClient,
        send: Send,
        every: float,
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._tier = tier
        self._application = application
        self._ids = ids
        self._send = send
        self._host = socket.gethostname()
        self._named: set[Path] = set()  # files of this process that name the cluster by its id
        self._is_acknowledged = False  # whether the broker has acknowledged anything
        self._leftovers: list[CounterFile] = []  # files of dead processes, locked
        self._foreign: set[Path] = set()  # files of dead processes, for other clusters
        self._is_closed = False  # a broker may answer the publishing thread after that
        self._in_flight: set[str] = set()  # ids of increments without a delivery report
        self._prefix: bytes | None = None  # magic byte and schema id of the audit event
        self._heartbeat_seconds = max(HEARTBEAT_SECONDS, every)
        self._next_heartbeat: float | None = None  # by the monotonic clock; None: none was sent
        self._ended: set[Path] = set()  # files whose ENDED is acknowledged

    @property
    def waiting(self) -> bool:
        """Whether an event was sent that is not acknowledged yet."""
        return bool(self._in_flight)

    def report(self, counters: CounterFile) -> int:
        """Send the unpublished counts of `counters`, and a heartbeat if it is due.

        Return the number of events sent.
        """
        self._name_cluster(counters)
        sent, now = self._send_all(counters, owner_died=False), time.monotonic()
        due = sent > 0 if self._next_heartbeat is None else now >= self._next_heartbeat
        if due and self._send_heartbeat(counters, RUNNING, math.ceil(self._heartbeat_seconds)):
            self._next_heartbeat = now + self._heartbeat_seconds
            sent += 1
        return sent

    def report_end(self, counters: CounterFile) -> bool:
        """Send that the process of `counters` has ended, if all its counts are published.

        Return whether the event was sent. It is not sent again after its acknowledgement.
        """
        if counters.path in self._ended or not counters.settled():
            return False
        return self._send_heartbeat(counters, ENDED, 1)

    def may_remove(self, counters: CounterFile) -> bool:
        """Return whether nothing of a file is left to publish."""
        silent = self._next_heartbeat is None and counters not in self._leftovers
        return counters.settled() and (silent or counters.path in self._ended)

    def report_leftovers(self, own: CounterFile) -> int:
        """Send the counts of dead processes of the folder; return the number of events sent.

        None are sent before a broker has said which cluster this is. `own` is the file of this
        process.
        """
        self._leftovers += self._found_files(own)
        sent = sum(self._send_all(file, owner_died=True) for file in self._leftovers)
        return sent + sum(self.report_end(file) for file in self._leftovers)

    def _found_files(self, own: CounterFile) -> list[CounterFile]:
        """Return the files of dead processes of this cluster, locked; leave the others alone."""
        besides = {own.path} | self._foreign | {file.path for file in self._leftovers}
        # A broker is asked first, because an open file is locked for the processes of its cluster.
        cluster = self._cluster.known() if counter_paths(self._folder) - besides else None
        if cluster is None or self._is_closed:
            return []
        taken, left = [], []
        for file in leftover_files(self._folder, besides=besides):
            named = file.cluster
            if cluster.takes(named):
                file.name_cluster(cluster)
                taken.append(file)
            else:
                left.append(named)
                self._foreign.add(file.path)
                file.close()
        if left:
            _log.warning(
                "audit counts for %s wait in %s. They stay there, because this process writes to"
                " %s. fix: start a process of that cluster with this folder, or remove its counter"
                " files if the cluster is gone",
                *(" and ".join(sorted({*map(str, left)})), self._folder, cluster),
            )
        return taken

    def _name_cluster(self, counters: CounterFile) -> None:
        """Name the cluster in a file of this process, once its broker has acknowledged anything.

        A file without counts needs no name.
        """
        named = counters.path in self._named
        if named or not self._is_acknowledged or counters.settled():
            return
        cluster = self._cluster.known()
        if cluster is not None:
            counters.name_cluster(cluster)
            self._named.add(counters.path)

    def close(self) -> None:
        """Remove the leftover files whose counts are published; the next process takes the rest."""
        self._is_closed = True
        for file in self._leftovers:
            file.close(remove=self.may_remove(file))
        self._leftovers.clear()

    def _send_all(self, counters: CounterFile, *, owner_died: bool) -> int:
        sent = 0
        for increment in counters.increments(owner_died=owner_died):
            if increment.id in self._in_flight:
                continue
            value = self._value(self._event(increment))
            self._in_flight.add(increment.id)
            if not self._send(value, partial(self._acknowledged, counters, increment)):
                self._in_flight.discard(increment.id)
                break  # the queue is full: the next report sends the rest
            sent += 1
        return sent

    def _send_heartbeat(self, counters: CounterFile, outcome: str, number: int) -> bool:
        """Send that a process runs or has ended; return False if that is on its way, or fails."""
        key = f"{counters.path.stem} {outcome}"
        if key in self._in_flight:
            return False
        now = datetime.now(UTC)
        event = AuditCount(
            id=counters.path.stem,
            topic=AUDIT_TOPIC,
            tier=self._tier,
            window_start=datetime.fromtimestamp(window_of(int(now.timestamp() * 1000)) / 1000, UTC),
            counts={outcome: number},
            bytes=0,
            host=self._host,
            application=self._application,
            sent_at=now,
        )

        def acknowledged(error: object, _message: object) -> None:
            self._in_flight.discard(key)
            if error is None and outcome == ENDED:
                self._ended.add(counters.path)

        value = self._value(event)
        self._in_flight.add(key)
        if not self._send(value, acknowledged):
            self._in_flight.discard(key)
            return False
        return True

    def _acknowledged(
        self, counters: CounterFile, increment: PendingIncrement, error: object, _message: object
    ) -> None:
        self._in_flight.discard(increment.id)
        if error is None:
            self._is_acknowledged = True
            counters.published(increment)

    def _value(self, event: AuditCount) -> bytes:
        kind = event_type(AuditCount)
        if self._prefix is None:
            self._prefix = prefix(self._ids.find(AuditCount))
        return self._prefix + kind.encode(event)

    def _event(self, increment: PendingIncrement) -> AuditCount:
        return AuditCount(
            id=increment.id,
            topic=increment.topic,
            tier=self._tier,
            window_start=datetime.fromtimestamp(increment.window_start / 1000, UTC),
            counts=increment.counts,
            bytes=increment.bytes,
            host=self._host,
            application=self._application,
            sent_at=datetime.now(UTC),
            schemas=_schemas(increment),
        )


def _schemas(increment: PendingIncrement) -> list[SchemaUse] | None:
    """Return the schemas of an increment; None if its counter file did not count them."""
    if increment.ids is None:
        return None
    written, read = increment.ids
    messages = sum(increment.counts.get(outcome, 0) for outcome in _USES)
    return [
        SchemaUse(written=None if written == NO_SCHEMA else written, read=read, messages=messages)
    ]


def audit_topic_sender(client: KafkaProducer, partitioner: KeylessPartitioner) -> Send:
    """Return a function that sends to the audit topic by `client`."""

    def send(value: bytes, on_delivery: Callable[[object, object], None]) -> bool:
        try:
            to = partitioner.partition(AUDIT_TOPIC)
            client.produce(AUDIT_TOPIC, value, partition=to, on_delivery=on_delivery)
        except (BufferError, KafkaException):
            return False
        return True

    return send
