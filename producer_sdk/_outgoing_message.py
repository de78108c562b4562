"""A message that waits for the broker, as the queue's slow paths and the spill files hold it.

Rules: `Producer.send` does not build one, because that would make it slower by nearly half.
`Transport.enqueue` takes the first five fields. It builds the message only if librdkafka's queue is
full or a spill takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class OutgoingMessage(NamedTuple):
    """An encoded event and where it goes."""

    topic: str
    value: bytes | None  # the framed Avro bytes; None: a tombstone
    key: bytes | None
    timestamp: int  # the event time, in milliseconds since 1970 UTC
    headers: Mapping[str, bytes | str] | None
    partition: int | None = None  # None: by the key; one that names it is never spilled
