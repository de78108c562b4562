"""The consumer: a member of a group that iterates over typed messages, at least once each.

Rules:

- A message is processed when the next one is asked for (or `commit` is called); only processed
  messages are committed, so a crash repeats the last ones and loses none.
- A message that cannot be decoded is never silently dropped: `on_poison` says whether it stops
  the consumer (default) or is skipped and counted.
- Offsets are committed every `commit_every` seconds, when partitions are taken away, and at the
  end; with None only by `commit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from consumer_sdk.decode import DecodeError, Decoder
from headworks.broker_client import broker_client
from headworks.codec.event import EventType, event_type
from headworks.errors import CorruptError, HeadworksError, UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from headworks.settings import resolve
from headworks.wire import FramingError

__all__ = ["Consumer", "Message", "OnPoison", "PoisonMessageError"]

T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]
_UNREACHABLE = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
_FETCH = 500


class OnPoison(StrEnum):
    """What to do with a message that cannot be decoded."""

    STOP = "stop"
    SKIP = "skip"


class PoisonMessageError(CorruptError):
    """A message that cannot be decoded, under OnPoison.STOP; names topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class Message(Generic[T]):
    """An event and where it lay; `timestamp` is milliseconds since 1970 UTC."""

    event: T
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    headers: Headers
    schema_id: int


class Consumer(Generic[T]):
    """Iterates over the messages of topics as a member of `group`.

    Give `events`, generated classes (their topics, their types), or `topics` by name (events are
    then dicts in the schema they were written with). `bootstrap` and `registry` default to the
    settings of that name. `start` says where a group begins that has committed nothing.
    `config` adds properties of librdkafka.
    """

    def __init__(
        self,
        events: Sequence[type[T]] = (),
        *,
        group: str,
        topics: Sequence[str] = (),
        bootstrap: str | None = None,
        registry: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        on_poison: OnPoison = OnPoison.STOP,
        commit_every: float | None = 5.0,
        config: dict[str, Any] | None = None,
    ) -> None:
        if bool(events) == bool(topics):
            raise UsageError("a Consumer reads either `events` or `topics`", fix="give one of them")
        self.skipped = 0
        self._bootstrap = resolve("bootstrap", bootstrap)
        self._client = RegistryClient(resolve("registry", registry))
        types: list[EventType[Any]] = [event_type(cls) for cls in events]
        self._decoders = {kind.topic: Decoder(self._client, kind) for kind in types}
        self._on_poison = on_poison
        self._explicit = commit_every is None
        self._processed: confluent_kafka.Message | None = None
        self._buffer: list[confluent_kafka.Message] = []
        self._closed = False
        self._consumer = confluent_kafka.Consumer(
            {
                **broker_client(self._bootstrap),
                "group.id": group,
                "auto.offset.reset": start,
                "enable.auto.commit": commit_every is not None,
                "auto.commit.interval.ms": int((commit_every or 0) * 1000),
                "enable.auto.offset.store": False,
                "log_level": 2,
                **(config or {}),
            }
        )
        self._consumer.subscribe(
            [kind.topic for kind in types] or list(topics), on_revoke=self._on_revoke
        )

    def __iter__(self) -> Iterator[Message[T]]:
        """Messages as they come, until `close`."""
        while not self._closed:
            message = self.poll(1.0)
            if message is not None:
                yield message

    def poll(self, timeout: float) -> Message[T] | None:
        """The next message, or None if none comes within `timeout` seconds.

        The message before counts as processed. Raises PoisonMessageError under OnPoison.STOP,
        UnreachableError if no broker answers.
        """
        self._store()
        while True:
            raw = self._next(timeout)
            if raw is None:
                return None
            try:
                decoded = self._decode(raw)
            except HeadworksError:
                self._buffer.append(raw)  # not processed: the next poll meets it again
                raise
            self._processed = raw
            if decoded is not None:
                return decoded
            self._store()

    def commit(self) -> None:
        """Commit what was processed, the last message given out included, and wait for it."""
        self._store()
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise UnreachableError(f"the offsets were not committed: {error}") from None

    def close(self) -> None:
        """Commit (unless commits are explicit), leave the group and stop; safe to call twice."""
        if not self._closed:
            self._closed = True
            if not self._explicit:
                self._store()
            self._consumer.close()

    def __enter__(self) -> Consumer[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._processed = None  # what raised was not processed
        self.close()

    def _next(self, timeout: float) -> confluent_kafka.Message | None:
        if not self._buffer:
            self._buffer = self._consumer.consume(1, timeout)
            if self._buffer:
                self._buffer += self._consumer.consume(_FETCH, 0)
            self._buffer.reverse()
        if not self._buffer:
            return None
        raw = self._buffer.pop()
        problem = raw.error()
        if problem is None:
            return raw
        if problem.code() in _UNREACHABLE:
            raise UnreachableError(
                f"the broker at {self._bootstrap} does not answer: {problem.str()}",
                fix="start it with `headworks up`, or set `bootstrap`",
            )
        if problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None  # it may be created yet
        raise KafkaException(problem)

    def _decode(self, raw: confluent_kafka.Message) -> Message[T] | None:
        topic = raw.topic() or ""
        decoder = self._decoders.get(topic)
        if decoder is None:
            decoder = self._decoders[topic] = Decoder(self._client)
        try:
            event, schema_id = decoder.decode(raw.value() or b"")
        except (DecodeError, FramingError) as error:
            if self._on_poison is OnPoison.STOP:
                raise PoisonMessageError(
                    f"{topic} partition {raw.partition()} offset {raw.offset()}: {error.message}",
                    fix="skip such messages with on_poison=OnPoison.SKIP, or move the group on",
                ) from error
            self.skipped += 1
            return None
        return Message(
            event=event,
            topic=topic,
            partition=raw.partition() or 0,
            offset=raw.offset() or 0,
            timestamp=raw.timestamp()[1],
            key=raw.key(),
            headers=tuple(cast("list[tuple[str, bytes | None]]", raw.headers() or [])),
            schema_id=schema_id,
        )

    def _store(self) -> None:
        if self._processed is not None:
            try:
                self._consumer.store_offsets(self._processed)
            except KafkaException as error:
                # A rebalance took the partition away: its new owner repeats the message.
                if error.args[0].code() != KafkaError._STATE:
                    raise
            self._processed = None

    def _on_revoke(
        self, _consumer: object, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        """Forget what was fetched of partitions that are no longer ours."""
        gone = {(p.topic, p.partition) for p in partitions}
        self._buffer = [m for m in self._buffer if (m.topic(), m.partition()) not in gone]
