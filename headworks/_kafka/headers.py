"""The headers of a message, whose names may be any bytes.

Rule: for a name that is not UTF-8, confluent_kafka (2.16) returns a pair with NULL in its place.
That ends the process that takes it. At the first look the client also sets an error, which Python
finds at once or only later. Here all of that is one error that says so.
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
            pair.count(None)  # compares NULL too, which is an error
        return found
    except (SystemError, UnicodeDecodeError):
        raise CorruptError(
            "its headers cannot be read, because the name of one is not UTF-8"
        ) from None
