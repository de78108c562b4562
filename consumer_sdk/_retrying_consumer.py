"""A consumer that also reads its group's retry topics, and waits until each message is due.

Rules: a message that is not due pauses its partition alone, and no other message waits for it. It
is not processed meanwhile, so a member that stops leaves it to the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from consumer_sdk._consumer import Consumer
from consumer_sdk._handler_table import HandlerTable
from consumer_sdk._loop import POLL_SECONDS
from consumer_sdk._message import Message, Partition
from consumer_sdk._options import ConsumerOptions
from consumer_sdk._retry_later import count_of, due_of
from headworks._in_thread import in_thread
from headworks._kafka.retry_topics import retry_topic
from headworks.codec import event_type


class RetryingConsumer(Consumer[Any]):
    """A consumer of the events that have handlers, and of the retry topics of these."""

    def __init__(self, handlers: HandlerTable, group: str, options: ConsumerOptions) -> None:
        delays, deleted = handlers.delays(), handlers.deleted_topics()
        topics: dict[str, set[int]] = {}
        for cls, found in delays.items():
            topics[event_type(cls).topic] = topics.get(event_type(cls).topic, set()) | found
        self.retry_topics = {
            retry_topic(topic, group, delay): topic
            for topic, found in topics.items()
            for delay in sorted(found)
        }
        super().__init__(list(delays), group=group, tombstones=bool(deleted), **options)
        self._decoders.deleted_topics = deleted

    def _retry_sources(self, redriven: dict[str, str]) -> dict[str, str]:
        return redriven | self.retry_topics


class PutOff:
    """The messages of a consumer, each when it is due."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self._consumer = consumer
        self._sources: Mapping[str, str] = {}
        if isinstance(consumer, RetryingConsumer):
            self._sources = consumer.retry_topics
        self._due: dict[Partition, float] = {}  # when a paused partition resumes, since 1970

    def count(self, message: Message[Any]) -> int:
        """Return how often a message was put off."""
        return count_of(message, self._sources)

    def messages(self) -> Iterator[Message[Any]]:
        """Yield messages until the consumer stops."""
        if not self._sources:
            yield from self._consumer
            return
        while not self._consumer._ended:
            message = self.next(POLL_SECONDS)
            if message is not None:
                yield message

    @property
    def buffered(self) -> Callable[[], Message[Any] | None]:
        """A function for the next message; None if that needs waiting, or may be due later."""
        return (lambda: None) if self._sources else self._consumer._buffered

    def ready(self) -> Message[Any] | None:
        """Return the next message that is due, if that needs no waiting."""
        self._resume_due()
        message = self._consumer._buffered()
        return message if message is not None and self._is_due(message) else None

    def next(self, timeout: float) -> Message[Any] | None:
        """Return the next message that is due; None if none arrives within `timeout` seconds."""
        self._resume_due()
        message = self._consumer.poll(timeout)
        return message if message is not None and self._is_due(message) else None

    async def next_async(self, timeout: float) -> Message[Any] | None:
        """Do what `next` does, but let the event loop run meanwhile."""
        if self._due:
            await in_thread(self._resume_due)
        message = await self._consumer.apoll(timeout)
        if message is None or message.topic not in self._sources:
            return message
        return message if await in_thread(self._is_due, message) else None

    def _is_due(self, message: Message[Any]) -> bool:
        """Return whether a message may be handled now; pause its partition if not."""
        if message.topic not in self._sources:
            return True
        due = due_of(message, self._sources) / 1000
        if due <= time.time():
            return True
        self._consumer._return_last()
        self._due[Partition(message.topic, message.partition)] = due
        return False

    def _resume_due(self) -> None:
        if self._due:
            now = time.time()
            over = [partition for partition, due in self._due.items() if due <= now]
            for partition in over:
                del self._due[partition]
            if over:
                self._consumer.resume(over)
