"""The committed offset of a group, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of a group in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: UUID | None = None  # of the topic that it is an offset of; None: not known
