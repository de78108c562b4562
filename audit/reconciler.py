"""The audit topic, followed into the store.

Rules:

- It reads without a consumer group, from the positions in the store. Nothing is read twice or
  skipped, also if another reconciler uses the same store.
- A message that is not an audit event is recorded with its position, and the reading continues.
  `audit status` reports it, because a sum with a hole proves nothing.
- A damaged record batch is stepped over, and its messages are recorded as missed.
- A second connection asks for the end of the topic. On the reading one, the answer would wait
  behind a fetch that waits for messages.
- A batch is bounded in messages, so memory does not grow with the backlog.
- A store belongs to the audit topic of one cluster; another cluster is refused.
- Positions belong to one topic (KIP-516). One that was made again is read from its first message
  on. Increments that it holds once more are counted once.
- A cut of the logs is taken between batches, so that what is waiting and what is lost is known.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy import insert, select

from headworks._audit.increments import Increment, IncrementDecoder
from headworks._audit.log_bounds import LogBoundsReader
from headworks._audit.reader import (
    audit_consumer,
    audit_properties,
    broker_unreachable,
    watermarks,
)
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.apply import (
    IncrementBatch,
    PositionsMovedError,
    apply,
    positions,
    topic_id,
)
from headworks._audit.store.cuts import PUBLISHED_AFTER_MS, take_cut, unpublished_until
from headworks._audit_counting import AUDIT_TOPIC
from headworks._kafka.client_properties import client_properties
from headworks._kafka.damaged_batch import DamagedBatch, damaged_batch, offset_after
from headworks._kafka.topic_ids import topic_ids
from headworks.errors import CorruptError, UnreachableError, UsageError
from headworks.registry_client import RegistryClient

_log = logging.getLogger("headworks.audit")
_TIMEOUT_SECONDS = 10.0
_MAX_BATCH_MESSAGES = 20_000
_POLL_SECONDS = 1.0
_CATCH_UP_POLL_SECONDS = 0.05
_REFRESH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ReconcilerProgress:
    """The messages read since the start, and the messages left to read."""

    read: int
    lag: int


class Reconciler:
    """Follows the audit topic of the broker at `bootstrap` into `store`.

    Raises UnreachableError if the broker does not answer, and UsageError if the store belongs to
    another cluster.
    """

    def __init__(
        self,
        bootstrap: str,
        registry: str,
        store: AuditStore,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._bootstrap = bootstrap
        self._store = store
        self._now = now
        self._decode = IncrementDecoder(RegistryClient(registry))
        self._ends: dict[int, int] = {}  # last known end offset by partition
        self._refreshed_at = 0.0  # when the ends were asked for, by the monotonic clock
        self._ends_as_of = 0  # the same by the wall clock, in ms
        self._read_until = 0
        self._cut: set[int] = set()  # partitions whose first message here is not their first
        self._messages_read = 0  # since the start
        self._positions: dict[int, int] = {}  # next offset by partition, as in the store
        self._topic_id = ""  # of the topic that they belong to; "": not known
        self._needs_seek = False  # the consumer is ahead of the store, or elsewhere
        self._log_bounds = LogBoundsReader(bootstrap)
        self._admin = AdminClient({**client_properties(bootstrap), "log_level": 0})
        self._metadata_consumer = audit_consumer(bootstrap, "error")
        self._consumer = audit_consumer(bootstrap, "error")
        try:
            self._check_cluster()
            try:
                self._seek()
            except UnreachableError:  # the leader of a partition is down
                self._needs_seek = True
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reconciler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the store stays open."""
        self._consumer.close()
        self._metadata_consumer.close()

    @property
    def progress(self) -> ReconcilerProgress:
        """The progress by the last known ends."""
        lag = sum(max(0, end - self._positions.get(p, end)) for p, end in self._ends.items())
        return ReconcilerProgress(self._messages_read, lag)

    @property
    def read_until(self) -> int:
        """The time up to which everything was read, in ms since 1970; 0 before it is known."""
        at = self._positions  # without any end, nothing is known: the topic may not be readable
        if self._ends and all(at.get(p, -1) >= end for p, end in self._ends.items()):
            self._read_until = self._ends_as_of
        return self._read_until

    def catch_up(self) -> int:
        """Read to the current ends of the topic. Return the number of new increments."""
        self._refresh_ends()
        topic, goal, new = self._topic_id, dict(self._ends), 0
        last_answer = time.monotonic()
        while any(self._positions.get(p, end) < end for p, end in goal.items()):
            before = dict(self._positions)
            new += self._step(_CATCH_UP_POLL_SECONDS)
            if self._topic_id != topic:  # the topic was made again, and has other ends
                topic, goal = self._topic_id, dict(self._ends)
                last_answer = time.monotonic()
            elif self._positions != before:
                last_answer = time.monotonic()
            elif time.monotonic() - last_answer > _TIMEOUT_SECONDS:
                raise UnreachableError(
                    f"the broker at {self._bootstrap} stopped answering while the audit was read",
                    fix="look at its log, then ask again",
                )
        return new

    def take_cut(self) -> None:
        """Find out which counted messages the loader has passed. UnreachableError without broker.

        It follows `catch_up` or a batch: counts that were not read are not part of it.
        """
        take_cut(self._store, self._log_bounds, int(self._now() * 1000))

    def settle(self) -> None:
        """Read to the current ends, and take a cut that believes every load in the store."""
        self.catch_up()
        fresh = unpublished_until(self._store) / 1000 - self._now()
        if 0 < fresh <= PUBLISHED_AFTER_MS / 1000:
            time.sleep(fresh)
            self.catch_up()
        self.take_cut()

    def follow(self, stop: threading.Event, seen: Callable[[int], None] | None = None) -> None:
        """Read until `stop` is set; call `seen` after every batch with its number of new
        increments.
        """
        while not stop.is_set():
            if time.monotonic() - self._refreshed_at > (
                _REFRESH_SECONDS if self._ends else _POLL_SECONDS
            ):
                self._refresh_ends()
            new = self._step(_POLL_SECONDS)
            if seen is not None:
                seen(new)

    def _step(self, seconds: float) -> int:
        if self._needs_seek:
            self._seek()
            self._needs_seek = False
        messages = self._consumer.consume(_MAX_BATCH_MESSAGES, timeout=seconds)
        if not messages:
            return 0
        self._needs_seek = True  # until what was consumed is in the store
        try:
            batch, damage = self._batch(messages)
            new = 0 if batch.end == batch.start else apply(self._store, batch)
        except PositionsMovedError:
            return 0
        self._needs_seek = False
        self._messages_read += len(batch.increments)
        self._positions = dict(batch.end)
        for damaged in damage:
            self._step_over(damaged)
        return new

    def _step_over(self, damaged: DamagedBatch) -> None:
        """Continue after a damaged record batch, and record its messages as missed."""
        self._needs_seek = True  # the consumer has lost its place
        at = self._positions.get(damaged.partition, damaged.offset)
        batch = replace(damaged, offset=max(at, damaged.offset))
        following = offset_after(audit_properties(self._bootstrap), batch)
        _log.warning("%s: skipped up to offset %d: %s", batch.place, following, batch.reason)
        wanted = self._positions | {batch.partition: following}
        hole = int(self._now() * 1000)
        missed = following - batch.offset
        self._save_positions(self._positions, wanted, missed, hole, self._topic_id)

    def _batch(self, messages: list[Message]) -> tuple[IncrementBatch, list[DamagedBatch]]:
        """Return the increments of messages, and the damaged batches that ended partitions."""
        end = dict(self._positions)
        damage: dict[int, DamagedBatch] = {}
        increments: list[Increment] = []
        unreadable: dict[tuple[int, int], str] = {}
        hole = 0
        for message in messages:
            partition, offset = message.partition(), message.offset()
            error = message.error()
            if partition in damage:
                continue
            if (damaged := damaged_batch(message)) is not None:
                damage[damaged.partition] = damaged
                continue
            if error is not None:
                self._check_error(error)
                continue
            assert partition is not None
            assert offset is not None
            if partition in self._cut:
                self._cut.remove(partition)
                hole = max(hole, message.timestamp()[1])
            try:
                increments.append(self._decode(message.value() or b""))
            except CorruptError as problem:
                unreadable[partition, offset] = problem.message
                hole = max(hole, message.timestamp()[1])
            end[partition] = offset + 1
        # Only an increment that is read as it is written shows its writer's clock.
        at = self._positions
        live = len(messages) < _MAX_BATCH_MESSAGES and all(
            at.get(p, 0) >= e for p, e in self._ends.items()
        )
        now = int(self._now() * 1000)
        batch = IncrementBatch(dict(at), end, increments, now, live, unreadable, hole)
        return replace(batch, topic_id=self._topic_id), list(damage.values())

    def _check_error(self, error: Any) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF or error.retriable():
            return
        if code in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            raise PositionsMovedError
        if code not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            raise UnreachableError(f"reading {AUDIT_TOPIC}: {error.str()}")

    def _check_cluster(self) -> None:
        try:
            cluster = self._metadata_consumer.list_topics(
                AUDIT_TOPIC, timeout=_TIMEOUT_SECONDS
            ).cluster_id
        except KafkaException as error:
            raise broker_unreachable(self._bootstrap, error) from None
        with self._store.write() as connection:
            known = connection.scalar(
                select(tables.facts.c.value).where(tables.facts.c.name == tables.CLUSTER)
            )
            if known is None:
                connection.execute(
                    insert(tables.facts).values(name=tables.CLUSTER, value=str(cluster))
                )
            elif known != str(cluster):
                raise UsageError(
                    f"the store holds the audit of cluster {known}, "
                    f"and the broker at {self._bootstrap} is of cluster {cluster}",
                    fix="give another with --store, or the right --bootstrap",
                )

    def _refresh_ends(self) -> None:
        """Ask for the partitions, their ends, and whether the topic is still the same."""
        known = set(self._ends)
        self._ask_ends()
        if set(self._ends) != known or self._ask_topic_id() not in ("", self._topic_id):
            self._seek()

    def _ask_topic_id(self) -> str:
        found = topic_ids(self._admin, [AUDIT_TOPIC], timeout=_TIMEOUT_SECONDS)
        return found.get(AUDIT_TOPIC, "")

    def _ask_ends(self) -> dict[int, tuple[int, int]]:
        as_of = int(self._now() * 1000)
        marks = watermarks(self._metadata_consumer, self._bootstrap)
        self._ends = {p: high for p, (_, high) in marks.items()}
        self._ends_as_of, self._refreshed_at = as_of, time.monotonic()
        return marks

    def _seek(self) -> None:
        """Continue from the store's positions, and record messages that the topic has lost."""
        beyond = self._try_seek()
        # From the first answer on: the question itself may have taken as long.
        patience = time.monotonic() + _TIMEOUT_SECONDS
        while beyond is not None:
            # A leader that was paused tells an old end until it knows its successor.
            if time.monotonic() > patience:
                raise beyond
            time.sleep(_POLL_SECONDS)
            beyond = self._try_seek()

    def _try_seek(self) -> CorruptError | None:
        """Seek; return the error if the store has read beyond the end of the topic.

        A topic that was made again is read from its first message, if the broker tells its id.
        """
        now_id, marks = self._ask_topic_id(), self._ask_ends()
        with self._store.read() as connection:
            stored, known_id = positions(connection), topic_id(connection)
        made_again = bool(known_id and now_id) and known_id != now_id
        wanted = {} if made_again else dict(stored)
        missed = 0
        for partition, (low, high) in marks.items():
            at = wanted.setdefault(partition, low)
            if at > high:
                return CorruptError(
                    f"the store has read {AUDIT_TOPIC} partition {partition} to offset {at}, "
                    f"and it ends at {high}: the topic is not the one that was read",
                    fix="give another store with --store, or remove this one to start over",
                )
            if at < low:
                missed += low - at
                wanted[partition] = low
        if made_again:
            _log.warning(
                "topic %s was deleted and made again: reading it from its first message; what the "
                "old one held and was not read is missing",
                AUDIT_TOPIC,
            )
        if wanted != stored or now_id not in ("", known_id):
            hole = int(self._now() * 1000) if missed or made_again else 0
            if not self._save_positions(stored, wanted, missed, hole, known_id, now_id):
                return self._try_seek()
        self._positions, self._topic_id = wanted, now_id or known_id
        self._cut = {
            p
            for p, (low, high) in marks.items()
            if 0 < low == wanted[p] and (low < high or p not in stored)
        }
        self._consumer.assign([TopicPartition(AUDIT_TOPIC, p, wanted[p]) for p in marks])
        return None

    def _save_positions(
        self,
        stored: dict[int, int],
        wanted: dict[int, int],
        missed: int,
        hole: int,
        topic: str,
        new_topic: str = "",
    ) -> bool:
        """Move the store's positions in the topic with the id `topic`, or from it to `new_topic`.

        Return False, and change nothing, if another reconciler has moved them.
        """
        now = int(self._now() * 1000)
        batch = IncrementBatch(
            stored,
            wanted,
            (),
            now,
            live=False,
            hole=hole,
            missed=missed,
            topic_id=topic,
            new_topic_id=new_topic,
        )
        try:
            apply(self._store, batch)
        except PositionsMovedError:
            return False
        return True
