"""What a connection has received: one buffer, in which whole requests are handled where they lie.

Rules: the buffer moves only between passes, because produced batches lie in it until they are
written. What it grows beyond its smallest size is taken from the memory that all connections
share; what is not there is waited for. While half of that memory is left, a buffer grows as the
bytes come: a promise alone must not hold what others need. Beyond, a request gets all that it needs
or nothing, so that those who were given memory can be served. Who has nothing to say keeps none of
it while others wait.
"""

from __future__ import annotations

from collections.abc import Callable

from headworks._broker.server.limits import Memory

__all__ = ["Inbox"]

_SMALL = 16 << 10
_LARGE = 128 << 10  # what is read at a time: it is still in a near cache when it is written
_ONE = 1 << 20  # up to so large, a request that needs more than that gets room for two
_KEPT = 2 << 20  # what a large request has left behind
_PROOF = 4  # times what has come is believed to come
_TLS_HELLO = b"\x16\x03"
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")


class Inbox:
    """`buffer[start:end]` is what has not been handled yet."""

    __slots__ = ("_memory", "_taken", "buffer", "end", "since", "start")

    def __init__(self, memory: Memory, now: float) -> None:
        self.buffer = bytearray(_SMALL)
        self.start = self.end = 0
        self.since = now  # when what is first in the buffer began to come
        self._memory = memory
        self._taken = 0

    @property
    def unread(self) -> int:
        """How many bytes wait for the rest of their request."""
        return self.end - self.start

    def receive(self, receive: Callable[[memoryview], int]) -> int:
        """Receive once; what `receive` raises is raised."""
        with memoryview(self.buffer) as view, view[self.end :] as free:
            count = receive(free)
        self.end += count
        return count

    def make_room(self, now: float, *, whole: bool) -> bool:
        """Move what is unread to the front and fit the buffer to what comes.

        False when there is no memory for the request that has begun. `whole` says that what is
        unread are requests that wait to be handled, not one that is still coming.
        """
        unread = self.end - self.start
        wanted = _SMALL
        if unread >= 4 and not whole:
            head = self.buffer[self.start : self.start + 4]
            wanted = max(wanted, 4 + int.from_bytes(head, "big", signed=True))
        full = self.end == len(self.buffer)
        if self.start or not unread:
            self.since = now
            self.buffer[:unread] = self.buffer[self.start : self.end]
            self.start, self.end = 0, unread
        size = len(self.buffer)
        if wanted > size:
            step = min(wanted, max(2 * size, _PROOF * unread))
            left = self._memory.left - (step - size)
            return self._grow((step if left >= self._memory.size // 2 else wanted) - size)
        if full and (size < _LARGE or _LARGE < size < _ONE):
            self._grow(size)  # busy: read more at a time
        elif size > _KEPT:
            self.shrink()
        return True

    def shrink(self) -> None:
        """Become small again, unless something waits for the rest of its request."""
        if self._taken and not self.unread:
            self.release()
            self.buffer = bytearray(_SMALL)
            self.start = self.end = 0

    def wrong_size(self, size: int, largest: int) -> str:
        """What to say of a length that no request can have."""
        hint = ""
        if self.buffer.startswith(_TLS_HELLO, self.start):
            hint = "; a TLS client, and this is not TLS?"
        elif self.buffer.startswith(_HTTP, self.start):
            hint = "; it speaks HTTP"
        return f"a request of {size} bytes is not within 8..{largest}{hint}"

    def close(self) -> None:
        """Let go of everything, whoever still holds a connection that has ended."""
        self.release()
        self.buffer = bytearray()
        self.start = self.end = 0

    def release(self) -> None:
        """Give back what was taken of the shared memory."""
        self._memory.give(self._taken)
        self._taken = 0

    def _grow(self, size: int) -> bool:
        if not self._memory.take(size):
            return False
        self._taken += size
        self.buffer.extend(bytes(size))
        return True
