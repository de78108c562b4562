"""A dead letter, and the headers that describe it.

Rules:

- Pure. The value, the key, the time, and the headers of the message stay as they were.
- The position in the headers is that of the message's first life, also when a copy of it died.
- A redriven message carries how often it was redriven, and its first position, by which a handler
  recognizes a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import confluent_kafka

from headworks._kafka.dead_letters import DEAD_LETTER_HEADER
from headworks._kafka.headers import Headers, message_headers
from headworks.errors import CorruptError

_WAIT_PREFIX: Final = "headworks.retry."  # of a wait that is over
_REDRIVES: Final = "headworks.redrives"  # how often a message was redriven
_ORIGIN: Final = "headworks.origin"  # TOPIC/PARTITION/OFFSET of the first life
_MAX_TEXT_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message of a dead-letter topic.

    `partition` and `offset` are its place there. `topic` is the topic that it belongs to, and
    `origin_partition` and `origin_offset` its first place in that. `timestamp` is the record's, and
    `died_at` when the group gave it up, both in milliseconds since 1970 UTC. `headers` are those of
    the message itself. `group` is "" for a message that the broker refused. `exception` names a
    class; such letters, and those of older versions, have neither that nor `died_at`.
    """

    partition: int
    offset: int
    topic: str
    origin_partition: int
    origin_offset: int
    group: str
    reason: str
    exception: str | None
    died_at: int | None
    redrives: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def redriven_headers(self) -> Headers:
        """The headers with which the message returns."""
        own = [(name, value) for name, value in self.headers if name not in (_REDRIVES, _ORIGIN)]
        origin = f"{self.topic}/{self.origin_partition}/{self.origin_offset}"
        return [*own, (_REDRIVES, b"%d" % (self.redrives + 1)), (_ORIGIN, origin.encode())]


def headers_of(message: confluent_kafka.Message) -> Headers:
    """Return the headers of a raw message; none if they cannot be read."""
    try:
        return message_headers(message)
    except CorruptError:
        return []


def origin_of(message: confluent_kafka.Message, topic: str) -> tuple[int, int]:
    """Return partition and offset of a message's first life in `topic`, to which it belongs."""
    value = dict(headers_of(message)).get(_ORIGIN)
    named, _, place = (value or b"").decode(errors="replace").partition("/")
    partition, _, offset = place.partition("/")
    if named == topic and partition.isdecimal() and offset.isdecimal():
        return int(partition), int(offset)
    return message.partition() or 0, message.offset() or 0


def origin_header(message: confluent_kafka.Message, topic: str) -> tuple[str, bytes]:
    """Return the header that names a message's first place in `topic`, to which it belongs."""
    partition, offset = origin_of(message, topic)
    return _ORIGIN, f"{topic}/{partition}/{offset}".encode()


def letter_headers(
    message: confluent_kafka.Message,
    topic: str,
    group: str,
    reason: str,
    exception: str | None,
    died_at: int,
) -> Headers:
    """Return the headers of the dead letter of a message that belongs to `topic`."""
    partition, offset = origin_of(message, topic)
    described = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "group": group,
        "reason": reason,
        "exception": exception,
        "at": died_at,
    }
    passing = (DEAD_LETTER_HEADER, _WAIT_PREFIX)
    own = [(name, value) for name, value in headers_of(message) if not name.startswith(passing)]
    return own + [
        (DEAD_LETTER_HEADER + name, _text(value))
        for name, value in described.items()
        if value is not None
    ]


def _text(value: object) -> bytes:
    """Return the text of a header; the text of an error may be anything, of any length."""
    text = str(value).encode(errors="backslashreplace")
    return text if len(text) <= _MAX_TEXT_BYTES else text[:_MAX_TEXT_BYTES] + b"..."


def letter_of(message: confluent_kafka.Message) -> DeadLetter | None:
    """Return the dead letter in a raw message; None if its headers describe none."""
    headers = headers_of(message)
    described = {
        name.removeprefix(DEAD_LETTER_HEADER): (value or b"").decode(errors="replace")
        for name, value in headers
        if name.startswith(DEAD_LETTER_HEADER)
    }
    own = tuple((name, value) for name, value in headers if not name.startswith(DEAD_LETTER_HEADER))
    redrives = (dict(own).get(_REDRIVES) or b"0").decode(errors="replace")
    try:
        died_at = described.get("at")
        return DeadLetter(
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            topic=described["topic"],
            origin_partition=int(described["partition"]),
            origin_offset=int(described["offset"]),
            group=described.get("group", ""),
            reason=described["reason"],
            exception=described.get("exception"),
            died_at=None if died_at is None else int(died_at),
            redrives=int(redrives),
            timestamp=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=own,
        )
    except (KeyError, ValueError):
        return None
