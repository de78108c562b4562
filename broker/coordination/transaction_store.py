"""Transactions as the coordination store keeps them: one for each transactional id.

Rules:

- A transaction and its offsets are written at once, and are on disk when `durable` returns. A power
  cut keeps all writes up to some moment, and none after it.
- Offsets of a transaction are pending until `complete` commits them, together with its new state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from headworks._broker.coordination.committed_offset import CommittedOffset

NO_EPOCH = -1
MAX_EPOCH = (1 << 15) - 1


class TransactionState(StrEnum):
    """The states of a transactional id, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE = frozenset(TransactionState) - PREPARED - {TransactionState.ONGOING}


class TransactionPartition(NamedTuple):
    """A partition that a transaction writes to. A topic made again has another id."""

    topic: str
    partition: int
    topic_id: UUID


class PendingOffset(NamedTuple):
    """An offset that a transaction commits for a group."""

    group: str
    topic: str
    partition: int
    committed: CommittedOffset
    protocol_type: str  # of the group's members; empty if no member commits


@dataclass(frozen=True, slots=True)
class ProducerTransaction:
    """The transaction of a transactional id, or the last one."""

    transactional_id: str
    principal: str  # the user whose it is
    producer_id: int
    epoch: int  # of the producer: an older one is fenced
    timeout_ms: int  # since its start, after which it is aborted
    updated_ms: int  # when it last changed, Unix time
    last_epoch: int = NO_EPOCH  # of the same producer, before InitProducerId gave it this one
    state: TransactionState = TransactionState.EMPTY
    started_ms: int = -1  # when it began, Unix time; -1: it has not
    partitions: frozenset[TransactionPartition] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)  # whose offsets it commits


class TransactionStore(Protocol):
    """A durable store of transactions. The writes raise StoreFailureError."""

    def load(self) -> list[tuple[ProducerTransaction, list[PendingOffset]]]:
        """Return all transactions, with their pending offsets."""

    def save(self, transaction: ProducerTransaction) -> None:
        """Write a transaction."""

    def add_offsets(self, transactional_id: str, offsets: Iterable[PendingOffset]) -> None:
        """Write pending offsets; a later one of the same partition replaces the earlier."""

    def complete(
        self, transaction: ProducerTransaction, committed: Iterable[PendingOffset]
    ) -> None:
        """Write a transaction that has ended, commit these offsets, and forget all pending ones."""

    def remove(self, transactional_ids: Iterable[str]) -> None:
        """Forget transactional ids."""

    async def durable(self) -> None:
        """Wait until everything that was written before is on disk, or raise StoreFailureError."""


def by_group(
    offsets: Iterable[PendingOffset],
) -> Mapping[tuple[str, str], Mapping[tuple[str, int], CommittedOffset]]:
    """Return the offsets of each group and protocol type, by partition."""
    found: dict[tuple[str, str], dict[tuple[str, int], CommittedOffset]] = {}
    for one in offsets:
        of_group = found.setdefault((one.group, one.protocol_type), {})
        of_group[one.topic, one.partition] = one.committed
    return found
