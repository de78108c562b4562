"""Messages that cannot be decoded or that the application rejects, and the dead-letter topic.

Rules: the consumer moves past such a message only after the dead-letter topic has acknowledged it
(acks=all). The value stays byte for byte; headers name its position and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaException

from headworks._kafka.clients import KafkaProducer
from headworks.errors import CorruptError, HeadworksError, UnreachableError

_TIMEOUT_SECONDS = 30.0
_HEADER_PREFIX = "headworks.dead-letter."


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
    """Writes rejected messages of `group` to `topic`, or each to its TOPIC.dead-letter."""

    def __init__(self, client: Mapping[str, Any], *, group: str, topic: str | None) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._producer: KafkaProducer | None = None

    def send(self, message: confluent_kafka.Message, reason: str) -> None:
        """Write a message and wait for the acknowledgement; UnreachableError without one."""
        topic = self._topic or f"{message.topic()}.dead-letter"
        outcome: list[object] = []
        producer = self._open_producer()
        try:
            producer.produce(
                topic,
                message.value(),
                message.key(),
                timestamp=message.timestamp()[1],
                headers=[*_headers(message), *self._reason_headers(message, reason)],
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

    def _reason_headers(
        self, message: confluent_kafka.Message, reason: str
    ) -> list[tuple[str, str | bytes | None]]:
        reasons = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "group": self._group,
            "reason": reason,
        }
        return [(_HEADER_PREFIX + name, str(value)) for name, value in reasons.items()]


def _headers(message: confluent_kafka.Message) -> list[tuple[str, str | bytes | None]]:
    return cast("list[tuple[str, str | bytes | None]]", message.headers() or [])
