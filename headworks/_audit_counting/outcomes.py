"""The outcomes that the audit counts, by name and by their index in a counter file.

Rules: an index is part of the file format. A new outcome goes to the end, and changes the magic
number of the file (`layout`).
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

OUTCOMES: Final = (
    "attempted",
    "delivered",
    "failed",
    "dropped:queue_full",
    "dropped:too_large",
    "dropped:broker_error",
    "dropped:timed_out",
    "dropped:closed",
    "unresolved",
    "mirrored",
    "consumed",
    "skipped",
    "resent",
    "dead",
    "retried",
)
ATTEMPTED, DELIVERED, FAILED, QUEUE_FULL, TOO_LARGE, BROKER_ERROR, TIMED_OUT, CLOSED = range(8)
UNRESOLVED, MIRRORED, CONSUMED, SKIPPED, RESENT, DEAD, RETRIED = 8, 9, 10, 11, 12, 13, 14

OUTCOME_OF_ERROR: Final = {
    KafkaError._MSG_TIMED_OUT: TIMED_OUT,
    KafkaError._PURGE_QUEUE: CLOSED,
    KafkaError._PURGE_INFLIGHT: CLOSED,
    KafkaError.MSG_SIZE_TOO_LARGE: TOO_LARGE,
}
"""The outcome of a delivery that failed with this error code; any other code is FAILED."""
