"""The interface of `_decoder.c`; present only if it was compiled."""

from collections.abc import Callable
from typing import Any

SOURCE: str
"""The SHA-256 of the source that was compiled."""

_Buffer = Any
"""An object with the buffer protocol."""

_Column = tuple[int, int, bytes | None, _Buffer | None, _Buffer | None]
"""Elements, nulls, validity bits, values or ends, and text."""

class ColumnProgram:
    """The decoder of one pair of schemas, from a description by `headworks._decoding.program`."""

    def __new__(
        cls,
        nodes: tuple[tuple[Any, ...], ...],
        columns: tuple[tuple[str, tuple[int, ...]], ...],
        tops: tuple[int, ...],
        seed: int,
    ) -> ColumnProgram: ...
    def decode(
        self, data: _Buffer, starts: _Buffer, ends: _Buffer, /
    ) -> tuple[tuple[_Column, ...], list[int], list[int]]: ...
    def check(
        self, data: _Buffer, ids: _Buffer, spans: _Buffer, schema_id: int, /
    ) -> list[int]: ...
    def peek(self, data: _Buffer, starts: _Buffer, ends: _Buffer, /) -> bytearray: ...

class EventProgram:
    """The decoder of one pair of schemas into events; `decode` is the Python form."""

    declined: int
    """The number of events that were handed to the Python form."""

    def __new__(
        cls, nodes: tuple[tuple[Any, ...], ...], decode: Callable[[bytes, int], Any]
    ) -> EventProgram: ...
    def decode(self, data: bytes, start: int, /) -> Any: ...

def find_records(
    data: _Buffer, batches: tuple[tuple[int, int, int, int, int], ...], /
) -> tuple[int, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray]: ...
def find_frames(
    data: _Buffer, records: int, /
) -> tuple[bytearray, bytearray, bytearray, bytearray] | None: ...
def find_ids(data: _Buffer, starts: _Buffer, ends: _Buffer, /) -> bytearray: ...
