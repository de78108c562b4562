"""The compiled step from one message to the next, beside the Python form.

Two consumers get the same messages, errors, and calls. Whatever the application and the group see
must be the same after each.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka import Message as Raw

from consumer_sdk import Consumer, OnPoison, _broker_membership, _consumer, _message_step
from consumer_sdk._decode import DecodeError
from consumer_sdk._message import Partition
from consumer_sdk._outcomes import HANDLED
from headworks._audit_counting.outcomes import CONSUMED
from headworks._native import messages
from headworks._wire import prefix
from tests.tools import needs
from tests.want_of_memory import fail_each_allocation

pytestmark = [pytest.mark.unit, needs("extensions")]

HEAD = prefix(7)
_ROUNDS = 150
_CALLS = 60


def _raw(offset: int, value: bytes = b"good", partition: int = 0, topic: str = "views") -> Raw:
    return Raw(
        topic=topic, value=HEAD + value, partition=partition, offset=offset, timestamp=(1, offset)
    )


class _Client:
    """librdkafka's consumer, whose next messages a test decides."""

    def __init__(self, _properties: Any) -> None:
        self.arriving: deque[Raw] = deque()
        self.stored: list[tuple[str, int, int]] = []
        self.sought: list[tuple[str, int, int]] = []

    def subscribe(self, _topics: Any, **_callbacks: Any) -> None: ...

    def consume(self, most: int, _timeout: float) -> list[Raw]:
        return [self.arriving.popleft() for _ in range(min(most, len(self.arriving)))]

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += [(at.topic, at.partition, at.offset) for at in offsets]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append((place.topic, place.partition, place.offset))

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("views", n) for n in range(3)]

    def commit(self, **_: Any) -> None: ...
    def pause(self, _partitions: Any) -> None: ...
    def resume(self, _partitions: Any) -> None: ...
    def close(self) -> None: ...


class _NoPoll:
    def __init__(self, *_: Any) -> None: ...
    def stop(self) -> None: ...


class _Audit:
    is_ready = True

    def __init__(self, *_: Any, **__: Any) -> None:
        self.counted: list[tuple[int | None, int]] = []

    def processed(self, raw: Raw, outcome: int) -> None:
        self.counted.append((raw.offset(), outcome))
        if raw.offset() == 13:
            raise OSError("the counts are on a disk that is full")

    def close(self) -> None: ...


def _decode(value: bytes, start: int) -> Any:
    if value[start:] == b"bad":
        raise ValueError(value)
    if value[start:] == b"wrong":
        raise AttributeError("a mistake of ours")
    return value[start:]


def _consumer_of(monkeypatch: pytest.MonkeyPatch, *, compiled: bool, audit: bool) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(_broker_membership, "KafkaConsumer", _Client)
        patch.setattr(_broker_membership, "BackgroundPoll", _NoPoll)
        patch.setattr(_consumer, "AuditTier", _Audit)
        if not compiled:
            patch.setattr(_message_step, "messages", None)
        consumer: Any = Consumer(
            group="g",
            topics=["views"],
            bootstrap="127.0.0.1:9",
            registry="http://127.0.0.1:9",
            on_poison=OnPoison.SKIP,
            audit=audit,
        )
    decoders = consumer._decoders
    decoders._known.update({t: {HEAD: (_decode, 7, 3)} for t in ("views", "clicks")})

    def message(raw: Raw) -> Any:
        found = decoders._known_message(raw)
        if found is None:
            raise DecodeError("the bytes are not an event")
        return found

    decoders.message = message
    assert (consumer._compiled is not None) == compiled
    return consumer


class _Side:
    """One consumer, the calls of a test, and everything that can be seen of it."""

    def __init__(self, consumer: Any, thread: ThreadPoolExecutor) -> None:
        self.consumer, self.thread = consumer, thread
        self.group, self.client = consumer._membership, consumer._membership.client
        self.tickets: list[Any] = []
        self.called: list[str] = []

    def do(self, name: str, *given: Any) -> Any:
        try:
            return getattr(self, f"do_{name}")(*given)
        except Exception as error:
            return type(error), str(error)

    def seen(self) -> Any:
        step, audit = self.group.step, self.consumer._audit_tier
        return (
            *(dict(self.consumer.totals), self.client.stored, self.client.sought, self.called),
            *(step.asked, step.users, step.is_left),
            [None if raw is None else raw.offset() for raw in (step.last, step.current)],
            [raw.offset() for raw in self.group._fetched.messages],
            None if audit is None else audit.counted,
        )

    def do_arrive(self, raws: list[Raw]) -> None:
        self.client.arriving.extend(raws)

    def do_poll(self) -> Any:
        return self.consumer.poll(0.0)

    def do_buffered(self) -> Any:
        return self.consumer._buffered()

    def do_ready(self) -> Any:
        return [next(self.consumer._ready(), None) for _ in range(2)]

    def do_buffered_while_the_client_is_used(self) -> Any:
        entered, left = threading.Event(), threading.Event()

        def use() -> None:
            with self.group._application.in_background():
                entered.set()
                left.wait()

        using = self.thread.submit(use)
        entered.wait()
        try:
            return self.consumer._buffered()
        finally:
            left.set()
            using.result()

    def do_background(self) -> None:
        self.group.poll_in_background()

    def do_leave(self) -> None:
        self.group.leave_to_group()

    def do_call(self) -> Any:
        self.group._application.calls.append(
            (lambda: self.called.append("called"), threading.Event())
        )
        return self.consumer._buffered()

    def do_revoke(self, partition: int) -> None:
        self.group._revoked(None, [TopicPartition("views", partition)])

    def do_commit(self) -> None:
        self.consumer.commit()

    def do_skip(self) -> None:
        self.consumer.skip()

    def do_drop(self) -> None:
        self.consumer._drop_last()

    def do_put_back(self) -> None:
        if self.consumer._last is not None:  # as a poll that is cancelled
            self.group.put_back(self.consumer._last)
            self.consumer._last = None

    def do_rewind(self, partition: int, offset: int) -> None:
        self.consumer.rewind({Partition("views", partition): offset})

    def do_hand_over(self) -> None:
        if self.consumer._last is not None:
            self.tickets.append(self.consumer._hand_over())

    def do_end(self, which: int) -> None:
        if self.tickets:
            ticket = self.tickets.pop(which % len(self.tickets))
            if self.consumer._begin(ticket):
                self.consumer._end(ticket, HANDLED)

    def do_stop(self) -> Any:
        self.consumer.stop()
        return list(self.consumer._ready())

    def do_close(self) -> Any:
        self.consumer.close()
        return list(self.consumer)


_WHAT = (
    *("poll", "poll", "buffered", "buffered", "buffered", "ready", "ready", "arrive", "arrive"),
    *("background", "buffered_while_the_client_is_used", "leave", "call", "revoke", "commit"),
    *("skip", "drop", "put_back", "rewind"),
)


def _messages(draw: random.Random, next_offset: Iterator[int]) -> list[Raw]:
    raws = []
    for _ in range(draw.choice((1, 2, 12))):
        place = draw.randrange(3), draw.choice(("views", "views", "clicks"))
        value = draw.choice((b"good",) * 8 + (b"bad", b"wrong"))
        raws.append(_raw(next(next_offset), value, *place))
        if draw.randrange(12) == 0:
            raws.append(Raw(topic="views", error=KafkaError(KafkaError._PARTITION_EOF)))
    return raws


def _arguments(what: str, draw: random.Random, next_offset: Iterator[int]) -> tuple[Any, ...]:
    if what == "arrive":
        return (_messages(draw, next_offset),)
    if what == "rewind":
        return draw.randrange(3), draw.randrange(50)
    return (draw.randrange(3),) if what in ("revoke", "end") else ()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("shared", [False, True])
def test_both_forms_do_the_same(
    monkeypatch: pytest.MonkeyPatch, thread: ThreadPoolExecutor, *, shared: bool
) -> None:
    done = []
    for seed in range(_ROUNDS):
        draw, offsets = random.Random(seed), iter(range(10**6))
        audit = seed % 3 == 0
        sides = [
            _Side(_consumer_of(monkeypatch, compiled=compiled, audit=audit), thread)
            for compiled in (True, False)
        ]
        wanted = [draw.choice(_WHAT + ("hand_over", "end", "end") * shared) for _ in range(_CALLS)]
        for what in ("arrive", *wanted, "buffered", "stop", "close"):
            given = _arguments(what, draw, offsets)
            ours, python = (side.do(what, *given) for side in sides)
            assert ours == python, (seed, what)
            assert type(ours) is type(python)
            assert sides[0].seen() == sides[1].seen(), (seed, what)
            done.append((what, ours is not None))
    assert {what for what, _ in done} > set(_WHAT)
    assert done.count(("buffered", True)) > _ROUNDS


def _step(read: Callable[[Raw], Any] = lambda raw: raw) -> tuple[Any, deque[Raw], dict[int, int]]:
    fetched, ended = deque[Raw](), {CONSUMED: 0}
    step: Any = messages.CompiledStep(Raw, fetched, deque(), fetched.appendleft)
    step.connect(read, ended, CONSUMED, None)
    return step, fetched, ended


def test_the_last_message_of_each_partition_is_kept() -> None:
    step, fetched, ended = _step()
    fetched.extend(_raw(n, partition=n // 4 % 2) for n in range(16))
    assert [raw.offset() for raw in step] == list(range(16))
    assert ended == {CONSUMED: 16}
    assert [raw.offset() for raw in step.take_processed()] == [3, 7, 11, 15]
    assert step.take_processed() == []


def test_a_step_of_another_class_is_pythons() -> None:
    class Derived(Raw):
        pass

    step, fetched, _ = _step()
    fetched.append(Derived(topic="views"))
    assert step.next() is None
    assert len(fetched) == 1
    with pytest.raises((AttributeError, TypeError)):
        messages.CompiledStep(int, fetched, deque(), print)
    with pytest.raises(RuntimeError):
        messages.CompiledStep(Raw, fetched, deque(), print).next()
    del step.last, step.current, step.beside
    assert step.next() is None


def test_a_step_that_nobody_holds_is_collected() -> None:
    class Holder:
        def put_back(self, raw: Raw) -> None: ...

    holder: Any = Holder()
    holder.step = messages.CompiledStep(Raw, deque(), deque(), holder.put_back)
    holder.step.connect(holder.put_back, {}, CONSUMED, holder.put_back)
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


@pytest.mark.e2e
def test_want_of_memory() -> None:
    raws = [_raw(1), _raw(2), _raw(3, partition=1)]

    def run() -> Any:
        step, fetched, _ = _step()
        fetched.extend(raws)
        return [step.next() for _ in range(4)], step.take_processed()

    fail_each_allocation(run, least=5)


def test_nothing_is_leaked() -> None:
    def fails(raw: Raw) -> Any:
        if raw.offset() == 2:
            raise ValueError(raw)
        return raw

    raws = [_raw(1), _raw(2), _raw(3, partition=1)]

    def run() -> None:
        step, fetched, _ = _step(fails)
        fetched.extend(raws)
        step.next()
        with pytest.raises(ValueError, match="Message"):
            step.next()
        fetched.popleft()
        step.next()
        step.next()
        step.take_processed()

    run()
    gc.collect()
    before = [sys.getrefcount(raw) for raw in raws]
    for _ in range(100):
        run()
    gc.collect()
    assert [sys.getrefcount(raw) for raw in raws] == before
