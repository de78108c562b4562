"""The transaction coordinator: its rules against a model, and a crash after any of its steps."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks import _system_calls
from headworks._broker.coordination import CommittedOffset, LocalCoordination
from headworks._broker.coordination.transaction_store import (
    MAX_EPOCH,
    PREPARED,
    PendingOffset,
    ProducerTransaction,
    TransactionPartition,
    TransactionState,
)
from headworks._broker.topics import Flusher, HostedPartition, HostedTopics, TopicChanges
from headworks._broker.transactions import (
    Asker,
    InitRequest,
    TransactionCoordinator,
    TransactionSettings,
    markers,
    rules,
)
from headworks._broker.transactions.counters import TransactionCounters
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.records import check_batch, encode_batch
from headworks._kafka.records.batch import TRANSACTIONAL
from headworks._kafka.records.record import Record
from headworks.errors import RefusedError
from tests.broker.clients import DEADLINE
from tests.broker.test_log_transactions import read_committed

pytestmark = pytest.mark.unit

OWNER = "ANONYMOUS"
MINUTE_MS = 60_000


# -- the rules ----------------------------------------------------------------------------------


@dataclass
class Model:
    """A client's knowledge: the newest epoch, whether a transaction is open, the last result."""

    epoch: int = -1
    open: bool = False
    preparing: bool | None = None  # the decision
    last: bool | None = None  # the result of the last transaction

    def may_begin(self, epoch: int) -> bool:
        return epoch == self.epoch and self.preparing is None


_acts = st.one_of(
    st.just(("init",)),
    st.tuples(st.just("write"), st.integers(0, 2)),
    st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
    st.just(("complete",)),
    st.just(("timeout",)),
)


@given(st.lists(_acts, max_size=40))
def test_the_rules_agree_with_a_model(acts: list[tuple[Any, ...]]) -> None:
    """`behind` is how many epochs the producer that acts is behind: 0 is the newest."""
    known: ProducerTransaction | None = None
    model = Model()
    for act, *rest in acts:
        before, asked = known, InitRequest("tx", OWNER, MINUTE_MS)
        if act == "init":
            if known is not None and known.state is TransactionState.ONGOING:
                continue  # the coordinator fences it first
            if model.preparing is not None:
                with pytest.raises(RefusedError):
                    rules.initialized(known, asked, 7, 0)
                continue
            known = rules.initialized(known, asked, 7, 0)
            model.epoch, model.last = model.epoch + 1, None
        elif known is None:
            continue
        elif act == "write":
            epoch = model.epoch - rest[0]
            with contextlib.suppress(RefusedError):
                found = rules.check_producer(known, 7, epoch)
                known = rules.with_group(found, "g", 0)
            if model.may_begin(epoch):
                model.open = True
            else:
                assert known is before
        elif act == "end":
            epoch, commit = model.epoch - rest[0], rest[1]
            with contextlib.suppress(RefusedError):
                known = rules.prepared(rules.check_producer(known, 7, epoch), 0, commit=commit)
                assert epoch == model.epoch
                assert model.open or model.last is commit
            if model.open and epoch == model.epoch:
                model.open, model.preparing = False, commit
        elif act == "complete" and model.preparing is not None:
            known = rules.completed(known, 0)
            model.last, model.preparing = model.preparing, None
        elif act == "timeout" and model.open:
            assert rules.timed_out(known, MINUTE_MS + 1)
            known = rules.fenced(known, 0)
            model.open, model.preparing, model.epoch = False, False, model.epoch + 1
        assert known.epoch == model.epoch
        assert (known.state is TransactionState.ONGOING) == model.open
        assert (known.state in PREPARED) == (model.preparing is not None)
        assert not rules.timed_out(known, MINUTE_MS)


def test_a_producer_that_has_no_epoch_left_gets_another_id() -> None:
    asked = InitRequest("tx", OWNER, MINUTE_MS)
    last = ProducerTransaction("tx", OWNER, 7, MAX_EPOCH - 2, MINUTE_MS, 0)
    assert not rules.needs_producer_id(last)
    known = rules.initialized(last, asked, -1, 0)
    assert (known.producer_id, known.epoch) == (7, MAX_EPOCH - 1)
    assert rules.fenced(known, 0).epoch == MAX_EPOCH, "an epoch is left to fence the last one"
    assert rules.needs_producer_id(known)
    known = rules.initialized(known, asked, 8, 0)
    assert (known.producer_id, known.epoch) == (8, 0)


def test_a_repeated_init_gets_the_answer_of_the_first() -> None:
    known = rules.initialized(None, InitRequest("tx", OWNER, MINUTE_MS), 7, 0)
    bump = InitRequest("tx", OWNER, MINUTE_MS, 7, 0)
    first = rules.initialized(known, bump, -1, 0)
    assert first.epoch == 1
    assert rules.initialized(first, bump, -1, 0) is first
    other = rules.initialized(first, InitRequest("tx", OWNER, MINUTE_MS), -1, 0)
    with pytest.raises(RefusedError) as caught:
        rules.initialized(other, bump, -1, 0)
    assert caught.value.code == ErrorCode.PRODUCER_FENCED, "another producer has come since"
    with pytest.raises(RefusedError) as caught:
        rules.initialized(known, InitRequest("tx", "somebody", MINUTE_MS), -1, 0)
    assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# -- with a store and logs ----------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Ends the process before the step with this number; steps are writes and waits."""

    def __init__(self, left: int | None = None) -> None:
        self.left = left
        self.taken = 0

    @property
    def dead(self) -> bool:
        return self.left is not None and self.taken > self.left

    def take(self) -> None:
        self.taken += 1
        if self.dead:
            raise Crash


class CountedStore:
    """The store of a coordinator, every call of which is a step."""

    def __init__(self, store: Any, steps: Steps) -> None:
        self._store, self._steps = store, steps

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = getattr(self._store, name)

        def call(*given: Any) -> Any:
            if name != "load":
                self._steps.take()
            return found(*given)

        return call


@dataclass
class Broker:
    """The parts of a broker that transactions need."""

    coordination: LocalCoordination
    changes: TopicChanges
    hosted: HostedTopics
    transactions: TransactionCoordinator
    clock: list[int]
    sequences: dict[tuple[int, int, str], int] = field(default_factory=dict)

    def partition(self, topic: str, index: int = 0) -> HostedPartition:
        found = self.hosted.partition(topic, index)
        assert found is not None
        return found

    def place(self, topic: str, index: int = 0) -> TransactionPartition:
        return TransactionPartition(topic, index, self.hosted.topics[topic].topic_id)

    async def initialize(self, name: str = "tx", timeout_ms: int = MINUTE_MS) -> Asker:
        found = await self.transactions.initialize(InitRequest(name, OWNER, timeout_ms))
        return Asker(name, OWNER, found.producer_id, found.epoch)

    def write(self, asker: Asker, topic: str, key: bytes) -> None:
        partition = self.partition(topic)
        name, epoch = asker.producer_id, asker.epoch
        self.transactions.check_batch(asker.transactional_id, name, epoch, partition)
        sequence = self.sequences.get((name, epoch, topic), 0)
        self.sequences[name, epoch, topic] = sequence + 1
        data = bytearray(
            encode_batch(
                [Record(0, 1, key, b"v", ())],
                producer=(name, epoch, sequence),
                attributes=TRANSACTIONAL,
            )
        )
        partition.stage(memoryview(data), check_batch(data))
        partition.commit(urgent=True)

    async def committed(self, topic: str) -> list[bytes | None]:
        partition = self.partition(topic)
        await partition.wait_until_exposed()
        return [key for _, key in read_committed(partition.log)]

    async def settle(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while self.transactions._completing:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(
    folder: Path, steps: Steps | None = None, limits: TransactionSettings | None = None
) -> AsyncIterator[Broker]:
    loop = asyncio.get_running_loop()
    folder.mkdir(exist_ok=True)
    coordination = LocalCoordination(folder / "coordination.sqlite")
    flusher = Flusher(loop)
    hosted = HostedTopics(folder / "logs", flusher, {}, scrub_mb_per_second=0)
    changes = TopicChanges(hosted, coordination)
    clock = [1_000_000]
    try:
        await changes.load()
        store: Any = coordination.transactions
        counted: Any = CountedStore(store, steps or Steps())
        transactions = TransactionCoordinator(
            counted, coordination, hosted, lambda: clock[0], limits
        )
        await transactions.load()
        yield Broker(coordination, changes, hosted, transactions, clock)
        await transactions.stop()
    finally:
        flusher.stop()
        hosted.compactor.stop()
        for partition in hosted.partitions():
            partition.stop("over")
            partition.log.abandon()
        await coordination.close()


TOPICS = ("a", "b", "c")


async def run_transactions(broker: Broker, told: dict[bytes, bool | None]) -> None:
    """Commit, abort, commit; `told` says of each what the client knows."""
    asker = await broker.initialize()
    for number, commit in enumerate((True, False, True)):
        key = b"%d" % number
        told[key] = None
        await broker.transactions.add_partitions(asker, [broker.place("a"), broker.place("b")])
        broker.write(asker, "a", key)
        await broker.transactions.add_partitions(asker, [broker.place("c")])
        for topic in ("b", "c", "a"):
            broker.write(asker, topic, key)
        await broker.transactions.add_group(asker, "g")
        offset = CommittedOffset(number, topic_id=broker.place("a").topic_id)
        await broker.transactions.commit_offsets(
            asker, [PendingOffset("g", "a", 0, offset, "consumer")]
        )
        await broker.transactions.end(asker, commit=commit)
        told[key] = commit


async def check_recovered(broker: Broker, told: dict[bytes, bool | None]) -> None:
    """Nothing is half there, and what the client was told is so."""
    await broker.settle()
    seen = {topic: await broker.committed(topic) for topic in TOPICS}
    for key, commit in told.items():
        counts = [seen["a"].count(key) / 2, seen["b"].count(key), seen["c"].count(key)]
        assert counts in ([0, 0, 0], [1, 1, 1]), f"{key!r} is half there"
        if commit is not None:
            assert counts[0] == commit
    expected = [int(key) for key in told if key in seen["b"]]
    offsets = await broker.coordination.offsets("g")
    found = [at.offset for at in offsets.values()]
    assert found == expected[-1:], "offsets are committed with the records"


def test_a_crash_before_any_step_leaves_all_of_a_transaction_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = markers.write_marker

    async def create(folder: Path) -> None:
        async with serving(folder) as broker:
            for topic in TOPICS:
                await broker.changes.create(topic, 1, {})

    async def crash(folder: Path, left: int) -> bool:
        told: dict[bytes, bool | None] = {}
        steps = Steps(left)

        def counted(*given: Any, **named: Any) -> None:
            steps.take()
            write(*given, **named)

        monkeypatch.setattr(markers, "write_marker", counted)
        try:
            async with serving(folder, steps) as broker:
                await run_transactions(broker, told)
        except (Crash, RefusedError):
            assert steps.dead
        monkeypatch.undo()
        async with serving(folder) as broker:
            await check_recovered(broker, told)
            asker = await broker.initialize()
            await broker.settle()
            for topic in TOPICS:
                log = broker.partition(topic).log
                assert log.last_stable_offset == log.high_watermark
            told[b"9"] = None
            await broker.transactions.add_partitions(asker, map(broker.place, TOPICS))
            for topic in ("a", *TOPICS):
                broker.write(asker, topic, b"9")
            await broker.transactions.end(asker, commit=True)
            told[b"9"] = True
            seen = await broker.committed("c")
            assert seen[-1] == b"9"
        return not steps.dead

    left = 0
    while True:
        folder = tmp_path / f"{left}"
        asyncio.run(create(folder))
        if asyncio.run(crash(folder, left)):
            break
        left += 1 if os.environ.get("HEADWORKS_TEST_EVERY_STEP") else 5
    assert left > 20, "there are so many steps"


def test_a_transaction_that_lasts_for_too_long_is_aborted_and_its_producer_fenced(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with serving(tmp_path) as broker:
            await broker.changes.create("a", 1, {})
            asker = await broker.initialize(timeout_ms=1000)
            await broker.transactions.add_partitions(asker, [broker.place("a")])
            broker.write(asker, "a", b"late")
            broker.clock[0] += 1000
            broker.transactions.tick()
            broker.write(asker, "a", b"in time")
            broker.clock[0] += 1
            broker.transactions.tick()
            with pytest.raises(RefusedError) as caught:
                broker.write(asker, "a", b"too late")
            assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(RefusedError) as caught:
                await broker.transactions.end(asker, commit=True)
            assert caught.value.code == ErrorCode.PRODUCER_FENCED
            await broker.settle()
            assert await broker.committed("a") == []
            assert broker.partition("a").log.last_stable_offset == 3

    asyncio.run(run())


def test_an_administrator_aborts_a_whole_transaction(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as broker:
            coordinator = broker.transactions
            for topic in ("a", "b"):
                await broker.changes.create(topic, 1, {})
            asker = await broker.initialize()
            await coordinator.add_partitions(asker, [broker.place("a"), broker.place("b")])
            for topic in ("a", "b"):
                broker.write(asker, topic, b"open")
            assert [one.transactional_id for one in coordinator.ongoing()] == ["tx"]
            await coordinator.abort_in(broker.partition("a"), asker.producer_id + 1, asker.epoch)
            with pytest.raises(RefusedError) as caught:
                await coordinator.abort_in(broker.partition("a"), asker.producer_id, -1)
            assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert coordinator.ongoing(), "neither of the two has a transaction there"
            await coordinator.abort_in(broker.partition("a"), asker.producer_id, asker.epoch)
            for topic in ("a", "b"):
                assert await broker.committed(topic) == []
                assert broker.partition(topic).log.last_stable_offset == 2
            with pytest.raises(RefusedError) as caught:
                await coordinator.end(asker, commit=True)
            assert caught.value.code == ErrorCode.PRODUCER_FENCED
            asker = await broker.initialize()
            await coordinator.add_partitions(asker, [broker.place("a")])
            await coordinator.end(asker, commit=True)
            assert coordinator.counters == TransactionCounters(committed=1, aborted=1, fenced=1)
            assert coordinator.ongoing() == []

    asyncio.run(run())


def test_a_batch_is_taken_only_in_an_ongoing_transaction_that_has_its_partition(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with serving(tmp_path) as broker:
            await broker.changes.create("a", 1, {})
            await broker.changes.create("b", 1, {})
            asker = await broker.initialize()
            for topic, prepare in (("a", False), ("b", True), ("a", True)):
                if prepare:
                    await broker.transactions.add_partitions(asker, [broker.place("a")])
                if (topic, prepare) == ("a", True):
                    broker.write(asker, "a", b"1")
                    await broker.transactions.end(asker, commit=True)
                with pytest.raises(RefusedError) as caught:
                    broker.write(asker, topic, b"2")
                assert caught.value.code == ErrorCode.INVALID_TXN_STATE
            with pytest.raises(RefusedError) as caught:
                broker.transactions.check_batch("other", 0, 0, broker.partition("a"))
            assert caught.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    asyncio.run(run())


def test_a_topic_that_is_deleted_or_made_again_leaves_its_transaction(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as broker:
            for topic in ("a", "gone", "again"):
                await broker.changes.create(topic, 1, {})
            asker = await broker.initialize()
            places = [broker.place(topic) for topic in ("a", "gone", "again")]
            await broker.transactions.add_partitions(asker, places)
            await broker.transactions.add_group(asker, "g")
            for place in places:
                broker.write(asker, place.topic, b"k")
            old = [
                PendingOffset("g", place.topic, 0, CommittedOffset(7, topic_id=place.topic_id), "")
                for place in places
            ]
            await broker.transactions.commit_offsets(asker, old)
            await broker.changes.delete("gone")
            await broker.changes.delete("again")
            await broker.changes.create("again", 1, {})
            with pytest.raises(RefusedError):
                broker.write(asker, "again", b"of the old topic")
            await broker.transactions.end(asker, commit=True)
            assert await broker.committed("a") == [b"k"]
            assert broker.partition("again").log.log_end_offset == 0
            assert list(await broker.coordination.offsets("g")) == [("a", 0)]

    asyncio.run(run())


def test_an_open_transaction_that_the_store_does_not_have_is_aborted(tmp_path: Path) -> None:
    """As after the store was restored from an old copy: the producer must not go on."""

    async def run() -> None:
        async with serving(tmp_path) as broker:
            await broker.changes.create("a", 1, {})
            await broker.changes.create("b", 1, {})
            known = await broker.initialize()
            gone = await broker.initialize("gone")
            await broker.transactions.add_partitions(known, [broker.place("a"), broker.place("b")])
            await broker.transactions.add_partitions(gone, [broker.place("a")])
            for asker, topic in ((known, "a"), (known, "b"), (gone, "a")):
                broker.write(asker, topic, b"k")
            store = broker.coordination.transactions
            found = broker.transactions.find("tx")
            assert found is not None
            store.save(replace(found, partitions=frozenset([broker.place("b")])))
            store.remove(["gone"])
        async with serving(tmp_path) as broker:
            await broker.settle()
            for topic in ("a", "b"):
                assert await broker.committed(topic) == []
                log = broker.partition(topic).log
                assert log.last_stable_offset == log.high_watermark
            with pytest.raises(RefusedError) as caught:
                await broker.transactions.end(known, commit=True)
            assert caught.value.code == ErrorCode.PRODUCER_FENCED

    asyncio.run(run())


def test_the_number_of_transactional_ids_is_bounded_and_idle_ones_expire(tmp_path: Path) -> None:
    limits = TransactionSettings(max_ids=3, idle_ms=1000)

    async def run() -> None:
        async with serving(tmp_path, limits=limits) as broker:
            await broker.changes.create("a", 1, {})
            open_one = await broker.initialize("open")
            await broker.transactions.add_partitions(open_one, [broker.place("a")])
            for name in ("1", "2", "3", "4"):
                await broker.initialize(name)
            assert {one.transactional_id for one in broker.transactions.all()} == {"open", "3", "4"}
            broker.clock[0] += 1001
            broker.transactions.tick()
            assert {one.transactional_id for one in broker.transactions.all()} == {"open"}
            for wrong in ("", "x" * 1001):
                with pytest.raises(RefusedError):
                    await broker.initialize(wrong)
            for timeout in (0, limits.max_timeout_ms + 1):
                with pytest.raises(RefusedError) as caught:
                    await broker.initialize("5", timeout)
                assert caught.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        async with serving(tmp_path, limits=limits) as broker:
            assert {one.transactional_id for one in broker.transactions.all()} == {"open"}

    asyncio.run(run())


def test_one_sync_of_the_store_serves_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with serving(tmp_path) as broker:
            await broker.changes.create("a", 1, {})
            askers = [await broker.initialize(f"tx{number}") for number in range(50)]
            syncs, sync = list[int](), _system_calls.sync_data

            def counted(fd: int) -> None:
                syncs.append(fd)
                sync(fd)

            monkeypatch.setattr(_system_calls, "sync_data", counted)
            place = broker.place("a")
            await asyncio.gather(
                *(broker.transactions.add_partitions(asker, [place]) for asker in askers)
            )
            assert 1 <= len(syncs) <= 3

    asyncio.run(run())
