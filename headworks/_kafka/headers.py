"""The headers of a message, whose names may be any bytes.

Rule: confluent_kafka (2.16) raises SystemError for a name that is not UTF-8, but only at the first
look. From then on it returns a pair with NULL in the name's place, which ends the process that
takes it. Here both are an error that says so.
"""

from __future__ import annotations

from typing import cast

from confluent_kafka import Message

from headworks.errors import CorruptError

Headers = list[tuple[str, bytes | None]]


def message_headers(message: Message) -> Headers:
    """Return the headers of a message; CorruptError if a name is not UTF-8."""
    try:
        found = cast(Headers, message.headers() or [])
        for pair in found:
            pair.count(None)  # compares NULL too, which is a SystemError
        return found
    except SystemError:
        raise CorruptError(
            "its headers cannot be read, because the name of one is not UTF-8"
        ) from None
