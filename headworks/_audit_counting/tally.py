"""The two steps of counting that every message takes: to be handed over, and to be reported.

Rules:

- `PythonTally` is the truth, and is always there; `Tally` is its compiled form (`_tally.c`) where
  there is one. Nothing but speed tells them apart.
- Neither step takes a lock: a lock costs more than both. Under the interpreter's own lock threads
  change places only where a function is called or a loop turns, so between the first thing that a
  step reads and the last that it writes there is neither, and nothing that could be one (`with`).
- The counts are kept here, so that the words of the file are written and never read: to read one
  costs as much as to write it. What was attempted is in its word at once, because nothing else
  would know of it after a SIGKILL; what was delivered, and bytes, are the owner's to write down.
- Only an attached tally counts attempts. Who takes its words away (the slot is free again, the file
  is closed, or grows and has others) detaches it first; no thread is in the middle of a step then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from confluent_kafka import KafkaError

from headworks._native import tally as _compiled

__all__ = ["PythonTally", "Report", "Tally"]

Report: TypeAlias = Callable[[KafkaError | None, object], None]
"""What librdkafka tells the fate of a message: an error or None, and the message."""


class PythonTally:
    """What was counted of one topic from `start` to `end` (milliseconds since 1970).

    `at` is the place of `attempted` in the file's words; `undelivered` is told of errors.
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
        """Count in these words from now on; in none, if None."""
        self._words = words

    def attempt(self, timestamp: int, size: int, /) -> bool:
        """Count a message that was handed over; False if its owner must be asked where it belongs.

        From the first line to the last nothing may be called.
        """
        words = self._words
        if words is None or not self._start <= timestamp < self._end:
            return False
        words[self._at] = self.attempted = self.attempted + 1
        self.bytes = self.bytes + size
        return True

    def report(self, error: KafkaError | None, message: object, /) -> None:
        """Count a message as delivered, or say what error it has met."""
        if error is None:
            self.delivered = self.delivered + 1
        else:
            self._undelivered(error, message)


Tally = PythonTally if _compiled is None else _compiled.Tally
