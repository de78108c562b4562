"""The results of `audit.queries`: frozen, plain values, ready for a page or for JSON.

Times are milliseconds since 1970 (UTC); durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headworks._audit.balance import Balance
from headworks._audit.increments import CountedRange
from headworks._audit_counting import WINDOW_MS

SETTLED_MS = 120_000
_REOPENED_AFTER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class WindowState:
    """One window of one topic at one tier.

    `first_sent` and `last_sent`: when producers first and last counted into it (None: never).
    `last_heard`: when producers or the tier last did. `complete_at`: when 99.9 % of the expected
    messages were at the tier (None: not yet).
    """

    balance: Balance
    window_start: int
    first_sent: int | None
    last_sent: int | None
    last_heard: int
    complete_at: int | None

    @property
    def window_end(self) -> int:
        """The end of the window."""
        return self.window_start + WINDOW_MS

    @property
    def seconds_to_complete(self) -> float | None:
        """The seconds from the window's end until it was complete, at least 0."""
        if self.complete_at is None:
            return None
        return max(0.0, (self.complete_at - self.window_end) / 1000)

    @property
    def reopened(self) -> bool:
        """Return whether producers counted into it an hour after its end and its first count."""
        if self.first_sent is None or self.last_sent is None:
            return False
        return self.last_sent > max(self.window_end, self.first_sent) + _REOPENED_AFTER_MS

    def due(self, now: int, patience_ms: int) -> bool:
        """Return whether it ended `patience_ms` ago, and its last count is two minutes old.

        The two minutes are for counts on their way. Lost and dropped messages need no such time.
        """
        certain = self.balance.lost > 0 or self.balance.dropped > 0
        settled = certain or now > self.last_heard + SETTLED_MS
        return now > self.window_end + patience_ms and settled

    def overdue(self, now: int, patience_ms: int) -> bool:
        """Return whether messages still wait, though none was counted for `patience_ms`.

        Messages that are late for their window have as much time as all others.
        """
        waited = now > max(self.window_end, self.last_heard) + patience_ms
        return self.balance.waiting > 0 and waited


@dataclass(frozen=True, slots=True)
class HealthRow:
    """A topic's line in the heatmap; None for a window without counts."""

    sum: Balance
    cells: tuple[WindowState | None, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """The heatmap: the windows' starts, a page of rows, and the sum over all topics.

    `bad` topics have losses or duplicates.
    """

    tier: str
    windows: tuple[int, ...]
    rows: tuple[HealthRow, ...]
    topics: int
    sum: Balance
    bad: int


@dataclass(frozen=True, slots=True)
class TimeToComplete:
    """Percentiles over `windows` windows, in seconds; None: that share is not complete yet."""

    tier: str
    windows: int
    complete: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class TierLine:
    """A tier's windows, in the order of `TopicAudit.windows`."""

    tier: str
    cells: tuple[WindowState | None, ...]
    time_to_complete: TimeToComplete


@dataclass(frozen=True, slots=True)
class TopicAudit:
    """One topic: the attempts per window, a line per tier, and drops by reason."""

    topic: str
    windows: tuple[int, ...]
    attempted: tuple[int, ...]
    tiers: tuple[TierLine, ...]
    drops: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TierState:
    """A tier: the number of its sources, their first and last report, and unsettled messages."""

    tier: str
    sources: int
    first_sent: int
    last_sent: int
    unsettled: int


@dataclass(frozen=True, slots=True)
class TierSource:
    """A host and application that report for a tier.

    `unsettled` messages were attempted, and their fate is not reported. `lag_ms` is the shortest
    delay from its clock to the reconciler's, when read live (negative: its clock is ahead).
    """

    tier: str
    host: str
    application: str
    first_sent: int
    last_sent: int
    unsettled: int
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Contribution:
    """The counts of one host and application for a window."""

    tier: str
    host: str
    application: str
    counts: Mapping[str, int]
    bytes: int
    increments: int
    first_sent: int
    last_sent: int


@dataclass(frozen=True, slots=True)
class LoadShare:
    """The counts of one load for a window, and the offsets that it covered."""

    load: int
    counts: Mapping[str, int]
    ranges: tuple[CountedRange, ...]
    committed_at: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """A topic's window: its state by tier, its counts by source, and its loads."""

    topic: str
    window_start: int
    states: Mapping[str, WindowState]
    contributions: tuple[Contribution, ...]
    loads: tuple[LoadShare, ...]


@dataclass(frozen=True, slots=True)
class Holes:
    """Messages of the audit topic that could not be read, and that were gone before they were."""

    unreadable: int
    missed: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """A topic is complete up to `until`; `waits_for` is its first incomplete window, if any.

    `counted` is False if no producer counts the topic: then nothing is known of it.
    """

    topic: str
    until: int
    waits_for: Balance | None
    counted: bool
