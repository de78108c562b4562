"""The counts of one window in a counter file, as the thread that sends a message changes them.

Rules: those of `counters`. `attempt`, the `report` of a delivery, and `consume` take no lock under
the global interpreter lock. Every other step is taken under the lock of the file.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Final, Protocol

from confluent_kafka import KafkaError

from headworks._audit_counting import WINDOW_MS, layout
from headworks._audit_counting.outcomes import (
    ATTEMPTED,
    CONSUMED,
    DELIVERED,
    FAILED,
    OUTCOME_OF_ERROR,
)
from headworks._audit_counting.tally import LatestWindow, Report, Tally

HAS_GIL: Final = bool(getattr(sys, "_is_gil_enabled", lambda: True)())


class CountingFile(Protocol):
    """The file that the counts are in: `lock` guards all of it but `lost`."""

    lock: Lock
    lost: list[int]  # messages that were resolved and not delivered, by outcome
    closed: bool

    @property
    def words(self) -> memoryview:
        """The words of the file; see `layout`."""


class WindowCounts:
    """The counts of one topic, window, and pair of schema ids, in a slot of a counter file.

    `attempt` counts a message, by its timestamp and size. It returns False if the message is not of
    this window or the slot is gone: `CounterFile.attempt` counts it then. `report` is the delivery
    callback of these messages. It is valid while one of them is unresolved, because a slot without
    open messages may be reused. `consume` is as `attempt`, for a message that a group consumed.
    """

    __slots__ = ("_at", "_consumed", "_file", "_tally", "attempt", "consume", "report", "window")

    def __init__(self, file: CountingFile, base: int, window: int) -> None:
        self._file = file
        # The index of the word of `attempted`; the words of the other outcomes follow it.
        self._at = base + layout.CURRENT
        # The counts that every message changes, which are not read back from the file.
        self._tally = Tally(self._at, window, window + WINDOW_MS, self._report_locked)
        # The same of the consumed messages, of which `attempted` is the number.
        self._consumed = Tally(self._at + CONSUMED, window, window + WINDOW_MS, self._report_locked)
        self.attach(file.words)
        self.window = window
        self.attempt = self._tally.attempt
        self.consume = self._consumed.attempt
        self.report: Report = self._tally.report if HAS_GIL else self._report_locked

    def held_in(self, latest: LatestWindow[WindowCounts]) -> WindowCounts:
        """Let `latest` count the next messages, if the interpreter has a global lock."""
        if HAS_GIL:
            latest.hold(self._tally, self)
        return self

    def resolve(self, outcome: int) -> None:
        """Count the outcome of a message; `outcome` indexes OUTCOMES.

        If the file is closed, the message stays open, and the next process publishes it as
        unresolved.
        """
        file = self._file
        with file.lock:
            if not file.closed:
                file.lost[outcome] += outcome != DELIVERED
                self.add(outcome, 1, 0)

    def add(self, outcome: int, number: int, size: int) -> None:
        """Add messages and bytes; the caller holds the lock."""
        words, tally, consumed = self._file.words, self._tally, self._consumed
        # The counts of the tally change without a call in between, as `tally` demands.
        if outcome == ATTEMPTED:
            words[self._at] = tally.attempted = tally.attempted + number
        elif outcome == DELIVERED:
            words[self._at + DELIVERED] = tally.delivered = tally.delivered + number
        elif outcome == CONSUMED:
            words[self._at + CONSUMED] = consumed.attempted = consumed.attempted + number
        else:
            words[self._at + outcome] += number
        tally.bytes = tally.bytes + size
        words[self._at + layout.BYTES] = tally.bytes + consumed.bytes

    def flush(self) -> None:
        """Write the counts that only the tally knows into the file; the caller holds the lock."""
        words = self._file.words
        words[self._at + DELIVERED] = self._tally.delivered
        words[self._at + layout.BYTES] = self._tally.bytes + self._consumed.bytes

    def attach(self, words: memoryview | None) -> None:
        """Count in these words from now on, or nowhere (None); the caller holds the lock."""
        self._tally.attach(words)
        self._consumed.attach(words)

    def _report_locked(self, error: KafkaError | None, _message: object) -> None:
        self.resolve(DELIVERED if error is None else OUTCOME_OF_ERROR.get(error.code(), FAILED))
