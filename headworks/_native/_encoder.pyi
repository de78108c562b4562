"""The interface of `_encoder.c`; present only if it was compiled."""

from typing import Any

from headworks.codec._encoders import EncodedMessage

SOURCE: str
"""The SHA-256 of the source that was compiled."""

class Program:
    """The encoder of the events of one class, from a description by `headworks.codec._program`."""

    declined: int
    """The number of events that were handed to the Python form."""

    def __new__(
        cls,
        nodes: tuple[tuple[Any, ...], ...],
        time: tuple[str, ...] | None,
        keys: tuple[tuple[str, ...], ...],
        encode: object,
        message: object,
        key: object,
    ) -> Program: ...
    def encode(self, event: Any, /) -> bytes: ...
    def message(self, head: bytes, event: Any, /) -> EncodedMessage: ...
