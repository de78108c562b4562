"""The target's side of a session: messages are sent in their order, and acknowledged.

Rules:

- Key, value, headers, and timestamp are the source's. The producer is idempotent, and retries for
  as long as the target is unavailable.
- If a message fails, none after it is sent (librdkafka's gapless guarantee), and `check` raises.
- A batch fails as a whole. A `careful` sender therefore puts each message in its own batch. It can
  name the one that the target rejects, or skip it.
- Only failures are reported. A `flush` that returns 0, followed by `check`, is the acknowledgment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headworks._kafka.headers import message_headers
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
from headworks.errors import CorruptError, FindingsError, RefusedError, UsageError

_log = logging.getLogger("headworks.mirror")
_MAX_MESSAGE_BYTES = 1_000_000_000
_MAX_QUEUED_MESSAGES = 100_000  # messages: bounds what librdkafka keeps beside their bytes


class TargetSender:
    """Sends for a session; `on_skipped` gets each message that is too large and skipped."""

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
        self._failure: tuple[KafkaError, str] | None = None  # the first error and its message
        self._closing = False  # callbacks are ignored from now on
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

        Raises BufferError if the queue is full, UnreachableError if a registry does not answer, and
        FindingsError if the registries disagree on its schema.
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
                headers=_headers(message),
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
        """Serve callbacks for this many seconds."""
        try:
            self._producer.poll(seconds)
        except (KafkaException, SystemError) as error:
            self._note_fatal(error)

    def flush(self, seconds: float) -> int:
        """Wait this many seconds for acknowledgments. Return how many are missing."""
        try:
            return self._producer.flush(seconds)
        except (KafkaException, SystemError) as error:
            self._note_fatal(error)
            return len(self._producer)

    def check(self) -> None:
        """Raise the error of a callback: SessionEndedError, or an error that no retry can fix."""
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
        """Discard unacknowledged messages."""
        self._closing = True
        self._producer.purge()
        self.flush(1.0)

    def _note_fatal(self, error: Exception) -> None:
        """Record why the client has given up, so that nothing is sent out of order.

        confluent_kafka raises a fatal error while it serves callbacks. If another callback follows,
        Python turns it into a SystemError, whose cause has the reason.
        """
        cause = error if isinstance(error, KafkaException) else error.__cause__
        if not isinstance(cause, KafkaException):
            raise error
        self._failure = self._failure or (cause.args[0], "a message")

    def _delivery_report(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        """Record the failure of a batch; the sender is not careful."""
        if error is not None and not self._closing:
            self._failure = self._failure or (error, f"a message of {message.topic()}")

    def _careful_report(
        self,
        original: confluent_kafka.Message,
        error: KafkaError | None,
        _sent: confluent_kafka.Message,
    ) -> None:
        """Record or skip the failure of one message; `original` is the source's message."""
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
        # Warn once that all brokers are down, and not about each attempt to connect.
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
    """Return the topic, partition, and offset of a message in words."""
    return f"{message.topic()} partition {message.partition()} offset {message.offset()}"


def _headers(message: confluent_kafka.Message) -> Any:
    try:
        return message_headers(message) or None
    except CorruptError as error:
        raise FindingsError(
            f"{place_of(message)} cannot be copied: {error.message}",
            fix="have its producer write UTF-8, and delete the message, or mirror other topics",
        ) from None


def _size(message: confluent_kafka.Message) -> int:
    return len(message.value() or b"") + len(message.key() or b"")
