"""The interface of `_rows.c`; present only if it was compiled."""

from typing import Any

SOURCE: str
"""The SHA-256 of the source that was compiled."""

_Buffer = Any
"""An object with the buffer protocol."""

def order_rows(
    numbers: _Buffer, unit: int, /
) -> tuple[bytearray | None, list[tuple[int, int, int]]]: ...
def sum_windows(
    times: _Buffer, starts: _Buffer, ends: _Buffer, unit: int, /
) -> list[tuple[int, int, int]]: ...
def choose_inside(
    partitions: _Buffer, offsets: _Buffer, bounds: _Buffer, /
) -> bytearray | None: ...
