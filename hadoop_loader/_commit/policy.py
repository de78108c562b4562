"""How a loader is to behave: which topics, which partitions, how much that is bad. Pure.

Rules:

- Topics are chosen by regular expressions that match the whole name; what `deny` matches is left
  out, whatever `allow` says. A topic that is left out is not asked about and not reported.
- Partitions are days; a topic whose traffic fills a day with more than HOURLY_ABOVE bytes gets
  hours from the next load on, and keeps them. A setting beats the volume.
- A topic of which a load finds too much to be bad is held back, offsets and all; others go on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hadoop_loader._commit.commit_record import TableState
from headworks._audit_counting import WINDOW_MS
from headworks.errors import UsageError

__all__ = [
    "HOURLY_ABOVE_BYTES_PER_DAY",
    "PARTITIONS",
    "Policy",
    "QuarantineLimit",
    "bytes_per_day",
]

PARTITIONS = ("auto", "daily", "hourly")
HOURLY_ABOVE_BYTES_PER_DAY = 24 * 2**30
_WINDOWS_PER_DAY = 86_400_000 // WINDOW_MS
_WINDOWS_PER_HOUR = 3_600_000 // WINDOW_MS


@dataclass(frozen=True, slots=True)
class QuarantineLimit:
    """At most this share of a topic's messages may be bad, beyond `allowed_messages` of them."""

    share: float = 0.1
    allowed_messages: int = 1_000

    @classmethod
    def parse(cls, text: str) -> QuarantineLimit | None:
        """A limit as people write it: `5%`, `200` (messages), or `none`."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text)
        if text == "none":
            return None
        if found is None or (found[2] and float(found[1]) > 100) or (not found[2] and "." in text):
            raise UsageError(
                f"quarantine limit {text!r} is not a limit",
                fix="give a share (5%), a number of messages (200), or none",
            )
        return cls(float(found[1]) / 100) if found[2] else cls(0.0, int(found[1]))

    def exceeded_by(self, rows: int, bad: int) -> bool:
        """Whether a load that found `rows` good and `bad` bad messages has found too many."""
        return bad > self.allowed_messages and bad > self.share * (rows + bad)

    def __str__(self) -> str:
        return (
            f"{self.share * 100:g}% of its messages"
            if self.share
            else f"{self.allowed_messages:,} messages"
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """See the module. `skip_lost`: go on behind messages that the broker no longer has."""

    allow: str = ".*"
    deny: str = ""
    partitions: str = "auto"
    limit: QuarantineLimit | None = field(default_factory=QuarantineLimit)
    skip_lost: bool = False
    compact: bool = True

    def __post_init__(self) -> None:
        for name, pattern in (("allow", self.allow), ("deny", self.deny)):
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(
                    f"--{name} {pattern!r} is not a regular expression: {error}",
                    fix="give one that matches whole topic names: 'clicks|views\\..*'",
                ) from None
        if self.partitions not in PARTITIONS:
            raise UsageError(
                f"partitions {self.partitions!r} are not known", fix=f"use {', '.join(PARTITIONS)}"
            )

    def includes(self, topic: str) -> bool:
        """Whether the loader has to do with a topic."""
        return bool(re.fullmatch(self.allow, topic)) and not re.fullmatch(self.deny, topic)

    def hourly(self, before: TableState | None) -> bool:
        """Whether a topic's next load goes into hours."""
        if self.partitions != "auto":
            return self.partitions == "hourly"
        return before is not None and (
            before.hourly or before.bytes_a_day > HOURLY_ABOVE_BYTES_PER_DAY
        )


def bytes_per_day(windows: Mapping[str, Mapping[str, int]]) -> float:
    """The traffic of a topic in a day, from its audit windows; an hour at least is averaged."""
    total = sum(counts["bytes"] for counts in windows.values())
    return total * _WINDOWS_PER_DAY / max(_WINDOWS_PER_HOUR, len(windows))
