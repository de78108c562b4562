"""The operator's choices: which topics, which partitions, and how many bad messages. Pure.

Rules:

- Topics are chosen by regular expressions that match whole names; `deny` wins over `allow`. A topic
  that is not chosen is neither looked up nor reported.
- Partitions are days. A topic with more traffic than HOURLY_ABOVE_BYTES_PER_DAY gets hours from the
  next load on, and keeps them. A setting overrides the volume.
- If a load finds too many bad messages in a topic, the topic keeps its offsets. Other topics are
  loaded.
- A table that cannot follow its topic's latest schema in place is rebuilt, unless `rebuild` is
  never.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hadoop_loader._commit.commit_record import TableState
from headworks._audit_counting import WINDOW_MS
from headworks.errors import UsageError

PARTITIONS = ("auto", "daily", "hourly")
REBUILD = ("auto", "never")
HOURLY_ABOVE_BYTES_PER_DAY = 24 * 2**30
_WINDOWS_PER_DAY = 86_400_000 // WINDOW_MS
_WINDOWS_PER_HOUR = 3_600_000 // WINDOW_MS


@dataclass(frozen=True, slots=True)
class QuarantineLimit:
    """The share of a topic's messages that may be bad; a small number of them always may."""

    share: float = 0.1  # of a topic's new messages
    allowed_messages: int = 1_000  # so many may be bad in any case

    @classmethod
    def parse(cls, text: str) -> QuarantineLimit | None:
        """Return the limit that a text names: `5%`, `200` (messages), or `none`."""
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
        """Return whether `bad` messages beside `rows` good ones are too many."""
        return bad > self.allowed_messages and bad > self.share * (rows + bad)

    def __str__(self) -> str:
        return (
            f"{self.share * 100:g}% of its messages"
            if self.share
            else f"{self.allowed_messages:,} messages"
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's choices for a warehouse."""

    allow: str = ".*"  # regular expression of whole topic names
    deny: str = ""
    partitions: str = "auto"  # one of PARTITIONS
    limit: QuarantineLimit | None = field(default_factory=QuarantineLimit)  # None: no limit
    skip_lost: bool = False  # continue after messages that the broker no longer has
    compact: bool = True  # compact after each load
    skip_damaged: bool = False  # continue after damaged batches
    keep_days: int | None = None  # remove partitions of earlier days after each load
    rebuild: str = "auto"  # one of REBUILD: rebuild tables that cannot follow a schema in place

    def __post_init__(self) -> None:
        for name, pattern in (("allow", self.allow), ("deny", self.deny)):
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(
                    f"--{name} {pattern!r} is not a regular expression: {error}",
                    fix="give one that matches whole topic names: 'clicks|views\\..*'",
                ) from None
        for name, value, known in (
            ("partitions", self.partitions, PARTITIONS),
            ("rebuild", self.rebuild, REBUILD),
        ):
            if value not in known:
                raise UsageError(f"--{name} {value!r} is not known", fix=f"use {', '.join(known)}")

    def includes(self, topic: str) -> bool:
        """Return whether a topic is loaded."""
        return bool(re.fullmatch(self.allow, topic)) and not re.fullmatch(self.deny, topic)

    def hourly(self, before: TableState | None) -> bool:
        """Return whether the next load of a topic writes hourly partitions."""
        if self.partitions != "auto":
            return self.partitions == "hourly"
        return before is not None and (
            before.hourly or before.bytes_a_day > HOURLY_ABOVE_BYTES_PER_DAY
        )


def bytes_per_day(windows: Mapping[str, Mapping[str, int]]) -> float:
    """Return a topic's traffic in bytes per day, from its audit windows."""
    total = sum(counts["bytes"] for counts in windows.values())
    return total * _WINDOWS_PER_DAY / max(_WINDOWS_PER_HOUR, len(windows))
