"""The transaction coordinator of one broker: it stores decisions, and writes markers.

`rules` decides. A decision is stored, then answered when it is on disk. To end a transaction:

1. The decision to commit or abort is on disk. It is final.
2. Each partition gets a marker, and the marker is on disk.
3. The transaction is complete, and its offsets are committed, in one step of the store.

Rules:

- A crash repeats the steps after the last one that is on disk. A partition where no transaction of
  the producer is open needs no marker, so step 2 may be repeated.
- A batch is taken only while its transaction is ongoing and lists its partition (`check_batch`).
  So no transaction stays open that the coordinator does not know.
- An open transaction in a log that the store does not list is aborted when the log is opened.
- Steps 2 and 3 belong to no connection. A failure is retried until it succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from headworks._broker.coordination import Coordination, StoreFailureError
from headworks._broker.coordination.transaction_store import (
    IDLE,
    MAX_EPOCH,
    PREPARED,
    PendingOffset,
    ProducerTransaction,
    TransactionPartition,
    TransactionState,
    TransactionStore,
)
from headworks._broker.repeated_failure import RepeatedFailure
from headworks._broker.topics import HostedPartition, HostedTopics
from headworks._broker.transactions import rules
from headworks._broker.transactions.counters import TransactionCounters
from headworks._broker.transactions.markers import (
    end_everywhere,
    is_current,
    lists,
    write_marker,
)
from headworks._broker.transactions.rules import Asker, InitRequest, TransactionSettings
from headworks._kafka.error_codes import ErrorCode, refused
from headworks.errors import RefusedError

_log = logging.getLogger(__name__)
_ANSWER_SECONDS = 5.0  # the longest that a client waits for a transaction to complete
_RETRY_SECONDS = 1.0
_OffsetKey = tuple[str, str, int]  # group, topic, and partition


class TransactionCoordinator:
    """The transactions of a broker. `now_ms` is Unix time."""

    def __init__(
        self,
        store: TransactionStore,
        coordination: Coordination,
        hosted: HostedTopics,
        now_ms: Callable[[], int],
        settings: TransactionSettings | None = None,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.counters = TransactionCounters()
        self._store = store
        self._coordination = coordination
        self._hosted = hosted
        self._now_ms = now_ms
        self._known: dict[str, ProducerTransaction] = {}  # by transactional id, idlest first
        self._names: dict[int, str] = {}  # transactional ids, by producer id
        self._ongoing: set[str] = set()  # transactional ids
        self._pending: dict[str, dict[_OffsetKey, PendingOffset]] = {}  # by transactional id
        self._completing: dict[str, asyncio.Task[None]] = {}  # by transactional id
        self._failures = RepeatedFailure(_log, "transactions cannot be completed now")

    # -- start and stop ----------------------------------------------------------------------

    async def load(self) -> None:
        """Read the store, abort what it does not list, and complete what was decided."""
        for transaction, offsets in sorted(self._store.load(), key=lambda one: one[0].updated_ms):
            self._remember(transaction)
            for one in offsets:
                self._keep_offset(transaction.transactional_id, one)
        ids = (one.producer_id for one in self._known.values())
        await self._coordination.skip_producer_ids(max(ids, default=-1) + 1)
        for partition in self._hosted.partitions():
            self._abort_unlisted(partition)
        for transaction in tuple(self._known.values()):
            if transaction.state in PREPARED:
                self._complete_soon(transaction.transactional_id)

    async def stop(self) -> None:
        """Stop completing; the next start continues."""
        tasks = tuple(self._completing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def tick(self) -> None:
        """Abort transactions that last for too long, and forget idle ids. Call it each second."""
        now = self._now_ms()
        for known in [self._known[name] for name in self._ongoing]:
            if rules.timed_out(known, now):
                about = {"transactional_id": known.transactional_id}
                _log.info(
                    "transaction of %r is aborted: it lasted for more than %d ms",
                    known.transactional_id[: self.settings.max_name],
                    known.timeout_ms,
                    extra=about,
                )
                with contextlib.suppress(StoreFailureError):
                    self._fence(known)
        since = now - self.settings.idle_ms
        oldest = takewhile(lambda one: one.updated_ms < since, self._known.values())
        idle = [one for one in oldest if one.state in IDLE]
        with contextlib.suppress(StoreFailureError):
            self._forget(idle)
        for partition in self._hosted.partitions():
            if partition.log.producers.transactions.open:
                self._abort_unlisted(partition)

    def _abort_unlisted(self, partition: HostedPartition) -> None:
        """Abort the transactions in a log that the store does not list for it."""
        log = partition.log
        for producer_id in tuple(log.producers.transactions.open):
            known = self._known.get(self._names.get(producer_id, ""))
            state = log.producers.get(producer_id)
            if known is not None and lists(self._hosted, known, partition):
                continue
            _log.warning(
                "%s: a transaction of producer %d is open, and no transactional id has it:"
                " it is aborted",
                partition,
                producer_id,
                extra=partition.about | {"producer_id": producer_id},
            )
            epoch = 0 if state is None else state.epoch
            try:
                write_marker(partition, producer_id, epoch, self._now_ms(), commit=False)
                if known is not None and known.state not in PREPARED:
                    self._fence(known)
            except RefusedError as error:
                self._failures.failed(error, partition.about)

    # -- requests of producers ---------------------------------------------------------------

    async def initialize(self, asked: InitRequest) -> ProducerTransaction:
        """Give a transactional id its producer id and next epoch; abort its open transaction."""
        name, settings = asked.transactional_id, self.settings
        if not name or len(name) > settings.max_name:
            raise refused(ErrorCode.INVALID_REQUEST, "the transactional id is empty or too long")
        if not 0 < asked.timeout_ms <= settings.max_timeout_ms:
            raise refused(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms {asked.timeout_ms} is not in 1..{settings.max_timeout_ms}",
            )
        known = self._known.get(name)
        if known is not None and known.state is TransactionState.ONGOING:
            rules.check_init(known, asked)
            self._fence(known)
            asked = replace(asked, producer_id=-1, epoch=-1)
        await self._completed(name)
        new_id = -1
        if rules.needs_producer_id(self._known.get(name)):
            new_id = await self._coordination.allocate_producer_ids(1)
        known = self._known.get(name)
        if known is not None and known.state is TransactionState.ONGOING:
            raise refused(ErrorCode.CONCURRENT_TRANSACTIONS, "another producer was initialized")
        if known is None:
            self._make_room()
        initialized = rules.initialized(known, asked, new_id, self._now_ms())
        await self._save(initialized)
        return initialized

    async def add_partitions(
        self, asker: Asker, partitions: Iterable[TransactionPartition]
    ) -> None:
        """Let a transaction write to these partitions; it begins with the first."""
        known = await self._asking(asker)
        added = rules.with_partitions(known, partitions, self._now_ms())
        if added != known:
            self._write(added)
        await self._store.durable()

    async def add_group(self, asker: Asker, group: str) -> None:
        """Let a transaction commit offsets of a group."""
        known = await self._asking(asker)
        added = rules.with_group(known, group, self._now_ms())
        if len(added.groups) > self.settings.max_groups:
            raise refused(ErrorCode.INVALID_TXN_STATE, "the transaction has too many groups")
        if added != known:
            self._write(added)
        await self._store.durable()

    async def commit_offsets(self, asker: Asker, offsets: Iterable[PendingOffset]) -> None:
        """Take offsets that are committed with the transaction, for groups that it has."""
        known = self._checked(asker)
        offsets = list(offsets)
        if known.state is not TransactionState.ONGOING or any(
            one.group not in known.groups for one in offsets
        ):
            raise refused(
                ErrorCode.INVALID_TXN_STATE, "the transaction does not commit offsets of this group"
            )
        self._store.add_offsets(asker.transactional_id, offsets)
        for one in offsets:
            self._keep_offset(asker.transactional_id, one)
        await self._store.durable()

    async def end(self, asker: Asker, *, commit: bool) -> None:
        """Commit or abort a transaction. The decision is final when this returns."""
        known = self._checked(asker)
        prepared = rules.prepared(known, self._now_ms(), commit=commit)
        if prepared is known:
            await self._store.durable()
            return
        self._write(prepared)
        task = self._complete_soon(asker.transactional_id)
        await self._store.durable()
        await asyncio.wait([task], timeout=_ANSWER_SECONDS)

    async def abort_in(self, partition: HostedPartition, producer_id: int, epoch: int) -> None:
        """Abort what a producer has open in a partition, and with it its whole transaction.

        The producer is fenced. Nothing happens if it has nothing open there. Raises RefusedError
        if `epoch` is older than the producer's.
        """
        producers = partition.log.producers
        state = producers.get(producer_id)
        if state is None or producer_id not in producers.transactions.open:
            return
        if epoch < state.epoch:
            why = f"epoch {epoch} of producer {producer_id} ended: it is at {state.epoch}"
            raise refused(ErrorCode.INVALID_PRODUCER_EPOCH, why)
        name = self._names.get(producer_id, "")
        known = self._known.get(name)
        if known is not None and known.state is TransactionState.ONGOING:
            self._fence(known)
        await self._completed(name)
        self._abort_unlisted(partition)

    def check_batch(
        self, transactional_id: str | None, producer_id: int, epoch: int, partition: HostedPartition
    ) -> None:
        """Raise RefusedError unless an ongoing transaction may write this batch."""
        known = self._known.get(transactional_id or "")
        if known is None or known.producer_id != producer_id:
            raise refused(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"producer {producer_id} has no transactional id of this name",
            )
        if known.epoch != epoch:
            raise refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} ended: it is at {known.epoch}",
            )
        if known.state is not TransactionState.ONGOING or not lists(self._hosted, known, partition):
            raise refused(
                ErrorCode.INVALID_TXN_STATE,
                f"{partition} is not in the transaction of producer {producer_id}",
            )

    # -- questions ---------------------------------------------------------------------------

    def find(self, transactional_id: str) -> ProducerTransaction | None:
        """Return a transactional id, None if it is unknown."""
        return self._known.get(transactional_id)

    def all(self) -> Iterator[ProducerTransaction]:
        """Yield every transactional id."""
        yield from tuple(self._known.values())

    def ongoing(self) -> list[ProducerTransaction]:
        """Return the transactions that neither commit nor abort yet. Any thread may ask."""
        known = map(self._known.get, tuple(self._ongoing))
        return [one for one in known if one is not None]

    def pending(self, group: str) -> set[tuple[str, int]]:
        """Return the partitions of which a transaction has uncommitted offsets for a group."""
        return {
            (topic, index)
            for offsets in self._pending.values()
            for of_group, topic, index in offsets
            if of_group == group
        }

    # -- steps -------------------------------------------------------------------------------

    def _checked(self, asker: Asker) -> ProducerTransaction:
        known = self._known.get(asker.transactional_id)
        if known is not None:
            rules.check_owner(known, asker.principal)
        return rules.check_producer(known, asker.producer_id, asker.epoch)

    async def _asking(self, asker: Asker) -> ProducerTransaction:
        """Return the transaction of a producer, after the last one has completed."""
        self._checked(asker)
        await self._completed(asker.transactional_id)
        return self._checked(asker)

    async def _completed(self, transactional_id: str) -> None:
        """Wait until a transactional id is not completing, but not for long."""
        task = self._completing.get(transactional_id)
        if task is not None:
            await asyncio.wait([task], timeout=_ANSWER_SECONDS)

    async def _save(self, transaction: ProducerTransaction) -> None:
        self._write(transaction)
        await self._store.durable()

    def _write(self, transaction: ProducerTransaction) -> None:
        self._store.save(transaction)
        self._remember(transaction)

    def _remember(self, transaction: ProducerTransaction) -> None:
        before = self._known.pop(transaction.transactional_id, None)
        if before is not None:
            self._names.pop(before.producer_id, None)
        self._known[transaction.transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._ongoing.add(transaction.transactional_id)
        else:
            self._ongoing.discard(transaction.transactional_id)
        self._names[transaction.producer_id] = transaction.transactional_id

    def _keep_offset(self, transactional_id: str, one: PendingOffset) -> None:
        offsets = self._pending.setdefault(transactional_id, {})
        offsets[one.group, one.topic, one.partition] = one

    def _make_room(self) -> None:
        """Forget the transactional id that was idle for longest, if there are too many."""
        if len(self._known) < self.settings.max_ids:
            return
        idle = next((one for one in self._known.values() if one.state in IDLE), None)
        if idle is None:
            raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many transactions")
        self._forget([idle])

    def _forget(self, idle: list[ProducerTransaction]) -> None:
        if idle:
            self._store.remove(one.transactional_id for one in idle)
        for one in idle:
            del self._known[one.transactional_id]
            self._names.pop(one.producer_id, None)

    def _fence(self, known: ProducerTransaction) -> None:
        """Abort an ongoing transaction under a newer epoch, or end the epoch of an idle one."""
        self.counters.fenced += 1
        if known.state is TransactionState.ONGOING:
            self._write(rules.fenced(known, self._now_ms()))
            self._complete_soon(known.transactional_id)
        else:
            self._write(replace(known, epoch=min(known.epoch + 1, MAX_EPOCH), last_epoch=-1))

    def _complete_soon(self, transactional_id: str) -> asyncio.Task[None]:
        task = self._completing.get(transactional_id)
        if task is None:
            task = asyncio.create_task(self._complete(transactional_id))
            self._completing[transactional_id] = task
            task.add_done_callback(lambda _: self._completing.pop(transactional_id, None))
        return task

    async def _complete(self, transactional_id: str) -> None:
        """Carry out a decision, for as long as it takes."""
        while True:
            try:
                await self._store.durable()
                await end_everywhere(self._hosted, self._known[transactional_id], self._now_ms())
                self._finish(self._known[transactional_id])
            except (RefusedError, OSError) as error:
                self._failures.failed(error, {"transactional_id": transactional_id})
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:
                about = {"transactional_id": transactional_id}
                _log.exception("completing a transaction failed", extra=about)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._failures.recovered({"transactional_id": transactional_id})
                return

    def _finish(self, prepared: ProducerTransaction) -> None:
        name = prepared.transactional_id
        offsets = self._pending.get(name, {}).values()
        committed = [
            one
            for one in offsets
            if prepared.state is TransactionState.PREPARE_COMMIT and is_current(self._hosted, one)
        ]
        complete = rules.completed(prepared, self._now_ms())
        self._store.complete(complete, committed)
        self._remember(complete)
        self.counters.count(complete)
        self._pending.pop(name, None)
