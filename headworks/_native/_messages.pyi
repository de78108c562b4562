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

class CompiledStep:
    """The step from one message of class `raw` to the next; see `consumer_sdk._message_step`."""

    last: Any
    current: Any
    beside: Callable[[Any], None] | None
    asked: int
    users: int
    is_left: bool
    is_stopped: bool
    def __new__(
        cls, raw: type, fetched: Any, waiting: Any, put_back: Callable[[Any], None]
    ) -> CompiledStep: ...
    def connect(
        self,
        read: Callable[[Any], Any],
        ended: dict[int, int],
        outcome: int,
        count: Callable[[Any, int], Callable[[int, int], bool] | None] | None,
        /,
    ) -> None: ...
    def mark(self, message: Any, /) -> None: ...
    def take_processed(self) -> list[Any]: ...
    def next(self) -> Any: ...
    def __iter__(self) -> CompiledStep: ...
    def __next__(self) -> Any: ...
