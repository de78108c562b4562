"""Limits that keep one client from hurting the others, and the memory that all share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits", "Memory"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may use: bytes, counts, seconds."""

    request_bytes: int = 32 << 20
    connections: int = 2000
    in_flight: int = 1000  # requests of one connection without a reply
    buffer_bytes: int = 512 << 20  # of all connections' requests together
    idle_seconds: float = 600.0  # without a byte in or out


class Memory:
    """A number of bytes that is shared: what is taken must be given back."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        """Take `size` bytes, or nothing if there are not so many left."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self._left += size
