"""One life of a mirror's reader and sender: it starts and ends at committed offsets.

Rules:

- An offset is committed on the source only after the target has acknowledged every message before
  it (a checkpoint). An error ends the session, and the next one starts at the committed offsets.
  At worst, the messages since the last checkpoint are duplicated.
- A damaged batch is reported only after the target has everything that was read before it.
- If a message fails, the next session is careful (see `sender`) up to the end of this one.
- A committed offset names the id of its topic. It is no offset of another topic of that name.
- When the sender is full, reading stops until the target has acknowledged: memory is bounded.
- Everything runs in the source's own thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import KafkaException

from headworks._audit_counting import window_of
from headworks._audit_counting.schema_use import ids_of
from headworks._mirror.audit_tier import Counts, MirrorAuditTier
from headworks._mirror.errors import Position, SessionEndedError
from headworks._mirror.options import MirrorOptions, MirrorSource
from headworks._mirror.progress import MirrorProgress
from headworks._mirror.reader import SourceReader
from headworks._mirror.schema_ids import SchemaIdCheck
from headworks._mirror.sender import TargetSender
from headworks._mirror.topics import MirroredTopics
from headworks.errors import UnreachableError

_log = logging.getLogger("headworks.mirror")
_MAX_READ_MESSAGES = 2000
_POLL_SECONDS = 0.2
_QUEUE_FULL_SECONDS = 0.01
_REGISTRY_RETRY_SECONDS = 1.0
_REVOKE_SECONDS = 20.0
_STOP_SECONDS = 20.0
_LAG_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The objects of a source that outlive its sessions."""

    topics: MirroredTopics
    schema_ids: SchemaIdCheck | None
    tier: MirrorAuditTier | None
    progress: MirrorProgress


class MirrorSession:
    """Copies until `stopping` is set; a careful one until `careful_until` is committed."""

    def __init__(
        self,
        options: MirrorOptions,
        source: MirrorSource,
        context: SourceContext,
        stopping: threading.Event,
        careful_until: Position,
    ) -> None:
        self._options = options
        self._topics, self._tier = context.topics, context.tier
        self._progress = context.progress
        self._stopping = stopping
        self._careful_until = careful_until  # empty: not careful
        self._pending: deque[confluent_kafka.Message] = deque()  # read and not yet sent
        self._sent: dict[tuple[str, int], int] = {}  # next offset by source partition
        self._last_times: dict[str, int] = {}  # timestamp in ms of the last sent message
        self._lags_at = 0.0  # when the lags are measured next, by the monotonic clock
        self._unacknowledged: Counts = {}  # attempted, pending ones included
        self._sender = TargetSender(
            options,
            context.topics,
            context.schema_ids,
            context.progress,
            self._count_skipped,
            careful=bool(careful_until),
        )
        self._reader = SourceReader(
            options, source, context.topics, context.progress, self._before_revoke
        )

    def run(self) -> None:
        """Copy until asked to stop, or until the session need not be careful any more.

        Raises SessionEndedError if the next session may succeed, and other errors if it cannot.
        """
        try:
            self._copy()
        except KafkaException as error:
            raise SessionEndedError(error.args[0].str()) from error
        except SessionEndedError as error:
            error.careful_until = self._next_careful_until(error)
            raise
        finally:
            self._close()

    def _copy(self) -> None:
        checkpoint_at = refresh_at = 0.0
        while not self._stopping.is_set():
            if time.monotonic() >= refresh_at:
                self._refresh()
                refresh_at = time.monotonic() + self._options.refresh_every
            self._enqueue(self._reader.read(_MAX_READ_MESSAGES, _POLL_SECONDS))
            self._send_pending()
            if self._reader.held_up and not self._pending and self._checkpoint():
                self._reader.step_over()
            self._sender.poll(0)
            self._sender.check()
            if time.monotonic() >= checkpoint_at:
                self._checkpoint()
                if self._careful_until and self._reader.is_committed(self._careful_until):
                    return
                checkpoint_at = time.monotonic() + self._options.commit_every
            self._measure_lags()
        if not self._checkpoint(_STOP_SECONDS):
            _log.warning(
                "the target %s has not acknowledged everything: it is sent again at the next start",
                self._options.target,
                extra={"target": self._options.target},
            )

    def _refresh(self) -> None:
        try:
            self._topics.refresh()
        except UnreachableError as error:
            if not self._topics.mappings:
                raise SessionEndedError(error.message) from None
            _log.warning("%s", error.message, extra={"target": self._options.target})
        self._progress.refused_topics = len(self._topics.refused)
        self._check_ids()
        self._reader.subscribe(set(self._topics.mappings))

    def _check_ids(self) -> None:
        """Raise SessionEndedError if a topic was recreated: the next session reads all of it."""
        recreated = self._topics.recreated()
        if not recreated:
            return
        self._careful_until = {
            at: offset for at, offset in self._careful_until.items() if at[0] not in recreated
        }
        names = ", ".join(sorted(recreated))
        raise SessionEndedError(f"the source has recreated {names}: mirroring from the beginning")

    def _enqueue(self, found: list[confluent_kafka.Message]) -> None:
        """Queue messages, and count them as attempted."""
        counts: Counts = {}
        for message in found:
            _count(counts, message)
        self._pending.extend(found)
        _add(self._unacknowledged, counts)
        if self._tier is not None:
            self._tier.attempted(counts)

    def _send_pending(self) -> None:
        pending = self._pending
        while pending and not self._stopping.is_set():
            message = pending[0]
            try:
                self._sender.send(message)
            except BufferError:
                self._wait(_QUEUE_FULL_SECONDS)
                continue
            except UnreachableError as error:
                self._progress.errors["registry"] += 1
                _log.warning("%s", error.message, extra={"target": self._options.target})
                self._wait(_REGISTRY_RETRY_SECONDS)
                continue
            pending.popleft()
            topic = message.topic() or ""
            self._sent[topic, message.partition() or 0] = (message.offset() or 0) + 1
            self._last_times[topic] = message.timestamp()[1]

    def _wait(self, seconds: float) -> None:
        self._sender.poll(seconds)
        self._sender.check()
        self._enqueue(self._reader.keep_alive())
        self._measure_lags()  # most of all while the target does not answer

    def _measure_lags(self) -> None:
        """Measure the lags, once a second."""
        if time.monotonic() >= self._lags_at:
            self._progress.lags = self._reader.lags(self._last_times)
            self._lags_at = time.monotonic() + _LAG_SECONDS

    def _checkpoint(self, limit: float | None = None) -> bool:
        """Wait until the target has acknowledged all that was sent, then commit it on the source.

        Return False after `limit` seconds, or without a limit when asked to stop.
        """
        end = None if limit is None else time.monotonic() + limit
        while self._sender.flush(_POLL_SECONDS):
            self._sender.check()
            if self._stopping.is_set() if end is None else time.monotonic() >= end:
                return False
            if end is None:
                self._wait(0)
        self._sender.check()
        self._count_mirrored()
        self._reader.commit(self._sent)
        self._progress.acknowledged_at = time.time()
        return True

    def _count_mirrored(self) -> None:
        """Count acknowledged messages as mirrored; queued ones stay unacknowledged."""
        waiting: Counts = {}
        for message in self._pending:
            _count(waiting, message)
        done = self._unacknowledged
        _add(done, waiting, sign=-1)
        self._unacknowledged = waiting
        for (topic, _, _), (messages, size) in done.items():
            self._progress.messages[topic] += messages
            self._progress.bytes[topic] += size
        if self._tier is not None:
            self._tier.mirrored(done)

    def _before_revoke(self) -> None:
        """Commit before all partitions are revoked, and discard the rest, which is read again."""
        try:
            if not self._checkpoint(_REVOKE_SECONDS):
                raise SessionEndedError("the target did not acknowledge in time for a rebalance")
        finally:
            self._pending.clear()
            self._abandon()
            self._sent.clear()

    def _count_skipped(self, message: confluent_kafka.Message) -> None:
        topic, window = message.topic() or "", window_of(message.timestamp()[1])
        self._progress.too_large[topic] += 1
        ids = ids_of(message.value())
        entry = self._unacknowledged[topic, window, ids]
        entry[0] -= 1
        entry[1] -= len(message.value() or b"")
        if self._tier is not None:
            self._tier.too_large(topic, window, ids)

    def _next_careful_until(self, error: SessionEndedError) -> Position:
        """Return the offsets at which the next session may stop being careful."""
        careful_until = dict(self._careful_until)
        if error.careful:
            for at, offset in self._sent.items():
                careful_until[at] = max(offset, careful_until.get(at, 0))
        return careful_until

    def _abandon(self) -> None:
        """Count unacknowledged messages as unresolved: they may arrive, and are sent again."""
        if self._tier is not None:
            self._tier.unresolved(self._unacknowledged)
        self._unacknowledged = {}

    def _close(self) -> None:
        self._sender.close()
        self._abandon()
        self._reader.close()


def _count(counts: Counts, message: confluent_kafka.Message) -> None:
    window, ids = window_of(message.timestamp()[1]), ids_of(message.value())
    key = (message.topic() or "", window, ids)
    entry = counts.setdefault(key, [0, 0])
    entry[0] += 1
    entry[1] += len(message.value() or b"")


def _add(total: Counts, more: Counts, sign: int = 1) -> None:
    for key, (messages, size) in more.items():
        entry = total.setdefault(key, [0, 0])
        entry[0] += sign * messages
        entry[1] += sign * size
