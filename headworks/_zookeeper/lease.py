"""A lease: until when a process may rely on what it holds in its ZooKeeper session.

A broker holds its id, and a consumer its partitions, by an ephemeral node. When ZooKeeper ends the
session it deletes the node, and another process may take over. The owner cannot see that moment,
so it computes an earlier one and stops by itself.

The argument, from ZooKeeper's protocol:

1. Only the leader ends a session, and not before `timeout` has passed since it last heard of it.
2. A follower notes when its clients speak, and reports that to the leader twice in a tick. Servers
   grant a timeout of at least two ticks, so a report is at most a quarter of the timeout late. A
   follower that dies takes its last notes with it.
3. The leader applies every write and first checks that the session is open. The write follows the
   follower's reports on one connection. So an acknowledged write that was sent at T proves that
   the leader had heard of what this process sent a quarter of the timeout before T, or earlier.
4. A read proves nothing: a lagging follower answers it from its own copy of the data, even after
   the leader has ended the session.
5. Let P be the latest acknowledged write at least a quarter of the timeout before T. The leader
   then keeps the session until P + timeout. The first write of a session is its own P, because
   the leader has just opened the session itself.

Rules:

- Only an acknowledged write extends a lease. The time that counts is when it was sent.
- A lease never lasts longer than two thirds of the timeout after that. The rest is for clocks that
  run at different speeds.
- The clock goes on while the process is stopped, as the monotonic clock does. A process cannot know
  what runs first when it continues, so it checks the lease before every single use.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

_TRUSTED_PART = 2 / 3  # of the timeout, after a write was sent
_UNREPORTED_PART = 1 / 4  # of the timeout, that the leader may not have heard of


class Lease:
    """Valid until some moment of `clock`, in seconds; not valid until it is extended."""

    __slots__ = ("_clock", "_until", "_writes")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock  # seconds; it runs on while the process is paused
        self._until = -math.inf  # when it expires
        self._writes: deque[float] = deque()  # when each acknowledged write was sent, since P

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold now what this process holds."""
        return self._clock() < self._until

    @property
    def until(self) -> float:
        """When it expires, by its clock."""
        return self._until

    def extend(self, sent: float, timeout: float) -> None:
        """Note that a write that was sent at `sent` was acknowledged. `timeout` is in seconds.

        Writes must be noted in the order in which they were sent.
        """
        writes, reported = self._writes, sent - timeout * _UNREPORTED_PART
        writes.append(sent)
        while len(writes) > 1 and writes[1] <= reported:
            writes.popleft()
        self._until = max(self._until, min(writes[0] + timeout, sent + timeout * _TRUSTED_PART))

    def end(self) -> None:
        """Make it invalid; the next write counts as the first of a session."""
        self._until = -math.inf
        self._writes.clear()


class LeaseThread:
    """Keeps the lease of one session in a thread of its own, until the session or `end` ends it.

    `write` writes the process's ephemeral node, and returns false if the node is gone. `timeout`
    returns the session's timeout in seconds. `ended` is called once if the node is gone. `joined`
    is when the write that created the node was sent.
    """

    def __init__(
        self,
        write: Callable[[], bool],
        timeout: Callable[[], float],
        ended: Callable[[], None],
        *,
        joined: float,
        writes_per_timeout: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write  # writes to ZooKeeper; True: acknowledged
        self._timeout = timeout  # of the session as negotiated, in seconds
        self._on_end = ended  # called once, when the lease is over
        self._clock = clock
        self._interval = timeout() / writes_per_timeout  # seconds between two writes
        self._lease = Lease(clock)
        self._over = threading.Event()  # set when the lease can never be valid again
        self._lease.extend(joined, timeout())
        self._thread = threading.Thread(target=self._run, name="headworks-lease", daemon=True)
        self._thread.start()

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold now what this process holds."""
        return self._lease.valid and not self._over.is_set()

    @property
    def ended(self) -> bool:
        """Whether it will never be valid again."""
        return self._over.is_set()

    def end(self) -> None:
        """Make it invalid for good, and end the thread."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._interval):
            try:
                self._renew()
            except Exception:  # not acknowledged: the lease runs out unless a later write is
                continue

    def _renew(self) -> None:
        sent, timeout = self._clock(), self._timeout()
        if self._write():
            self._lease.extend(sent, timeout)
        elif not self._over.is_set():
            self._over.set()
            self._on_end()
