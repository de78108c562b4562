"""Messages that cannot be decoded or that the application rejects, and the dead-letter topic.

Rules: the consumer moves past such a message only after the dead-letter topic has acknowledged it
(acks=all). The value stays byte for byte; headers name its position and the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._dead_letters.letter import letter_headers
from consumer_sdk._retry_later import put_off_headers
from headworks._audit_counting.tally import Report
from headworks._kafka.clients import KafkaProducer
from headworks._kafka.dead_letters import DEAD_LETTER_SUFFIX
from headworks._kafka.headers import Headers
from headworks._kafka.retry_topics import retry_topic
from headworks.errors import CorruptError, HeadworksError, UnreachableError

_TIMEOUT_SECONDS = 30.0


class OnPoison(StrEnum):
    """The choices for a message that cannot be decoded."""

    STOP = "stop"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class PoisonMessageError(CorruptError):
    """A message that cannot be decoded, under OnPoison.STOP; names topic, partition and offset."""


def stopped_at(message: confluent_kafka.Message, error: HeadworksError) -> PoisonMessageError:
    """Return the error of a consumer that stops at a message that cannot be decoded."""
    return PoisonMessageError(
        f"{message.topic()} partition {message.partition()} offset {message.offset()}:"
        f" {error.message}",
        fix=error.fix
        or "skip such messages with on_poison=OnPoison.SKIP, keep them with"
        " OnPoison.DEAD_LETTER, or move the group on",
    )


class DeadLetterWriter:
    """Writes rejected messages of `group` to `topic`, or each to its TOPIC.dead-letter.

    It also writes messages that are put off to the retry topics of the group.

    `sources` names the topic to which the messages of a retry topic belong.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        group: str,
        topic: str | None,
        sources: Mapping[str, str],
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._sources = sources
        self._producer: KafkaProducer | None = None
        self._writing = threading.Lock()  # any thread may write

    def send(
        self, message: confluent_kafka.Message, reason: str, exception: str | None = None
    ) -> None:
        """Write a message and wait for the acknowledgement; UnreachableError without one.

        `exception` names the class of the error that ended its handling.
        """
        source = self._source(message)
        topic = self._topic or f"{source}{DEAD_LETTER_SUFFIX}"
        now = int(time.time() * 1000)
        headers = letter_headers(message, source, self._group, reason, exception, now)
        with self._writing:
            self._write(topic, message, headers, None)

    def put_off(
        self, message: confluent_kafka.Message, delay: int, count: int, audit: AuditTier | None
    ) -> None:
        """Write a message to the topic of a delay in seconds; UnreachableError if that fails.

        `count` is how often it was put off, this time included.
        """
        source = self._source(message)
        topic = retry_topic(source, self._group, delay)
        due = int((time.time() + delay) * 1000)
        headers = put_off_headers(message, source, due, count)
        with self._writing:
            counted = None if audit is None else audit.put_off(topic, message)
            self._write(topic, message, headers, counted)

    def _source(self, message: confluent_kafka.Message) -> str:
        """Return the topic to which a message belongs."""
        return self._sources.get(message.topic() or "", message.topic() or "")

    def _write(
        self,
        topic: str,
        message: confluent_kafka.Message,
        headers: Headers,
        counted: Report | None,
    ) -> None:
        """Write a copy of a message and wait for the acknowledgement, which `counted` counts."""
        outcome: list[object] = []

        def report(error: KafkaError | None, delivered: confluent_kafka.Message) -> None:
            outcome.append(error)
            if counted is not None:
                counted(error, delivered)

        producer = self._open_producer()
        try:
            producer.produce(
                topic,
                message.value(),
                message.key(),
                timestamp=message.timestamp()[1],
                headers=cast("list[tuple[str, str | bytes | None]]", headers),
                on_delivery=report,
            )
            producer.flush(_TIMEOUT_SECONDS)
        except KafkaException as error:
            outcome.append(error)
        if not outcome or outcome[0] is not None:
            raise UnreachableError(
                f"{message.topic()} partition {message.partition()} offset {message.offset()} could"
                f" not be written to {topic}: {outcome[0] if outcome else 'no answer'}",
                fix="it was not processed, and comes again; see that the broker takes the topic",
            )

    def _open_producer(self) -> KafkaProducer:
        if self._producer is None:
            self._producer = KafkaProducer(
                {
                    **self._client,
                    "enable.idempotence": True,
                    "message.timeout.ms": int(_TIMEOUT_SECONDS * 1000) - 1000,
                    "linger.ms": 0,
                    "log_level": 2,
                }
            )
        return self._producer
