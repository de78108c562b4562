"""Sends spilled messages: those that dead processes left, and those of this one.

Until a broker has said which cluster this is, only those of this process are sent. Then the others
come first.

Rules:

- Only the polling thread of the transport calls `resend`, and only the publishing thread calls
  `is_decided`. Any thread may read `waiting`.
- Nothing that a dead process left is sent before a broker has said which cluster this is. Messages
  for another cluster stay in the folder.
- One batch is in flight at a time. The next one is read when every message of it is resolved, so
  that the position in the spill file never passes a message without an answer.
- A message that this process spilled was counted as attempted when it was spilled. A message of a
  dead process is counted as attempted again here, and as `resent`, so that it stays one message.
- While the producer closes, a purged message stays in its spill and is not counted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headworks._audit_counting import window_of
from headworks._audit_counting.counters import CounterFile
from headworks._audit_counting.outcomes import BROKER_ERROR, RESENT
from headworks._audit_counting.schema_use import ids_of
from headworks._audit_counting.window_counts import WindowCounts
from headworks._kafka.clients import KafkaProducer
from headworks._kafka.cluster_identity import ClusterIdentity, ClusterOfClient
from headworks._kafka.partitioner import ANY, KeylessPartitioner
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill import Spill

_log = logging.getLogger("headworks.producer")
_BATCH_MESSAGES = 10_000
_PURGE_ERRORS = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class SpillResender:
    """Empties `leftovers`, oldest first, and then `own`, as often as that fills again."""

    def __init__(
        self,
        own: Spill | None,
        leftovers: Sequence[Spill],
        client: KafkaProducer,
        partitioner: KeylessPartitioner,
        counters: CounterFile,
    ) -> None:
        # The spill of this process; it is never removed from `_spills`.
        self._own = own
        # Spills of dead processes for any cluster, until it is known; `_decided` are of this one.
        self._leftovers = leftovers
        # Spills of dead processes for this cluster, until `resend` moves them to `_spills`.
        self._decided: deque[Spill] = deque()
        # The spills to send, the oldest first.
        self._spills = deque([] if own is None else [own])
        # Whether it is open which leftovers are of this cluster.
        self._undecided = own is not None
        self._client = client
        self._partitioner = partitioner
        self._counters = counters
        # Messages of the current batch that librdkafka's queue has not taken yet.
        self._unsent: deque[tuple[OutgoingMessage, WindowCounts]] = deque()
        # Messages of the current batch that are not resolved.
        self._unresolved = 0
        # Whether the producer closes and purges its queue.
        self.purging = False

    @property
    def waiting(self) -> bool:
        """Whether a spill holds messages that are not delivered."""
        held = *self._leftovers, *tuple(self._decided), *tuple(self._spills)
        return any(not spill.empty for spill in held)

    def is_decided(self, client: ClusterOfClient) -> bool:
        """Return whether the leftovers of this cluster are known; ask a broker if they are not."""
        try:
            if self._undecided and (cluster := client.known()) is not None:
                self._decide(cluster)
        except Exception:  # the counts are published, whatever happens to a file
            _log.exception("releasing the messages for other clusters failed")
        return not self._undecided

    def _decide(self, cluster: ClusterIdentity) -> None:
        """Keep the leftovers of this cluster, and release the others; name it in the own spill."""
        taken: list[Spill] = []
        left: list[Spill] = []
        for spill in self._leftovers:
            (taken if cluster.takes(spill.cluster) else left).append(spill)
        self._decided.extend(taken)  # all at once, because `resend` empties it from its end
        self._leftovers, self._undecided = (), False
        if self._own is not None:
            self._own.name_cluster(cluster)
        for spill in left:
            _log.warning(
                "messages for %s wait in %s. They stay there, because this producer writes to %s."
                " fix: start a producer that writes to that cluster with this state_dir",
                *(spill.cluster, spill.folder, cluster),
            )
            spill.close()

    def resend(self) -> None:
        """Continue with the oldest spill: queue its batch, or read the next one."""
        while self._unsent:
            message, counts = self._unsent[0]
            try:
                self._produce(message, counts)
            except BufferError:
                return  # the queue is full
            except KafkaException:
                counts.resolve(BROKER_ERROR)
                self._unresolved -= 1
            self._unsent.popleft()
        if self._unresolved or not self._spills:
            return
        if self._decided:
            self._spills[0].acknowledge()  # its last batch
            while self._decided:
                self._spills.appendleft(self._decided[-1])  # first, or `waiting` would miss it
                self._decided.pop()
        spill = self._spills[0]
        if not spill.empty:
            spill.acknowledge()  # the last batch: a crash must not send it again
            for message in spill.read(_BATCH_MESSAGES):
                self._unsent.append((message, self._counts_of(spill, message)))
                self._unresolved += 1
            if not self._unsent:
                spill.acknowledge()  # the rest of it is damaged
        elif spill is not self._own:
            self._spills.popleft().close()

    def acknowledge_batch(self) -> None:
        """Mark the current batch as delivered if every message of it is resolved."""
        if self._spills and not self._unresolved:
            self._spills[0].acknowledge()

    def close(self) -> None:
        """Close the spills; the files of those that are empty are removed."""
        for spill in (*self._leftovers, *self._decided, *self._spills):
            spill.close()

    def _produce(self, message: OutgoingMessage, counts: WindowCounts) -> None:
        topic, value, key, timestamp, headers, _ = message
        self._client.produce(
            topic,
            value,
            key,
            partition=ANY if key is not None else self._partitioner.partition(topic),
            on_delivery=partial(self._delivered, counts),
            timestamp=timestamp,
            headers=None if headers is None else dict(headers),
        )

    def _delivered(self, counts: WindowCounts, error: Any, message: Any) -> None:
        if error is not None and self.purging and error.code() in _PURGE_ERRORS:
            return  # it is still in its spill
        counts.report(error, message)
        self._unresolved -= 1

    def _counts_of(self, spill: Spill, message: OutgoingMessage) -> WindowCounts:
        """Return the counts in which a spilled message is open, and open it there if need be."""
        window, ids = window_of(message.timestamp), ids_of(message.value)
        if spill is self._own:
            found = self._counters.open_counts(message.topic, window, ids)
            if found is not None:
                return found
        else:
            self._counters.count(message.topic, window, 0, RESENT, ids=ids)
        size = len(message.value or b"")
        return self._counters.attempt(message.topic, message.timestamp, size, ids)
