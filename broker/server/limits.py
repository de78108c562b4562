"""Limits that keep one client from hurting the others, and the memory that all share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Account", "Limits", "Memory"]

_FREE = 256 << 10  # bytes that a client has without being accounted for
_OBJECTS = 16  # bytes that a byte of a request takes when it is objects


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may use: bytes, counts, seconds."""

    request_bytes: int = 32 << 20
    other_request_bytes: int = 8 << 20  # of a request that is not Produce
    login_bytes: int = 64 << 10  # of a request before login
    connections: int = 2000
    connections_per_address: int | None = None  # of one client address; None: as many as of all
    in_flight: int = 1000  # requests of one connection without a reply
    working: int = 64  # of those, requests that are being worked on or wait, and are not Produce
    reply_bytes: int = 1 << 20  # held for a client that does not read: no more requests then
    buffer_bytes: int = 512 << 20  # of all connections' requests and replies together
    idle_seconds: float = 600.0  # without a byte in or out
    stall_seconds: float = 60.0  # with an unfinished request, or replies that are not read
    short_seconds: float = 5.0  # the same, while there is no memory for others
    slowest: int = 4 << 10  # bytes a second that are enough not to be stalled
    setup_seconds: float = 15.0  # for the TLS handshake, and again for the login
    refusal_seconds: float = 1.0  # before a failed login is answered


class Memory:
    """A number of bytes that is shared: what is taken must be given back."""

    def __init__(self, size: int) -> None:
        self.size = self.left = size
        self.short = False  # whether somebody did not get what they asked for, lately

    def take(self, size: int) -> bool:
        """Take `size` bytes, or nothing if there are not so many left."""
        if size > self.left:
            self.short = True
            return False
        self.left -= size
        return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self.left += size


class Account:
    """What one client has of the memory: requests that are worked on, as objects, and replies.

    A little is free, so that most clients never ask for any.
    """

    __slots__ = ("_lent", "_memory", "_used")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._used = self._lent = 0

    def charge(self, size: int) -> int | None:
        """Account for a request of so many bytes: what to give back, or None: no memory is left."""
        cost = size * _OBJECTS
        return cost if self.take(cost) else None

    def take(self, cost: int) -> bool:
        """Account for so many bytes of memory, or for nothing if there is no room for them."""
        more = self._used + cost - _FREE - self._lent
        if more > 0:
            if not self._memory.take(more):
                return False
            self._lent += more
        self._used += cost
        return True

    def give(self, cost: int) -> None:
        """So much is done with."""
        self._used -= cost
        spare = min(self._lent, self._lent + _FREE - self._used)
        if spare > 0:
            self._lent -= spare
            self._memory.give(spare)

    def close(self) -> None:
        """Give back what is left."""
        self.give(self._used)
