"""The per-process half of a producer: librdkafka's client, audit counters, spills, and two threads.

The way of a message (`enqueue`):

1. Its attempt is counted, in the window of its timestamp.
2. librdkafka's queue takes it. If the queue is full, the message goes to the spill, waits up to
   `wait_ms`, or is dropped. With TELL_WHEN_FULL_MS, FullQueueError hands it to the caller.
3. Its delivery report is counted: delivered, or failed.

Threads:

- Any thread of the application may call `enqueue`, `enqueue_reported`, and `flush`. While it
  flushes, librdkafka serves delivery reports in that thread too.
- The polling thread serves delivery reports, flushes the counters into their file, and sends
  spilled messages. It survives every error, because nothing is delivered without it.
- The publishing thread publishes the counts, and asks which cluster this is. It may wait for the
  registry and for a broker, and delivery reports must not wait with it.
- The thread that calls `stop` ends both threads. After that, `enqueue` raises UsageError.

Rules:

- Every counted message is resolved: attempted = delivered + failed + dropped + still queued.
- This module has no lock. The spill and the counter file have one each, and no thread holds both.
- While a spill holds messages, new messages are spilled too, so that they stay in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.counters import CounterFile
from headworks._audit_counting.outcomes import BROKER_ERROR, QUEUE_FULL, TOO_LARGE
from headworks._audit_counting.reporting import AuditReporter, audit_topic_sender
from headworks._audit_counting.schema_use import ids_of
from headworks._audit_counting.tally import COUNTS_IN_PYTHON, LatestWindow
from headworks._audit_counting.window_counts import WindowCounts
from headworks._kafka.clients import KafkaProducer, serve
from headworks._kafka.cluster_identity import ClusterOfClient
from headworks._kafka.partitioner import ANY, KeylessPartitioner
from headworks._kafka.trouble_log import BrokerTrouble
from headworks.errors import HeadworksError
from headworks.registry_client._schema_ids import EventSchemaIds
from producer_sdk._context import Headers
from producer_sdk._full_queue import TELL_WHEN_FULL_MS, FullQueueError, WaitingMessage
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill import Spill, open_spills
from producer_sdk._spill_resender import SpillResender
from producer_sdk._totals import LossWatch, OnLoss, ProducerTotals, totals_of

OnDelivery = Callable[[Any, Any], None]
"""librdkafka's delivery callback: an error or None, and the message."""

_log = logging.getLogger("headworks.producer")
_POLL_SECONDS = 0.1
_QUEUE_FULL_PAUSE_SECONDS = 0.002
_FLUSH_PAUSE_SECONDS = 0.01
_COUNTS_FLUSH_SECONDS = 0.05  # between flushes of the counters into their file ...
_COUNTS_FLUSH_SHARE = 0.02  # ... or more, so that they take at most this share of the time
_CLUSTER_PAUSE_SECONDS = 1.0  # before a broker is asked again which cluster this is
_PURGE_SECONDS = 1.0
_LAST_COUNTS_SECONDS = 0.5
_UNSUITABLE = (TypeError, ValueError, OverflowError)  # by what no check of ours has refused
_PURGE_ERRORS = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """The settings of a transport; they do not change while the producer lives."""

    client: Mapping[str, Any]  # properties of librdkafka
    state_dir: Path  # holds the counter files and the spill files
    application: str  # the name of this program in the audit
    ids: EventSchemaIds  # finds the schema id of the audit event
    audit_every: float  # seconds between two publications of the counts
    spill_bytes: int  # the limit of the spill; 0: nothing is spilled
    on_loss: OnLoss | None  # receives the totals after a loss


class Transport:
    """Takes encoded messages until `stop`."""

    def __init__(self, config: TransportConfig) -> None:
        # Chooses partitions of living brokers for messages without a key.
        self._partitioner = KeylessPartitioner()
        address = config.client["bootstrap.servers"]
        trouble = BrokerTrouble(address, config.client, _log)
        properties = {**config.client, **trouble.callbacks}
        self.client = KafkaProducer(self._partitioner.properties(properties))
        # The cluster of the brokers. Only the publishing thread asks them, and `stop` after it.
        self._cluster = cluster = ClusterOfClient(self.client, address, AUDIT_TOPIC)
        # The counts of this process; the file has a lock of its own.
        self.counters = CounterFile(config.state_dir, cluster=cluster.assumed)
        # Logs lost events and brokers that are away. Only the polling thread uses it, and `stop`.
        self._watch = LossWatch(self.counters.lost, self.counters.totals, trouble, config.on_loss)
        self._last_totals: ProducerTotals | None = None  # once the counts are closed
        # Publishes the counts. Only the publishing thread uses it, and `stop` after that thread.
        self._reporter = AuditReporter(
            config.state_dir,
            tier="producer",
            application=config.application,
            ids=config.ids,
            cluster=cluster,
            send=audit_topic_sender(self.client, self._partitioner),
            every=config.audit_every,
        )
        # The spill of this process, or None if nothing is spilled. It has a lock of its own.
        self._spill: Spill | None = None
        leftovers: list[Spill] = []
        if limit := config.spill_bytes:
            leftovers, self._spill = open_spills(config.state_dir, limit, cluster.assumed)
        # Sends spilled messages in the polling thread; the publishing thread calls `is_decided`.
        self._resender = SpillResender(
            self._spill, leftovers, self.client, self._partitioner, self.counters
        )
        self._audit_every = config.audit_every
        # Set when the polling thread must end.
        self._stopping = threading.Event()
        # Set when the publishing thread must publish the last counts and end.
        self._resolved = threading.Event()
        # The monotonic time at which the last publication gives up; written before `_resolved`.
        self._deadline = 0.0
        # Whether `stop` purges the queue: the spill keeps purged messages from then on.
        self._purging = False
        self._polling_thread = _started(self._poll, "headworks-producer")
        self._publishing_thread = _started(self._publish, "headworks-audit")

    # ---- enqueueing: any thread ----

    def enqueue(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        wait_ms: int,
        latest: LatestWindow[WindowCounts],
    ) -> bool:
        """Queue a message; return False if it was dropped, and counted as dropped.

        The parameters are the first fields of an OutgoingMessage, the milliseconds to wait for
        room, and the window of the class's last message. Nearly every message takes this path, so
        it only counts and calls librdkafka, by position: names would double that call's cost.
        """
        if COUNTS_IN_PYTHON:  # as `LatestWindow.attempt`, because its call costs a quarter of it
            size, tally, counts = len(value), latest.tally, None
            if tally.start <= timestamp < tally.end:
                tally.words[tally.at] = tally.attempted = tally.attempted + 1
                tally.bytes = tally.bytes + size
                counts = latest.counts
        else:
            counts = latest.attempt(timestamp, value)
        if counts is None:
            counts = self._attempt(topic, timestamp, value, latest)
        spill = self._spill
        if spill is None:
            report: OnDelivery = counts.report
        elif spill.empty:
            report = partial(self._delivered_or_kept, counts, None)
        else:
            message = OutgoingMessage(topic, value, key, timestamp, headers)
            return self._spill_message(spill, counts, message)
        carried: dict[str, str | bytes | None] | None = None if headers is None else {**headers}
        try:
            partition = ANY if key is not None else self._partitioner.partition(topic)
            self.client.produce(topic, value, key, partition, report, None, timestamp, carried)
        except (BufferError, KafkaException, *_UNSUITABLE) as error:
            if spill is None and not wait_ms and error.__class__ is BufferError:
                counts.resolve(QUEUE_FULL)  # a second try would double the cost of a full queue
                return False
            message = OutgoingMessage(topic, value, key, timestamp, headers)
            return self._enqueue_counted(message, counts, report, wait_ms, spill)
        return True

    def enqueue_reported(
        self,
        message: OutgoingMessage,
        on_delivery: OnDelivery | None,
        wait_ms: int,
        latest: LatestWindow[WindowCounts],
        *,
        spillable: bool,
    ) -> bool:
        """Queue a message and report its delivery; return False if it was dropped.

        A message that had to be spilled is not reported to `on_delivery`. With `spillable` False
        the message is dropped instead.
        """
        counts = self._attempt(message.topic, message.timestamp, message.value, latest)
        spill = self._spill if spillable else None
        if spill is None:
            report: OnDelivery = partial(_report_to, counts, on_delivery)
        elif spill.empty:
            report = partial(self._delivered_or_kept, counts, on_delivery)
        else:
            return self._spill_message(spill, counts, message)
        return self._enqueue_counted(message, counts, report, wait_ms, spill)

    def _attempt(
        self, topic: str, timestamp: int, value: bytes | None, latest: LatestWindow[WindowCounts]
    ) -> WindowCounts:
        """Count an attempt; if it is of another window than the last, let `latest` go on there."""
        counts = latest.attempt(timestamp, value or b"")
        if counts is None:
            size = len(value or b"")
            counts = self.counters.attempt(topic, timestamp, size, ids_of(value)).held_in(latest)
        return counts

    def _enqueue_counted(
        self,
        message: OutgoingMessage,
        counts: WindowCounts,
        report: OnDelivery,
        wait_ms: int,
        spill: Spill | None,
    ) -> bool:
        """Queue a message whose attempt is counted: wait for room, spill it, or drop it."""
        topic, value, key, timestamp, headers, place = message
        carried: dict[str, str | bytes | None] | None = None if headers is None else {**headers}
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            try:
                partition = place if place is not None else ANY
                if place is None and key is None:
                    partition = self._partitioner.partition(topic)
                self.client.produce(topic, value, key, partition, report, None, timestamp, carried)
            except BufferError:
                if spill is not None:
                    return self._spill_message(spill, counts, message)
                # After `stop` began there may be room again, but nobody would send the message.
                waits = time.monotonic() < deadline
                if waits and not self._stopping.wait(_QUEUE_FULL_PAUSE_SECONDS):
                    continue
                if wait_ms == TELL_WHEN_FULL_MS and not self._stopping.is_set():
                    again = partial(self._try_again, message, counts, report)
                    drop = partial(counts.resolve, QUEUE_FULL)
                    raise FullQueueError(WaitingMessage(again, drop)) from None
                counts.resolve(QUEUE_FULL)
                return False
            except KafkaException as error:
                too_large = error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
                counts.resolve(TOO_LARGE if too_large else BROKER_ERROR)
                return False
            except _UNSUITABLE:
                counts.resolve(BROKER_ERROR)
                raise
            return True

    def _try_again(
        self, message: OutgoingMessage, counts: WindowCounts, report: OnDelivery
    ) -> bool:
        """Queue a message of a FullQueueError, or raise that again; drop it after `stop` began."""
        if self._stopping.is_set():  # nobody would serve its delivery report
            counts.resolve(QUEUE_FULL)
            return False
        return self._enqueue_counted(message, counts, report, TELL_WHEN_FULL_MS, None)

    def _spill_message(self, spill: Spill, counts: WindowCounts, message: OutgoingMessage) -> bool:
        """Append a message to the spill; drop it if the spill is full or its disk fails."""
        try:
            if spill.append(message):
                return True
        except OSError as error:
            _log.error("the spill in %s does not take messages: %s", spill.folder, error)
        counts.resolve(QUEUE_FULL)
        return False

    # ---- delivery reports: the polling thread, and `stop` ----

    def _delivered_or_kept(
        self, counts: WindowCounts, on_delivery: OnDelivery | None, error: Any, message: Any
    ) -> None:
        """Count a delivery report; a message that `stop` purged goes to the spill instead."""
        if error is not None and self._purging and error.code() in _PURGE_ERRORS:
            headers = {name: value or b"" for name, value in message.headers() or ()}
            topic, key, at = message.topic(), message.key(), message.timestamp()[1]
            kept = OutgoingMessage(topic, message.value(), key, at, headers or None)
            assert self._spill is not None
            self._spill_message(self._spill, counts, kept)
            return
        _report_to(counts, on_delivery, error, message)

    def _poll(self) -> None:
        """Serve delivery reports, flush the counters, and send spilled messages, until `stop`."""
        due = 0.0
        while not self._stopping.is_set():
            try:
                serve(self.client, _POLL_SECONDS)
                now = time.monotonic()
                if now >= due:
                    self.counters.flush()
                    took = time.monotonic() - now
                    due = now + max(_COUNTS_FLUSH_SECONDS, took / _COUNTS_FLUSH_SHARE)
                self._resender.resend()
                self._watch.look()
            except Exception:
                _log.exception("serving delivery reports failed")
                self._stopping.wait(1.0)

    # ---- the audit: the publishing thread ----

    def _publish(self) -> None:
        """Publish the counts every `audit_every` seconds, and the last ones before `_deadline`."""
        due = time.monotonic() + self._audit_every
        while not self._resender.is_decided(self._cluster):
            if self._resolved.wait(_CLUSTER_PAUSE_SECONDS):
                break
            if time.monotonic() >= due:
                self._report()
                due = time.monotonic() + self._audit_every
        self._report(own=False)  # the counts that dead processes left
        while not self._resolved.wait(self._audit_every):
            self._report()
        while self._report(last=True) or self._reporter.waiting:
            if time.monotonic() >= self._deadline:
                break
            self.client.flush(max(0.0, self._deadline - time.monotonic()))

    def _report(self, *, own: bool = True, last: bool = False) -> int:
        """Queue audit events; return their number, 0 if the audit cannot be reached now."""
        try:
            sent = self._reporter.report(self.counters) if own else 0
            sent += self._reporter.report_leftovers(self.counters)
            return sent + (last and self._reporter.report_end(self.counters))
        except HeadworksError as error:
            _log.warning("audit counts are kept for later: %s", error)
        except Exception:
            _log.exception("publishing the audit counts failed")
        return 0

    # ---- the end ----

    def flush(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for an empty queue; return the number of messages left."""
        deadline = time.monotonic() + timeout
        self._await_spills(deadline)
        self.client.flush(max(0.0, deadline - time.monotonic()))
        return self.counters.open_messages()

    @property
    def totals(self) -> ProducerTotals:
        """The events of this process by outcome."""
        return self._last_totals or totals_of(self.counters.totals())

    def stop(self, timeout: float) -> int:
        """Deliver and publish within `timeout` seconds; return the number of messages left.

        With a spill, the messages left are appended to it, and the next producer sends them.
        """
        deadline = time.monotonic() + timeout
        self._await_spills(deadline)
        self._stopping.set()
        self._polling_thread.join(timeout)
        self.client.flush(max(0.1, deadline - time.monotonic()))
        left = self.counters.open_messages()
        self._resender.acknowledge_batch()
        if left:
            self._purging = self._resender.purging = True
            self.client.purge()
            self.client.flush(_PURGE_SECONDS)
        self._deadline = deadline
        self._resolved.set()
        self._publishing_thread.join(max(_LAST_COUNTS_SECONDS, deadline - time.monotonic()))
        self._reporter.close()
        if left and self._spill is None:
            _log.error("%d messages were not delivered when the producer closed", left)
        elif left and self._spill is not None:
            _log.warning("%d messages wait in %s", left, self._spill.folder)
        self._resender.close()
        self._watch.look(last=True)
        self._last_totals = self.totals
        self.counters.close(remove=self._reporter.may_remove(self.counters))
        return left

    def _await_spills(self, deadline: float) -> None:
        """Wait until the spills are empty, or until `deadline` (monotonic seconds)."""
        while self._resender.waiting and time.monotonic() < deadline:
            time.sleep(_FLUSH_PAUSE_SECONDS)


def _started(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def _report_to(counts: WindowCounts, then: OnDelivery | None, error: Any, message: Any) -> None:
    counts.report(error, message)
    if then is not None:
        then(error, message)
