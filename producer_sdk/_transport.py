"""What runs of a producer in one process: librdkafka's client, the counters, the spill, one thread.

Rules:

- Everything counted is resolved: attempted = delivered + failed + dropped + still queued.
- Counting takes no lock (see `headworks._audit_counting.tally`).
- One thread serves delivery reports and sends again what was spilled; it survives every error,
  because without it nothing is delivered any more. Another publishes the counts: it may have to
  wait for the registry, and reports of deliveries must not wait with it.
- While anything is spilled, new messages are spilled too, so that they stay in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headworks._audit_counting import window_of
from headworks._audit_counting.counters import (
    BROKER_ERROR,
    QUEUE_FULL,
    RESENT,
    TOO_LARGE,
    CounterFile,
    WindowCounts,
)
from headworks._audit_counting.reporting import AuditReporter, audit_topic_sender
from headworks._kafka.clients import KafkaProducer
from headworks._kafka.partitioner import ANY, Detour
from headworks.errors import HeadworksError
from headworks.registry_client._schema_ids import EventSchemaIds
from producer_sdk._context import Headers
from producer_sdk._spill import Spill, SpilledMessage, leftover_spills

__all__ = ["OnDelivery", "Transport", "TransportConfig"]

OnDelivery = Callable[[Any, Any], None]
_log = logging.getLogger("headworks.producer")
_POLL_SECONDS = 0.1
_COUNTS_WRITE_SECONDS, _COUNTS_WRITE_SHARE = (
    0.05,
    0.02,
)  # counts into their file; at most so much of the time
_PURGE_SECONDS = 1.0
_LAST_COUNTS_SECONDS = 0.5
_SPILL_BATCH_MESSAGES = 10_000
_PURGE_ERRORS = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """What a producer is made with; `spill_bytes` 0: nothing is spilled."""

    client: Mapping[str, Any]
    state_dir: Path
    application: str
    ids: EventSchemaIds
    audit_every: float
    spill_bytes: int


class Transport:
    """Takes encoded messages (`put`) until `stop`."""

    def __init__(self, config: TransportConfig) -> None:
        self._detour = Detour()
        self.client = KafkaProducer(self._detour.client(config.client))
        self.counters = CounterFile(config.state_dir)
        self._latest = self.counters.latest
        self._reporter = AuditReporter(
            config.state_dir,
            tier="producer",
            application=config.application,
            ids=config.ids,
            send=audit_topic_sender(self.client, self._detour),
        )
        self._spill: Spill | None = None
        self._respilling: deque[Spill] = deque()  # those that hold something, the oldest first
        self._outstanding = 0
        self._pending: deque[tuple[SpilledMessage, WindowCounts]] = deque()
        if config.spill_bytes:
            self._respilling.extend(leftover_spills(config.state_dir))
            self._spill = Spill(config.state_dir, limit=config.spill_bytes)
            self._respilling.append(self._spill)
        self._every = config.audit_every
        self._stopping, self._counted = threading.Event(), threading.Event()
        self._closing = False
        self._deadline = 0.0
        self._server = _started(self._serve, "headworks-producer")
        self._publisher = _started(self._publish, "headworks-audit")

    def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        report: OnDelivery | None,
        wait_ms: int,
        spillable: bool,
    ) -> bool:
        """Queue a message; False if it was dropped, and counted so.

        `report` is not called for a message that had to be spilled.
        """
        size = len(value)
        slot = self._latest.get(topic)
        if slot is None or not slot.attempt(timestamp, size):
            slot = self.counters.attempt(topic, timestamp, size)
        if report is not None or self._spill is not None:
            return self._put(
                slot, topic, value, key, timestamp, headers, report, wait_ms, spillable
            )
        # What nearly every message takes: no more than counting, and one call of librdkafka's.
        carried: dict[str, str | bytes | None] | None = None if headers is None else {**headers}
        try:
            to = ANY if key is not None else self._detour.partition(topic)
            # By place, not by name: that halves what the call costs.
            self.client.produce(topic, value, key, to, slot.report, None, timestamp, carried)
        except (BufferError, KafkaException):
            return self._put(slot, topic, value, key, timestamp, headers, None, wait_ms, spillable)
        return True

    def _put(
        self,
        slot: WindowCounts,
        topic: str,
        value: bytes,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        report: OnDelivery | None,
        wait_ms: int,
        spillable: bool,
    ) -> bool:
        """`put` of what is counted in `slot`: spilled, waited for, or with somebody to tell."""
        spill = self._spill if spillable else None
        if spill is not None:
            if not spill.empty:
                return self._spilled(spill, slot, topic, value, key, timestamp, headers)
            callback: OnDelivery = partial(self._delivered, slot, report)
        else:
            callback = slot.report if report is None else _in_turn(slot.report, report)
        carried: dict[str, str | bytes | None] | None = None if headers is None else {**headers}
        deadline = 0.0
        while True:
            try:
                to = ANY if key is not None else self._detour.partition(topic)
                self.client.produce(topic, value, key, to, callback, None, timestamp, carried)
            except BufferError:
                if spill is not None:
                    return self._spilled(spill, slot, topic, value, key, timestamp, headers)
                now = time.monotonic()
                deadline = deadline or now + wait_ms / 1000
                if now < deadline and not self._stopping.is_set():
                    time.sleep(0.002)
                    continue
                slot.resolve(QUEUE_FULL)
                return False
            except KafkaException as error:
                too_large = error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
                slot.resolve(TOO_LARGE if too_large else BROKER_ERROR)
                return False
            return True

    def flush(self, timeout: float) -> int:
        """Wait up to `timeout` seconds until nothing is queued; the number of messages left."""
        deadline = time.monotonic() + timeout
        while self._has_spilled() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.client.flush(max(0.0, deadline - time.monotonic()))
        return self.counters.open_messages()

    def stop(self, timeout: float) -> int:
        """Deliver and publish within `timeout` seconds; the number of messages left.

        With a spill, what is left goes there, and the next producer sends it.
        """
        deadline = time.monotonic() + timeout
        while self._has_spilled() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._stopping.set()
        self._server.join(timeout)
        self.client.flush(max(0.1, deadline - time.monotonic()))
        left = self.counters.open_messages()
        if self._respilling and not self._outstanding:
            self._respilling[0].acknowledge()
        if left:
            self._closing = True
            self.client.purge()
            self.client.flush(_PURGE_SECONDS)
        self._deadline = deadline
        self._counted.set()
        self._publisher.join(max(_LAST_COUNTS_SECONDS, deadline - time.monotonic()))
        self._reporter.close()
        if left and self._spill is None:
            _log.error("%d messages were not delivered when the producer closed", left)
        elif left and self._spill is not None:
            _log.warning("%d messages wait in %s", left, self._spill.folder)
        for spill in {*self._respilling, *([self._spill] if self._spill else ())}:
            spill.close()
        self.counters.close(remove=self.counters.settled())
        return left

    def _has_spilled(self) -> bool:
        return any(not spill.empty for spill in tuple(self._respilling))

    def _spilled(
        self,
        spill: Spill,
        slot: WindowCounts,
        topic: str,
        value: bytes,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
    ) -> bool:
        kept = SpilledMessage(
            topic, value, key, timestamp, None if headers is None else dict(headers)
        )
        try:
            if spill.append(kept):
                return True
        except OSError as error:
            _log.error("the spill in %s does not take messages: %s", spill.folder, error)
        slot.resolve(QUEUE_FULL)
        return False

    def _delivered(
        self, slot: WindowCounts, report: OnDelivery | None, error: Any, message: Any
    ) -> None:
        """A report while spilling is on: what the end of the producer purges is kept on disk."""
        if error is not None and self._closing and error.code() in _PURGE_ERRORS:
            headers = {name: value or b"" for name, value in message.headers() or ()}
            kept = (message.topic(), message.value(), message.key(), message.timestamp()[1])
            assert self._spill is not None
            self._spilled(self._spill, slot, *kept, headers or None)
            return
        slot.report(error, message)
        if report is not None:
            report(error, message)

    def _serve(self) -> None:
        due = 0.0
        while not self._stopping.is_set():
            try:
                self.client.poll(_POLL_SECONDS)
                now = time.monotonic()
                if now >= due:
                    self.counters.flush()
                    due = now + max(
                        _COUNTS_WRITE_SECONDS, (time.monotonic() - now) / _COUNTS_WRITE_SHARE
                    )
                if self._respilling:
                    self._send_spilled()
            except Exception:
                _log.exception("serving delivery reports failed")
                self._stopping.wait(1.0)

    def _send_spilled(self) -> None:
        """Move on with the oldest spill: the next batch when the last one is acknowledged."""
        spill = self._respilling[0]
        while self._pending:
            message, slot = self._pending[0]
            try:
                self.client.produce(
                    message.topic,
                    message.value,
                    message.key,
                    partition=self._detour.partition(message.topic) if message.key is None else ANY,
                    on_delivery=partial(self._respilled, slot),
                    timestamp=message.timestamp,
                    headers=None if message.headers is None else dict(message.headers),
                )
            except BufferError:
                return
            except KafkaException:
                slot.resolve(BROKER_ERROR)
                self._outstanding -= 1
            self._pending.popleft()
        if self._outstanding:
            return
        if not spill.empty:
            spill.acknowledge()  # the last batch: a crash must not send it again
            for message in spill.read(_SPILL_BATCH_MESSAGES):
                self._pending.append((message, self._slot_of(spill, message)))
                self._outstanding += 1
            if not self._pending:
                spill.acknowledge()  # what is left of it is damaged
        elif spill is not self._spill:
            self._respilling.popleft().close()

    def _slot_of(self, spill: Spill, message: SpilledMessage) -> WindowCounts:
        window = window_of(message.timestamp)
        if spill is self._spill:
            found = self.counters.open_slot(message.topic, window)
            if found is not None:
                return found
        else:  # who spilled it has attempted it before: one message, not two
            self.counters.count(message.topic, window, 0, RESENT)
        return self.counters.attempt(message.topic, message.timestamp, len(message.value))

    def _respilled(self, slot: WindowCounts, error: Any, message: Any) -> None:
        if error is not None and self._closing and error.code() in _PURGE_ERRORS:
            return  # it is in its spill still
        slot.report(error, message)
        self._outstanding -= 1

    def _publish(self) -> None:
        """Publish the counts now and then; at the end, all that `_deadline` leaves time for."""
        self._report(own=False)  # nothing was counted yet that is not an earlier process's
        while not self._counted.wait(self._every):
            self._report()
        while (self._report() or self._reporter.waiting) and time.monotonic() < self._deadline:
            self.client.flush(max(0.0, self._deadline - time.monotonic()))

    def _report(self, *, own: bool = True) -> int:
        """Queue what is to be published; 0 if nothing, or if the audit cannot be reached now."""
        try:
            sent = self._reporter.report_leftovers()
            return sent + (self._reporter.report(self.counters) if own else 0)
        except HeadworksError as error:
            _log.warning("audit counts are kept for later: %s", error)
        except Exception:
            _log.exception("publishing the audit counts failed")
        return 0


def _started(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def _in_turn(first: OnDelivery, second: OnDelivery) -> OnDelivery:
    def report(error: object, message: object) -> None:
        first(error, message)
        second(error, message)

    return report
