"""Damaged record batches: recognize librdkafka's report of one, and find the offset after it.

librdkafka checks the CRC of each batch (see `clients`). After a failed check it loses its place:
the next events of the partition have arbitrary offsets, and `auto.offset.reset` applies.

Rules:

- A reader that meets a damaged batch discards the later events of the partition. It seeks to the
  first missing offset before it reads on, so that a reset of the offset cannot move it.
- `offset_after` asks the broker alone, so it works with every broker, login, and encryption.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from headworks._kafka.client_properties import READ_AHEAD
from headworks._kafka.clients import KafkaConsumer, note_damage
from headworks.errors import CorruptError, UnreachableError

_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.1
_DAMAGE_CODES: Final = frozenset(
    {
        KafkaError._BAD_MSG,  # the CRC differs
        KafkaError._NOT_IMPLEMENTED,  # the magic byte is none
        KafkaError._BAD_COMPRESSION,
        KafkaError.INVALID_MSG,  # the broker's own search met the damage
    }
)
_PROBE: Final = {
    **READ_AHEAD,
    "check.crcs": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # One batch answers a probe.
    "fetch.message.max.bytes": 1024,
    "queued.min.messages": 1,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 0,
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """A batch that a reader could not use; `offset` is its first one that the reader misses."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def place(self) -> str:
        """The topic, partition, and offset, as errors and logs name them."""
        return f"{self.topic} partition {self.partition} offset {self.offset}"


class DamagedBatchError(CorruptError):
    """A record batch whose bytes differ from those written, or that the broker cannot read."""

    def __init__(self, batch: DamagedBatch, *, fix: str) -> None:
        super().__init__(
            f"{batch.place}: the record batch there is damaged: {batch.reason}", fix=fix
        )
        self.batch = batch


def damaged_batch(
    message: confluent_kafka.Message, position: int | None = None
) -> DamagedBatch | None:
    """Return the damaged batch that an event of a consumer reports, or None for another event.

    `position` is the next offset that the reader wants, if it knows: it may lie inside the batch.
    """
    problem = message.error()
    if problem is None or problem.code() not in _DAMAGE_CODES:
        return None
    base = max(0, message.offset() or 0)
    first = base if position is None else max(base, position)
    found = DamagedBatch(message.topic() or "", message.partition() or 0, first, problem.str())
    note_damage(found.topic, found.partition)
    return found


def offset_after(
    client: Mapping[str, Any], batch: DamagedBatch, *, timeout: float = _TIMEOUT_SECONDS
) -> int:
    """Return the first offset after a damaged batch: the next batch's, or the log end offset.

    `client` holds the properties of librdkafka that name the brokers and the user. The next batch
    may be damaged too. The search takes two fetches for each doubling of its records. If the
    broker knows of the damage, it takes one for each record, and the next one is intact.
    UnreachableError if the broker does not answer for `timeout` seconds.
    """
    properties = {"group.id": "headworks-damage", **client, **_PROBE}
    consumer = KafkaConsumer(properties)
    try:
        return _Search(consumer, batch, timeout).run()
    finally:
        consumer.close()


class _NamelessDamageError(Exception):
    """The broker itself reports damage, and does not say where the damaged batch begins."""


class _Search:
    """A search between two offsets: a fetch at the first meets the batch, one at the other not.

    A broker that knows of the damage names no batch. Two damaged batches then look like one, with
    the intact ones between them, so the search asks for every offset.
    """

    def __init__(self, consumer: KafkaConsumer, batch: DamagedBatch, timeout: float) -> None:
        self._consumer = consumer
        self._batch = batch
        self._inside = batch.offset  # a fetch at it, and at all before it, meets the batch
        self._base: int | None = None  # the batch's base offset, as fetches report it
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout

    def run(self) -> int:
        try:
            return self._search()
        except _NamelessDamageError:
            return self._walk()

    def _search(self) -> int:
        if (found := self._probe(self._inside)) is not None:
            return found  # the broker serves it now
        step = 1
        while (found := self._probe(self._inside + step)) is None:
            self._inside, step = self._inside + step, step * 2
        outside = self._inside + step
        while outside - self._inside > 1:
            middle = (self._inside + outside) // 2
            nearer = self._probe(middle)
            if nearer is None:
                self._inside = middle
            else:
                outside, found = middle, nearer
        return found

    def _walk(self) -> int:
        while True:
            self._deadline = time.monotonic() + self._timeout
            with suppress(_NamelessDamageError):
                if (found := self._probe(self._inside + 1)) is not None:
                    return found
            self._inside += 1

    def _probe(self, offset: int) -> int | None:
        """Return the first offset that a fetch at `offset` finds; None if it meets the batch.

        Raises _NamelessDamageError if the broker reports damage, and UnreachableError.
        """
        place = TopicPartition(self._batch.topic, self._batch.partition, offset)
        self._consumer.assign([place])
        reason = "no answer"
        while time.monotonic() < self._deadline:
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            problem, found = message.error(), message.offset() or 0
            if problem is None or problem.code() == KafkaError._PARTITION_EOF:
                return found
            if problem.code() == KafkaError._AUTO_OFFSET_RESET:
                return self._log_end()
            if problem.code() in _DAMAGE_CODES:
                note_damage(place.topic, place.partition)
                return self._next_damaged(problem.code(), found)
            reason = problem.str()
        raise UnreachableError(
            f"{self._batch.place}: no broker reported within {self._timeout:.0f} s where the next"
            f" record batch begins: {reason}",
            fix="see whether the broker runs, then try again",
        )

    def _next_damaged(self, code: int, found: int) -> int | None:
        """Return the base offset of another damaged batch; None if it is the same one."""
        if code == KafkaError.INVALID_MSG:  # it names the offset that was asked for
            raise _NamelessDamageError
        if self._base is None:
            self._base = found
        return None if found == self._base else found

    def _log_end(self) -> int:
        place = TopicPartition(self._batch.topic, self._batch.partition)
        return self._consumer.get_watermark_offsets(place, timeout=self._timeout)[1]
