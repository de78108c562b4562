"""Messages that cannot be decoded or that the application rejects, and the dead-letter topic.

Rules: the consumer moves past such a message only after the dead-letter topic has acknowledged it
(acks=all). The value stays byte for byte; headers name its position and the reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaException

from consumer_sdk._dead_letters.letter import SUFFIX, letter_headers
from headworks._kafka.clients import KafkaProducer
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

    def send(
        self, message: confluent_kafka.Message, reason: str, exception: str | None = None
    ) -> None:
        """Write a message and wait for the acknowledgement; UnreachableError without one.

        `exception` names the class of the error that ended its handling.
        """
        source = self._sources.get(message.topic() or "", message.topic() or "")
        topic = self._topic or f"{source}{SUFFIX}"
        now = int(time.time() * 1000)
        headers = letter_headers(message, source, self._group, reason, exception, now)
        outcome: list[object] = []
        producer = self._open_producer()
        try:
            producer.produce(
                topic,
                message.value(),
                message.key(),
                timestamp=message.timestamp()[1],
                headers=cast("list[tuple[str, str | bytes | None]]", headers),
                on_delivery=lambda error, _: outcome.append(error),
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
