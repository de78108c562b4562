"""The interface of `_messages.c`; present only if it was compiled."""

from collections.abc import Callable
from typing import Any

SOURCE: str
"""The SHA-256 of the source that was compiled."""

class MessageReader:
    """Makes messages of class `message` of those of class `raw`; `python` is the Python form.

    `known` has a decoding function, a schema id, and its version by header, by topic.
    """

    def __new__(
        cls,
        raw: type,
        message: type,
        known: dict[Any, dict[bytes, tuple[Callable[[bytes, int], Any], int, int | None]]],
        python: Callable[[Any], Any],
    ) -> MessageReader: ...
    def read(self, raw: Any, /) -> Any: ...

def last_of_each(messages: list[Any], /) -> dict[tuple[str | None, int | None], Any]: ...
