"""The open transactions of one partition, and the last stable offset that follows from them.

Rules, as in the protocol (KIP-98):

- The first batch of a producer's transaction opens it, and the marker of the coordinator ends it.
- Readers of committed records stop at the first offset of the earliest open transaction. To them, a
  transaction stays open until its marker is exposed.
"""

from __future__ import annotations

from typing import NamedTuple

from headworks._broker.log.recovery_point import LogPosition


class _EndedTransaction(NamedTuple):
    begin: LogPosition
    marker: int  # its offset


class PartitionTransactions:
    """The open transactions of a partition. A method costs nothing if there are none."""

    def __init__(self) -> None:
        self.open: dict[int, LogPosition] = {}  # by producer id: where it begins; earliest first
        self.staged: list[tuple[int, LogPosition]] = []  # producer ids and places, not written yet
        self._unexposed: list[_EndedTransaction] = []  # ended, and their markers not exposed yet
        self.none = True  # whether there is neither, so that most readers ask nothing else

    def begin(self, producer_id: int, at: LogPosition) -> None:
        """Note the first batch of a transaction; later batches of it change nothing."""
        self.open.setdefault(producer_id, at)
        self.none = False

    def begin_staged(self) -> None:
        """Note the batches of a write."""
        for producer_id, at in self.staged:
            self.begin(producer_id, at)
        self.staged.clear()

    def is_open(self, producer_id: int) -> bool:
        """Return whether a producer has a transaction here, written or staged."""
        return producer_id in self.open or any(one == producer_id for one, _ in self.staged)

    def has_ended(self, producer_id: int, offset: int) -> bool:
        """Return whether the producer's transaction of the batch at `offset` has ended."""
        staged = (at for one, at in self.staged if one == producer_id)
        begin = self.open.get(producer_id) or next(staged, None)
        return begin is None or begin.offset > offset

    def end(self, producer_id: int, marker: int, exposed: int) -> LogPosition | None:
        """Note the marker at the offset `marker`; return where the transaction began, if it did.

        Readers see what lies before the offset `exposed`.
        """
        begin = self.open.pop(producer_id, None)
        self._unexposed = [one for one in self._unexposed if one.marker >= exposed]
        if begin is not None and marker >= exposed:
            self._unexposed.append(_EndedTransaction(begin, marker))
        self.none = not self.open and not self._unexposed
        return begin

    def first_open(self) -> LogPosition | None:
        """Return where the earliest open transaction begins."""
        return next(iter(self.open.values()), None)

    def first_unstable(self, high_watermark: int) -> LogPosition | None:
        """Return where the earliest transaction begins that is open to readers."""
        begins = [one.begin for one in self._unexposed if one.marker >= high_watermark]
        first = self.first_open()
        if first is not None:
            begins.append(first)
        return min(begins, default=None)
