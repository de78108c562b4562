"""The place in a topic that a rewind goes back to: an offset, a time, or the start. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from hadoop_loader._fetch.ranges import Watermarks
from headworks.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RewindPosition:
    """One of: `offset` (of `partition`, or of each one), `time_ms`, or the earliest message."""

    offset: int | None = None
    partition: int | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> RewindPosition:
        """Read `earliest`, `1200`, `2:1200` (partition 2), or an ISO time (UTC if without zone)."""
        if text == "earliest":
            return cls()
        found = re.fullmatch(r"(?:(\d+):)?(\d+)", text)
        if found is not None:
            return cls(int(found[2]), None if found[1] is None else int(found[1]))
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{text!r} is no position in a topic",
                fix="give an offset (1200, or 2:1200 of partition 2), a time "
                "(2026-05-01T12:00:00Z), or earliest",
            ) from None
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        # No record is older than 1970, and brokers take an earlier time for "the end" or an error.
        return cls(time_ms=int(time.timestamp() * 1000)) if time > _EPOCH else cls()

    def starts(
        self, marks: Mapping[int, Watermarks], offsets_at: Callable[[int], Mapping[int, int]]
    ) -> dict[int, int]:
        """Return the offset of each partition; `offsets_at` gives the first at a time or later."""
        if self.time_ms is not None:
            return dict(offsets_at(self.time_ms))
        if self.offset is None:
            return {partition: mark.low for partition, mark in marks.items()}
        if self.partition is None:
            return dict.fromkeys(marks, self.offset)
        if self.partition not in marks:
            raise UsageError(
                f"there is no partition {self.partition}",
                fix=f"the topic has partitions {', '.join(map(str, sorted(marks)))}",
            )
        return {self.partition: self.offset}
