"""How long a broker may believe that its session with ZooKeeper stands.

A write that was answered proves that the ensemble knew of the session when it came, and so not
before it was sent; from what the ensemble had heard until then, it ends the session after
`timeout` seconds at the earliest. A server of the ensemble tells the leader of its clients in
intervals, and what it had not told may be lost with it: so the broker trusts two thirds of it.

Rules: the clock is passed in and must go on while the process is suspended (the monotonic one
does). A lease is only ever extended by proof, and never by hope: by default it has lapsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["BEATS", "Lease"]

BEATS = 6  # proofs that are asked for per timeout
_TRUST = 2 / 3


class Lease:
    """Holds until `until`, by `clock`."""

    __slots__ = ("_clock", "until")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.until = -math.inf

    @property
    def holds(self) -> bool:
        """Whether it can be relied on now."""
        return self._clock() < self.until

    def extend(self, sent: float, timeout: float) -> None:
        """What was sent at `sent` was answered; the session ends after `timeout` of silence."""
        self.until = max(self.until, sent + timeout * _TRUST)

    def end(self) -> None:
        """It does not hold any more."""
        self.until = -math.inf
