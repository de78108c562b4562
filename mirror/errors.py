"""The error that ends a session but not the mirror, and the Kafka error codes that decide it.

Rules: an error that a retry may overcome is a SessionEndedError. One of the project's own errors
ends the mirror.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

# (topic, partition) of the source -> the next offset to read
Position = Mapping[tuple[str, int], int]

TOO_LARGE_CODES = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
NO_TOPIC_CODES = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
DENIED_CODES = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
CONNECTION_CODES = frozenset({KafkaError._TRANSPORT, KafkaError._RESOLVE})
TRANSIENT_CODES = CONNECTION_CODES | {KafkaError._ALL_BROKERS_DOWN}


class SessionEndedError(Exception):
    """The session cannot continue, and the next one may.

    `careful`: a message failed, and the next session must find out which one. It may stop being
    careful at `careful_until`.
    """

    def __init__(self, reason: str, *, careful: bool = False) -> None:
        super().__init__(reason)
        self.careful = careful
        self.careful_until: Position = {}
