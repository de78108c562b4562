"""The two counting steps that every message takes: its attempt, and its delivery report.

Rules:

- `PythonTally` defines the result and is always present. `Tally` is its compiled form (`_tally.c`)
  if there is one. Only the speed differs.
- Neither step takes a lock, because a lock costs more than both. Under the global interpreter lock,
  threads switch only at a function call or at the end of a loop's turn. A step therefore contains
  neither between its first read and its last write, and no `with`.
- The counts are attributes, so that the words of the file are written and never read: a read costs
  as much as a write. The attempts are in their word at once, because nothing else knows of them
  after a SIGKILL. The owner writes the deliveries and the bytes (`WindowCounts.flush`).
- Only an attached tally counts attempts. The owner detaches it before its words become invalid:
  when the slot is freed, and when the file is closed or grows. No thread is inside a step then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from confluent_kafka import KafkaError

from headworks._native import tally as _compiled

Report: TypeAlias = Callable[[KafkaError | None, object], None]
"""librdkafka's delivery callback: an error or None, and the message."""


class PythonTally:
    """The counts of one topic in the window from `start` to `end` (milliseconds since 1970 UTC).

    `at` is the index of the word of `attempted` in the file. `undelivered` is the delivery callback
    of messages that failed.
    """

    __slots__ = (
        "_at",
        "_end",
        "_start",
        "_undelivered",
        "_words",
        "attempted",
        "bytes",
        "delivered",
    )

    def __init__(self, at: int, start: int, end: int, undelivered: Report) -> None:
        self._at = at
        self._start, self._end = start, end
        self._undelivered = undelivered
        self._words: memoryview | None = None
        self.attempted = self.delivered = self.bytes = 0

    def attach(self, words: memoryview | None, /) -> None:
        """Count in these words from now on, or nowhere (None)."""
        self._words = words

    def attempt(self, timestamp: int, size: int, /) -> bool:
        """Count an attempt; return False if the message is not of this window.

        No line of it may call a function.
        """
        words = self._words
        if words is None or not self._start <= timestamp < self._end:
            return False
        words[self._at] = self.attempted = self.attempted + 1
        self.bytes = self.bytes + size
        return True

    def report(self, error: KafkaError | None, message: object, /) -> None:
        """Count a message as delivered, or hand its error to `undelivered`."""
        if error is None:
            self.delivered = self.delivered + 1
        else:
            self._undelivered(error, message)


Tally = PythonTally if _compiled is None else _compiled.Tally
