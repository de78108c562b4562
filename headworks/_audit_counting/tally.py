"""The counting steps that every message takes: its attempt, and its delivery report.

Rules:

- `PythonTally` and `PythonLatestWindow` define the result and are always present. `Tally` and
  `LatestWindow` are their compiled forms (`_tally.c`) if there are any. Only the speed differs.
- No step takes a lock, because a lock costs more than all. Under the global interpreter lock,
  threads switch only at a function call or at the end of a loop's turn. A step therefore contains
  neither between its first read and its last write, and no `with`.
- The counts are attributes, so that the words of the file are written and never read: a read costs
  as much as a write. The attempts are in their word at once, because nothing else knows of them
  after a SIGKILL. The owner writes the deliveries and the bytes (`WindowCounts.flush`).
- Only an attached tally counts attempts. The owner detaches it before its words become invalid:
  when the slot is freed, and when the file is closed or grows. No thread is inside a step then.
- An event class's last tally is held beside the class, so that a message needs no lookup by name. A
  tally that was detached meanwhile declines, and `CounterFile.attempt` finds the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from confluent_kafka import KafkaError

from headworks._native import tally as _compiled

T = TypeVar("T")
Report: TypeAlias = Callable[[KafkaError | None, object], None]
"""librdkafka's delivery callback: an error or None, and the message."""


COUNTS_IN_PYTHON: Final = _compiled is None
"""Whether `Tally` and `LatestWindow` are the Python forms, whose attributes a caller can see."""

_NO_WORDS: Final = memoryview(b"")


class PythonTally:
    """The counts of one topic in the window from `start` to `end` (milliseconds since 1970 UTC).

    `at` is the index of the word of `attempted` in the file. `undelivered` is the delivery callback
    of messages that failed.
    """

    __slots__ = (
        "_undelivered",
        "_window",
        "at",
        "attempted",
        "bytes",
        "delivered",
        "end",
        "start",
        "words",
    )

    def __init__(self, at: int, start: int, end: int, undelivered: Report) -> None:
        self.at = at
        self._window = start, end
        self.start = self.end = 0  # of the messages that are counted: of none while detached
        self._undelivered = undelivered
        self.words = _NO_WORDS
        self.attempted = self.delivered = self.bytes = 0

    def attach(self, words: memoryview | None, /) -> None:
        """Count in these words from now on, or nowhere (None)."""
        if words is None:
            self.start = self.end = 0
            self.words = _NO_WORDS
        else:
            self.words = words
            self.start, self.end = self._window

    def attempt(self, timestamp: int, size: int, /) -> bool:
        """Count an attempt; return False if the message is not of this window.

        No line of it may call a function.
        """
        if not self.start <= timestamp < self.end:
            return False
        self.words[self.at] = self.attempted = self.attempted + 1
        self.bytes = self.bytes + size
        return True

    def report(self, error: KafkaError | None, message: object, /) -> None:
        """Count a message as delivered, or hand its error to `undelivered`."""
        if error is None:
            self.delivered = self.delivered + 1
        else:
            self._undelivered(error, message)


_NOWHERE: Final = PythonTally(0, 0, 0, lambda _error, _message: None)


class PythonLatestWindow(Generic[T]):
    """The counts (T) of the window of an event class's last message; at first of none."""

    __slots__ = ("counts", "tally")

    def __init__(self) -> None:
        self.tally = _NOWHERE
        self.counts: T | None = None

    def hold(self, tally: PythonTally, counts: T, /) -> None:
        """Count in this tally from now on, and return these counts."""
        self.tally, self.counts = tally, counts

    def attempt(self, timestamp: int, value: bytes, /) -> T | None:
        """Count an attempt; return the counts to resolve it in, or None if it counts elsewhere.

        It repeats `PythonTally.attempt`, because a call would cost as much as the rest.
        `Transport.enqueue` of the producer repeats it for the same reason.
        """
        size = len(value)
        tally = self.tally
        if not tally.start <= timestamp < tally.end:
            return None
        tally.words[tally.at] = tally.attempted = tally.attempted + 1
        tally.bytes = tally.bytes + size
        return self.counts


if TYPE_CHECKING or COUNTS_IN_PYTHON:
    Tally = PythonTally
    LatestWindow = PythonLatestWindow
else:
    Tally = _compiled.Tally
    LatestWindow = _compiled.LatestWindow
