"""Limits that keep one client from hurting the others, and the memory that all clients share."""

from __future__ import annotations

from dataclasses import dataclass

_FREE_BYTES = 256 << 10  # that a client may use without drawing on the pool
_OBJECT_BYTES = 16  # that one byte of a request takes once the request is parsed into objects


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of each connection, unless a comment says that they are for all of them."""

    max_request_bytes: int = 32 << 20
    max_other_request_bytes: int = 8 << 20  # of a request that is not Produce
    max_login_bytes: int = 64 << 10  # of a request before the login
    max_connections: int = 2000  # of the broker
    max_connections_per_address: int | None = None  # from one client address; None: no limit
    max_in_flight: int = 1000  # requests without a complete reply
    max_pending: int = 64  # requests other than Produce that are being handled, or wait
    max_unsent_bytes: int = 1 << 20  # of replies; beyond, no more requests are taken
    memory_bytes: int = 512 << 20  # for the requests and replies of all connections
    idle_seconds: float = 600.0  # without a byte in or out
    stall_seconds: float = 60.0  # with an unfinished request, or with unread replies
    stall_seconds_low_memory: float = 5.0  # the same, while another client lacks memory
    min_bytes_per_second: int = 4 << 10  # of a client that is not stalled
    setup_seconds: float = 15.0  # for the TLS handshake, and again for the login
    failed_login_seconds: float = 1.0  # before a failed login is answered


class MemoryPool:
    """A number of bytes that all connections share; every allocation must be released."""

    def __init__(self, size: int) -> None:
        self.size = size  # bytes in all
        self.available = size  # bytes that nobody has
        self.exhausted = False  # whether an allocation failed since the last check for stalls

    def try_allocate(self, size: int) -> bool:
        """Take `size` bytes. Return False, and take none, if fewer are available."""
        if size > self.available:
            self.exhausted = True
            return False
        self.available -= size
        return True

    def release(self, size: int) -> None:
        """Return `size` bytes to the pool."""
        self.available += size


class MemoryAccount:
    """One client's memory for parsed requests and unsent replies.

    The first 256 KiB do not count, so most clients never draw on the pool.
    """

    __slots__ = ("_allocated", "_pool", "_used")

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool
        self._used = 0  # bytes that the client uses now
        self._allocated = 0  # of these, bytes that came from the pool

    def charge_request(self, size: int) -> int | None:
        """Charge for parsing a request of `size` bytes.

        Return the bytes to release afterwards, or None if the pool does not have them.
        """
        cost = size * _OBJECT_BYTES
        return cost if self.try_allocate(cost) else None

    def try_allocate(self, size: int) -> bool:
        """Charge for `size` bytes. Return False, and charge nothing, if the pool lacks them."""
        missing = self._used + size - _FREE_BYTES - self._allocated
        if missing > 0:
            if not self._pool.try_allocate(missing):
                return False
            self._allocated += missing
        self._used += size
        return True

    def release(self, size: int) -> None:
        """End the charge for `size` bytes."""
        self._used -= size
        spare = min(self._allocated, self._allocated + _FREE_BYTES - self._used)
        if spare > 0:
            self._allocated -= spare
            self._pool.release(spare)

    def close(self) -> None:
        """Release everything."""
        self.release(self._used)
