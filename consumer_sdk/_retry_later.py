"""Retries after a delay: a message waits in a topic of its group, and then comes back.

Rules:

- Pure. The headers say when a message is due, and how often it was put off.
- A retry topic has one delay, so its messages are due in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import confluent_kafka

from consumer_sdk._dead_letters.letter import headers_of, origin_header
from consumer_sdk._message import Message
from headworks._kafka.headers import Headers

_DUE: Final = "headworks.retry.due"  # milliseconds since 1970 UTC
_COUNT: Final = "headworks.retry.count"  # how often it was put off
_OURS: Final = (_DUE, _COUNT)


def due_of(message: Message[object], sources: Mapping[str, str]) -> int:
    """Return when a message may be handled, in milliseconds since 1970 UTC; 0: at once."""
    return _number(dict(message.headers), _DUE) if message.topic in sources else 0


def count_of(message: Message[object], sources: Mapping[str, str]) -> int:
    """Return how often a message was put off."""
    return _number(dict(message.headers), _COUNT) if message.topic in sources else 0


def put_off_headers(raw: confluent_kafka.Message, topic: str, due: int, count: int) -> Headers:
    """Return the headers of a message that belongs to `topic` and is put off until `due`."""
    origin = origin_header(raw, topic)
    own = [(n, v) for n, v in headers_of(raw) if n not in _OURS and n != origin[0]]
    return [*own, origin, (_DUE, b"%d" % due), (_COUNT, b"%d" % count)]


def _number(headers: Mapping[str, bytes | None], name: str) -> int:
    value = headers.get(name) or b"0"
    return int(value) if value.isdigit() else 0
