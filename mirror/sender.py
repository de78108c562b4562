"""The target's side of a session: messages go out as they came, in order, and are acknowledged.

Rules:

- Nothing in a message is changed: key, value, headers and time are the source's. The producer is
  idempotent, and retries for as long as the target is away.
- If a message fails, none after it is sent (librdkafka's gapless guarantee) and `check` raises. A
  batch fails as a whole, so a `careful` sender sends each message in a batch of its own, and can
  name the one that the target refuses, or leave it out.
- Only failures are reported: `flush` that returns 0, followed by `check`, is the acknowledgement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headworks._mirror.errors import (
    CONNECTION_CODES,
    DENIED_CODES,
    NO_TOPIC_CODES,
    TOO_LARGE_CODES,
    SessionEndedError,
)
from headworks._mirror.options import MirrorOptions
from headworks._mirror.progress import MirrorProgress
from headworks._mirror.schema_ids import SchemaIdCheck
from headworks._mirror.topics import MirroredTopics
from headworks.errors import RefusedError, UsageError

__all__ = ["TargetSender"]

_log = logging.getLogger("headworks.mirror")
_MAX_MESSAGE_BYTES = 1_000_000_000
_MAX_QUEUED_MESSAGES = 100_000  # messages: bounds what librdkafka keeps beside their bytes


class TargetSender:
    """Sends for a session; `on_skipped` is told of messages that are too large and are skipped."""

    def __init__(
        self,
        options: MirrorOptions,
        topics: MirroredTopics,
        schema_ids: SchemaIdCheck | None,
        progress: MirrorProgress,
        on_skipped: Callable[[confluent_kafka.Message], None],
        *,
        careful: bool,
    ) -> None:
        self._options, self._topics, self._schema_ids = options, topics, schema_ids
        self._progress, self._count_skipped = progress, on_skipped
        self._careful = careful
        self._failure: tuple[KafkaError, str] | None = None
        self._closing = False
        one_per_batch: dict[str, Any] = {"batch.num.messages": 1}
        self._producer = confluent_kafka.Producer(
            {
                "linger.ms": 20,
                "batch.size": 900_000,
                "topic.metadata.refresh.interval.ms": options.refresh_ms,  # for new partitions
                **options.target_client,
                "compression.type": options.compression,
                "enable.idempotence": True,
                "partitioner": "murmur2",
                "message.timeout.ms": 0,  # the target may be away for as long as it likes
                "message.max.bytes": _MAX_MESSAGE_BYTES,
                "queue.buffering.max.kbytes": max(1, options.buffer_bytes // 2048),
                "queue.buffering.max.messages": _MAX_QUEUED_MESSAGES,
                "delivery.report.only.error": True,
                "on_delivery": self._delivery_report,
                "error_cb": self._client_error,
                "log_level": 2,
                **(one_per_batch if careful else {"enable.gapless.guarantee": True}),
            }
        )

    def send(self, message: confluent_kafka.Message) -> None:
        """Queue a message of the source.

        Raises BufferError if the queue is full, UnreachableError if a registry is away,
        FindingsError if the registries do not agree on its schema.
        """
        topic, index, key = message.topic() or "", message.partition() or 0, message.key()
        if self._schema_ids is not None:
            self._schema_ids.check(message.value(), partial(place_of, message))
            self._schema_ids.check(key, partial(place_of, message))
        mapping = self._topics.mappings.get(topic)
        if mapping is None or index >= mapping.source:
            raise SessionEndedError(f"topic {topic} is another one on the source now")
        more: dict[str, Any] = {}
        if self._careful:
            more["on_delivery"] = partial(self._careful_report, message)
        try:
            self._producer.produce(
                topic,
                message.value(),
                key,
                partition=mapping.partition(index, keyed=key is not None),
                timestamp=message.timestamp()[1],
                headers=message.headers(),
                **more,
            )
        except KafkaException as error:
            self.poll(0)
            self.check()
            fatal = error.args[0].code() == KafkaError._FATAL
            raise SessionEndedError(error.args[0].str(), careful=fatal) from None
        except BufferError:
            if not len(self._producer):
                raise UsageError(
                    f"{place_of(message)} has {_size(message)} bytes, more than half of the buffer",
                    fix="give a larger --buffer-mb",
                ) from None
            raise

    def poll(self, seconds: float) -> None:
        """Let callbacks come for so long."""
        try:
            self._producer.poll(seconds)
        except (KafkaException, SystemError) as error:
            self._note_fatal(error)

    def flush(self, seconds: float) -> int:
        """Wait so long for acknowledgements; how many are missing."""
        try:
            return self._producer.flush(seconds)
        except (KafkaException, SystemError) as error:
            self._note_fatal(error)
            return len(self._producer)

    def check(self) -> None:
        """Raise what a callback has met: TroubleError, or what another try cannot mend."""
        if self._failure is None:
            return
        error, what = self._failure
        self._progress.errors[error.name().lower()] += 1
        target = f"the target {self._options.target}"
        if error.code() in DENIED_CODES:
            raise RefusedError(
                f"{target} refuses {what}: {error.str()}",
                fix="let the mirror's user write and create the topics",
            )
        if error.code() in NO_TOPIC_CODES:
            raise SessionEndedError(f"{target}: {error.str()}")
        if self._careful and error.code() in TOO_LARGE_CODES:
            raise RefusedError(
                f"{what} is too large for {target}",
                fix="raise max.message.bytes of the topic there, or leave such messages out and "
                "count them with --skip-too-large",
            )
        if self._careful and error.code() == KafkaError.INVALID_RECORD:
            raise RefusedError(
                f"{target} refuses {what}: {error.str()}",
                fix="see what the topic asks of its messages there (a key, a known schema id)",
            )
        raise SessionEndedError(f"{target}, {what}: {error.str()}", careful=True)

    def close(self) -> None:
        """Forget what is not acknowledged."""
        self._closing = True
        self._producer.purge()
        self.flush(1.0)

    def _note_fatal(self, error: Exception) -> None:
        """The client has given up, to send nothing out of order: note what it says about why.

        confluent_kafka raises a fatal error in the midst of serving callbacks, and Python makes a
        SystemError of it if another callback follows: the cause has the words.
        """
        cause = error if isinstance(error, KafkaException) else error.__cause__
        if not isinstance(cause, KafkaException):
            raise error
        self._failure = self._failure or (cause.args[0], "a message")

    def _delivery_report(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        """A delivery report of a sender that is not careful: of a whole batch."""
        if error is not None and not self._closing:
            self._failure = self._failure or (error, f"a message of {message.topic()}")

    def _careful_report(
        self,
        original: confluent_kafka.Message,
        error: KafkaError | None,
        _sent: confluent_kafka.Message,
    ) -> None:
        """A delivery report of a careful sender; `original` is the source's message."""
        if error is None or self._closing:
            return
        if error.code() in TOO_LARGE_CODES and self._options.skip_too_large:
            place = place_of(original)
            _log.error("left out: %s is too large for the target", place, extra={"place": place})
            self._count_skipped(original)
        else:
            self._failure = self._failure or (error, place_of(original))

    def _client_error(self, error: KafkaError) -> None:
        if self._closing:
            return
        self._progress.errors[f"target:{error.name().lower()}"] += 1
        # That all brokers are down is said once; each attempt to connect is not worth a warning.
        level = logging.DEBUG if error.code() in CONNECTION_CODES else logging.WARNING
        _log.log(
            level,
            "target %s: %s",
            self._options.target,
            error.str(),
            extra={"target": self._options.target, "error": error.name()},
        )
        if error.fatal():
            self._failure = self._failure or (error, "a message")


def place_of(message: confluent_kafka.Message) -> str:
    """Where a message lies on the source, for people."""
    return f"{message.topic()} partition {message.partition()} offset {message.offset()}"


def _size(message: confluent_kafka.Message) -> int:
    return len(message.value() or b"") + len(message.key() or b"")
