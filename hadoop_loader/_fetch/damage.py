"""Damaged record batches, and partitions that lost their leader: how a fetcher reports them.

Rules:

- Without a DamageReport, a damaged batch ends a fetch with an error.
- With one, it ends the fetch of its partition alone, or is skipped: exactly that batch, and nothing
  behind it.
- A partition whose topic is deleted, or whose brokers stop, is left where it is once the fetch has
  waited for it. Without a DamageReport, that ends the fetch with an error, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hadoop_loader._fetch.ranges import FetchRange
from headworks._kafka.damaged_batch import DamagedBatch, DamagedBatchError


@dataclass(frozen=True, slots=True, order=True)
class DamagedRange:
    """Offsets [start, end) of a partition that no message can be read of; empty if not skipped."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str = ""

    @property
    def size(self) -> int:
        """Number of offsets that were skipped."""
        return self.end - self.start


@dataclass(slots=True)
class DamageReport:
    """The damage that a fetch has met; `skip`: continue behind it."""

    skip: bool
    found: list[DamagedRange] = field(default_factory=list)
    leaderless: set[tuple[str, int]] = field(default_factory=set)  # partitions that were left


def damage_error(batch: DamagedBatch) -> DamagedBatchError:
    """Return the error for a batch that is not skipped."""
    return DamagedBatchError(
        batch,
        fix="load with --skip-damaged to continue behind it, and its messages are counted as "
        "damaged; or restore the partition from a backup (docs/backup.md). `headworks log dump` "
        "shows the batch",
    )


def cut_ranges(ranges: Iterable[FetchRange], damaged: Iterable[DamagedRange]) -> list[FetchRange]:
    """Return the ranges up to the first damage of each partition."""
    first: dict[tuple[str, int], int] = {}
    for one in sorted(damaged, reverse=True):
        first[one.topic, one.partition] = one.start
    cut = [replace(r, end=min(r.end, first.get((r.topic, r.partition), r.end))) for r in ranges]
    return [r for r in cut if r.size > 0]
