"""The bytes that a connection has received and not handled yet.

Rules:

- Whole requests are handled where they lie. The buffer moves only between read passes, because
  produced batches lie in it until they are written.
- Every byte beyond the first 16 KiB comes from the memory that all connections share. A request for
  which that has no room waits. One for which the machine itself has no memory must not wait: those
  that have a part of their bytes would wait for each other without an end.
- While half of the shared memory is available, a buffer grows as the bytes arrive: an announced
  length alone must not reserve memory that others need. Below that, a request gets all the memory
  that it needs or none, so that requests that have their memory can complete.
- An idle connection holds no large buffer while other connections lack memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from headworks._broker.server.limits import MemoryPool

_SMALL_BYTES = 16 << 10
_LARGE_BYTES = 128 << 10  # read at a time: they are still in a near cache when they are written
_DOUBLED_BYTES = 1 << 20  # a larger buffer than `_LARGE_BYTES`, up to this size, gets room for two
_IDLE_BYTES = 2 << 20  # a buffer that has grown beyond this shrinks when it is empty
_TRUSTED_GROWTH = 4  # a buffer grows to this many times the bytes that have arrived


class ReceiveBuffer:
    """The bytes in `buffer[start:end]` have not been handled yet."""

    __slots__ = ("_allocated", "_memory", "begun_at", "buffer", "end", "start")

    def __init__(self, memory: MemoryPool, now: float) -> None:
        self.buffer = bytearray(_SMALL_BYTES)
        self.start = 0  # of the first unhandled byte
        self.end = 0  # behind the last received byte
        self.begun_at = now  # when the first unhandled request began to arrive
        self._memory = memory
        self._allocated = 0  # bytes of the buffer that came from the pool

    @property
    def unhandled(self) -> int:
        """The number of received bytes that have not been handled."""
        return self.end - self.start

    def receive(self, receive: Callable[[memoryview], int]) -> int:
        """Receive once, and return the number of bytes. Raises what `receive` raises."""
        with memoryview(self.buffer) as view, view[self.end :] as free:
            count = receive(free)
        self.end += count
        return count

    def make_room(self, now: float, *, expected: int) -> bool:
        """Move the unhandled bytes to the front, and make room for `expected` bytes in all.

        Return False if the pool has no memory for them. Raises MemoryError if the machine has none.
        """
        unhandled = self.end - self.start
        wanted = max(_SMALL_BYTES, expected)
        full = self.end == len(self.buffer)
        if self.start or not unhandled:
            self.begun_at = now
            if unhandled:
                self.buffer[:unhandled] = self.buffer[self.start : self.end]
            self.start, self.end = 0, unhandled
        size = len(self.buffer)
        if wanted > size:
            step = min(wanted, max(2 * size, _TRUSTED_GROWTH * unhandled))
            left = self._memory.available - (step - size)
            return self._grow((step if left >= self._memory.size // 2 else wanted) - size)
        if full and (size < _LARGE_BYTES or _LARGE_BYTES < size < _DOUBLED_BYTES):
            with suppress(MemoryError):  # nothing needs it
                self._grow(size)  # the client is busy: read more at a time
        elif size > _IDLE_BYTES:
            self.shrink()
        return True

    def shrink(self) -> None:
        """Return to the smallest size, unless an unfinished request needs the buffer."""
        if self._allocated and not self.unhandled:
            self._release()
            self.buffer = bytearray(_SMALL_BYTES)
            self.start = self.end = 0

    def close(self) -> None:
        """Free the buffer, even if something still refers to the closed connection."""
        self._release()
        self.buffer = bytearray()
        self.start = self.end = 0

    def _release(self) -> None:
        self._memory.release(self._allocated)
        self._allocated = 0

    def _grow(self, size: int) -> bool:
        if not self._memory.try_allocate(size):
            return False
        try:
            self.buffer.extend(bytes(size))
        except MemoryError:  # the machine has less than the pool
            self._memory.release(size)
            raise
        self._allocated += size
        return True
