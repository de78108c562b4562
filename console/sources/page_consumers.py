"""The consumers of pages that read messages: few, and open from one page to the next.

Rules:

- At most `_MAX_READERS` pages read at a time. Another page waits a second, and is then refused.
- A consumer is lent to one page. It joins no group and commits nothing.
- A consumer whose page failed is closed: the next page begins without what that one knew.
- A page does not wait for a new connection, except the first ones. A new client of librdkafka asks
  an address of `bootstrap` for the leaders. If it closes that connection before the answer, because
  it has just learned the broker's own address, it asks again only after 700 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headworks._console.sources.topics import broker_unreachable
from headworks._kafka.client_properties import client_properties
from headworks._kafka.clients import KafkaConsumer
from headworks.errors import RefusedError, UnreachableError

_MAX_READERS = 4
_SLOT_WAIT_SECONDS = 1.0


class BusyError(UnreachableError):
    """The maximum number of pages is reading messages."""


class PageConsumers:
    """Consumers of the broker at `bootstrap`; safe to share between threads."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._slots = threading.BoundedSemaphore(_MAX_READERS)
        self._lock = threading.Lock()
        self._idle: list[KafkaConsumer] = []
        self._closed = False

    @property
    def connection(self) -> dict[str, Any]:
        """The properties of librdkafka that name the brokers and the reader."""
        return {**client_properties(self.bootstrap), "group.id": "headworks-console"}

    @contextmanager
    def lend(self) -> Iterator[KafkaConsumer]:
        """Lend a consumer without partitions to a page.

        Raises BusyError, and, for errors of librdkafka in the block, RefusedError if the broker
        does not let the console read, and UnreachableError otherwise.
        """
        if not self._slots.acquire(timeout=_SLOT_WAIT_SECONDS):
            raise BusyError("too many pages read messages at this moment", fix="try again")
        try:
            consumer = self._taken()
            try:
                yield consumer
                consumer.unassign()
            except BaseException as error:
                consumer.close()
                if isinstance(error, KafkaException):
                    raise self._translated(error) from None
                raise
            self._put_back(consumer)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Close the consumers that no page has; those that are lent are closed when they return."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()

    def _taken(self) -> KafkaConsumer:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return KafkaConsumer(
            {
                **self.connection,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 5,  # the next page waits for what this one asked
                "reconnect.backoff.max.ms": 500,  # a page waits less than ten times as long
                "queued.max.messages.kbytes": 16_384,
                "fetch.message.max.bytes": 1_048_576,
                "log_level": 0,
            }
        )

    def _put_back(self, consumer: KafkaConsumer) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(consumer)
                return
        consumer.close()

    def _translated(self, error: KafkaException) -> Exception:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return RefusedError("the broker lets the console not read this topic")
        return broker_unreachable(self.bootstrap, error)
