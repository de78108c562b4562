"""What a load did, as frozen values: for people and for `--format json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["LoadReport", "Refusal", "TopicReport"]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic in one load; `offsets`: partition to (from, to), `to` not included."""

    topic: str
    table: str
    schema_version: int
    offsets: dict[int, tuple[int, int]]
    rows: int
    files: int
    bytes: int
    quarantined: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A topic that was left as it is, with its offsets, and why."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One load. `number` is the commit's (the last one's if there was nothing new)."""

    number: int
    topics: tuple[TopicReport, ...] = ()
    ungoverned: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows that the load brought into tables."""
        return sum(topic.rows for topic in self.topics)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "rows": self.rows}
