"""The state machine of a transactional id: a transaction and a request give the next one.

    Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing ...
                   └────> PrepareAbort ───> CompleteAbort ───> Ongoing ...

Rules:

- Pure: nothing is stored or sent here, and `now_ms` (Unix time) is passed in.
- Only the newest epoch of a producer may act. InitProducerId gives the next epoch, and a timeout or
  a new producer of the same id fences the old one by the epoch of the marker that aborts.
- The decision to commit or abort is final: a prepared transaction can only complete.
- Errors carry the code of the protocol (KIP-98, KIP-360).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headworks._broker.coordination.transaction_store import (
    MAX_EPOCH,
    NO_EPOCH,
    PREPARED,
    ProducerTransaction,
    TransactionPartition,
    TransactionState,
)
from headworks._kafka.error_codes import ErrorCode, refused

_RESULTS = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits of transactions."""

    max_timeout_ms: int = 15 * 60 * 1000  # that a producer may ask for
    idle_ms: int = 7 * 24 * 3600 * 1000  # after which a transactional id is forgotten
    max_ids: int = 100_000  # of transactional ids
    max_name: int = 1000  # characters
    max_groups: int = 1000  # of one transaction


@dataclass(frozen=True, slots=True)
class InitRequest:
    """InitProducerId of a transactional producer; it may name the producer that it was."""

    transactional_id: str
    principal: str
    timeout_ms: int
    producer_id: int = -1
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Asker:
    """The producer that a request names, and the user who sent it."""

    transactional_id: str
    principal: str
    producer_id: int
    epoch: int


def check_owner(known: ProducerTransaction, principal: str) -> None:
    """Raise unless the transactional id belongs to this user."""
    if known.principal != principal:
        raise refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"transactional id {known.transactional_id!r} belongs to another user",
        )


def check_producer(
    known: ProducerTransaction | None, producer_id: int, epoch: int
) -> ProducerTransaction:
    """Return the transaction if its producer asks; raise if another one does, or a fenced one."""
    if known is None or known.producer_id != producer_id:
        raise refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer {producer_id} has no transactional id of this name",
        )
    if known.epoch != epoch:
        raise refused(
            ErrorCode.PRODUCER_FENCED,
            f"epoch {epoch} of transactional id {known.transactional_id!r} ended: it is at"
            f" {known.epoch}",
        )
    return known


def needs_producer_id(known: ProducerTransaction | None) -> bool:
    """Return whether InitProducerId needs a new producer id: it has none, or no epoch is left."""
    return known is None or known.epoch >= MAX_EPOCH - 1


def initialized(
    known: ProducerTransaction | None, asked: InitRequest, new_id: int, now_ms: int
) -> ProducerTransaction:
    """Return the transactional id with a new epoch; `new_id` is used if it needs a producer id.

    A known one must be idle. The retry of a request gets the answer of the first one.
    """
    if known is None:
        return ProducerTransaction(
            asked.transactional_id, asked.principal, new_id, 0, asked.timeout_ms, now_ms
        )
    check_init(known, asked)
    if asked.epoch != NO_EPOCH and asked.epoch == known.last_epoch != known.epoch:
        return known
    last = known.epoch if asked.epoch != NO_EPOCH else NO_EPOCH
    fresh = replace(
        known,
        timeout_ms=asked.timeout_ms,
        updated_ms=now_ms,
        state=TransactionState.EMPTY,
        started_ms=-1,
        partitions=frozenset(),
        groups=frozenset(),
    )
    if needs_producer_id(known):
        return replace(fresh, producer_id=new_id, epoch=0, last_epoch=NO_EPOCH)
    return replace(fresh, epoch=known.epoch + 1, last_epoch=last)


def check_init(known: ProducerTransaction, asked: InitRequest) -> None:
    """Raise if the producer that asks was fenced, or belongs to another user."""
    check_owner(known, asked.principal)
    if known.state in PREPARED:
        raise refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is completing")
    if asked.producer_id < 0:
        return
    current = asked.epoch in (known.epoch, known.last_epoch) and asked.epoch != NO_EPOCH
    if asked.producer_id != known.producer_id or not current:
        raise refused(
            ErrorCode.PRODUCER_FENCED,
            f"producer {asked.producer_id} epoch {asked.epoch} of transactional id"
            f" {known.transactional_id!r} ended",
        )


def fenced(known: ProducerTransaction, now_ms: int) -> ProducerTransaction:
    """Return an ongoing transaction as one that aborts, under an epoch that no producer has."""
    return replace(
        known,
        epoch=min(known.epoch + 1, MAX_EPOCH),
        last_epoch=NO_EPOCH,
        updated_ms=now_ms,
        state=TransactionState.PREPARE_ABORT,
    )


def with_partitions(
    known: ProducerTransaction, partitions: Iterable[TransactionPartition], now_ms: int
) -> ProducerTransaction:
    """Return the transaction with more partitions; it begins with the first."""
    begun = _begun(known, now_ms)
    return replace(begun, partitions=begun.partitions | frozenset(partitions))


def with_group(known: ProducerTransaction, group: str, now_ms: int) -> ProducerTransaction:
    """Return the transaction with one more group, whose offsets it commits."""
    begun = _begun(known, now_ms)
    return replace(begun, groups=begun.groups | {group})


def _begun(known: ProducerTransaction, now_ms: int) -> ProducerTransaction:
    if known.state in PREPARED:
        raise refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is completing")
    if known.state is TransactionState.ONGOING:
        return known
    return replace(
        known,
        state=TransactionState.ONGOING,
        started_ms=now_ms,
        updated_ms=now_ms,
        partitions=frozenset(),
        groups=frozenset(),
    )


def prepared(known: ProducerTransaction, now_ms: int, *, commit: bool) -> ProducerTransaction:
    """Return the transaction with the decision; itself if it has completed with this one."""
    preparing, complete = _RESULTS[commit]
    if known.state is TransactionState.ONGOING:
        return replace(known, state=preparing, updated_ms=now_ms)
    if known.state is complete:
        return known
    if known.state is preparing:
        raise refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is completing")
    raise refused(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction cannot {'commit' if commit else 'abort'}: it is {known.state.value}",
    )


def completed(known: ProducerTransaction, now_ms: int) -> ProducerTransaction:
    """Return a prepared transaction whose markers are all on disk."""
    commit = known.state is TransactionState.PREPARE_COMMIT
    return replace(
        known,
        state=_RESULTS[commit][1],
        updated_ms=now_ms,
        started_ms=-1,
        partitions=frozenset(),
        groups=frozenset(),
    )


def timed_out(known: ProducerTransaction, now_ms: int) -> bool:
    """Return whether a transaction has lasted for too long."""
    ongoing = known.state is TransactionState.ONGOING
    return ongoing and now_ms - known.started_ms > known.timeout_ms
