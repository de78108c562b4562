"""The dead letters that a user asks for, by what their headers say.

Rules: pure. The same selection always has the same name, so that a redrive that is started again
continues.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from consumer_sdk._dead_letters.letter import DeadLetter
from consumer_sdk._message import Partition


@dataclass(frozen=True, slots=True)
class LetterSelection:
    """The conditions that a letter must meet; one that is None is met by all.

    `at` is one letter's partition and offset in the dead-letter topic. `reason` is a part of the
    reason. `since` and `until` bound the record timestamp, in milliseconds since 1970 UTC.
    """

    topic: str | None = None
    group: str | None = None
    exception: str | None = None
    reason: str | None = None
    key: bytes | None = None
    since: int | None = None
    until: int | None = None
    at: tuple[int, int] | None = None

    def includes(self, letter: DeadLetter) -> bool:
        """Return whether a letter meets every condition."""
        return (
            self.topic in (None, letter.topic)
            and self.group in (None, letter.group)
            and self.exception in (None, letter.exception)
            and self.key in (None, letter.key)
            and (self.reason is None or self.reason in letter.reason)
            and (self.since is None or self.since <= letter.timestamp)
            and (self.until is None or letter.timestamp < self.until)
            and self.at in (None, (letter.partition, letter.offset))
        )

    def name(self, *targets: object) -> str:
        """Return a short name of this selection, sent to these targets."""
        return hashlib.sha256(repr((self, targets)).encode()).hexdigest()[:12]

    def bounded(self, bounds: dict[Partition, tuple[int, int]]) -> dict[Partition, tuple[int, int]]:
        """Return the offsets [first, end) of each partition that may hold such letters."""
        if self.at is None:
            return bounds
        partition, offset = self.at
        return {
            place: (offset, offset + 1)
            for place, (first, end) in bounds.items()
            if place.partition == partition and first <= offset < end
        }
