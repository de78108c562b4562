"""The rows of a page of messages.

Rule: a row holds only content that the page may show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headworks._console.sources.printable import HexLine
from headworks._kafka.damaged_batch import DamagedBatch


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message as it may be shown. `event` is None if `problem` says why it is not decoded.

    `bytes` has the value in hexadecimal digits, if they are asked for and nothing is masked.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    headers: tuple[tuple[str, str | None], ...]
    size: int
    schema_id: int | None
    schema_version: int | None
    event: Any
    problem: str | None
    bytes: tuple[HexLine, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageSlice:
    """Messages, oldest first, the number scanned, and the next offset of each partition."""

    rows: tuple[ShownMessage, ...]
    scanned: int
    following: Mapping[int, int]
    complete: bool


@dataclass(frozen=True, slots=True)
class SkippedBatch:
    """A damaged record batch, and the offset after it."""

    batch: DamagedBatch
    following: int

    def shown(self, timestamp_ms: int) -> ShownMessage:
        """Return it as a row; its own times are unknown."""
        batch = self.batch
        problem = (
            f"the record batch here is damaged, up to offset {self.following}: restore the"
            " partition from a copy"
        )
        place = (batch.partition, batch.offset, timestamp_ms)
        return ShownMessage(*place, None, (), 0, None, None, None, problem)
