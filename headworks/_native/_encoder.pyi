"""What `_encoder.c` offers; there only where it was compiled."""

from typing import Any

from headworks.codec._encoders import EncodedMessage

SOURCE: str
"""The SHA-256 of the source that was compiled."""

class Program:
    """What encodes the events of one class (`headworks.codec._program` makes the description)."""

    declined: int
    """How many events were handed to the Python form."""

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
