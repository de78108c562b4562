"""Members whose handlers take their time, while members join and leave their group.

Rules:

- Every choice comes from the seed. A member leaves by `close`; none is killed.
- No member is evicted. One that handles a message at a time takes less than its
  `max.poll.interval.ms` for each, though what is fetched takes longer. One that handles several at
  once takes up to ten times as long for one.
- Afterwards every message was handled. A member reads each partition in order from where the last
  commit stands, so only a message that was in hand when its partition went away is handled twice.
- Half of the members handle several messages at once. What they finished behind a message in hand
  may also be repeated: each repeated message is behind one that was in hand when its partition was
  revoked. The revocations are noted, because the next owner may take long to reach the message.
- A message is in hand from when the consumer gave it out. On a busy machine, the thread that is to
  handle it may not have begun when one behind it has ended.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumer_sdk import Consumer, Consumers, Message, OnPoison, Partition
from consumer_sdk._retry import handler_of
from consumer_sdk._untyped_events import RecordDict
from headworks._server import child_process
from tests.consumer_sdk.zookeeper_group.cluster import fill
from tests.waiting import until

_TOPIC = "slow"
_PARTITIONS = 6
_INTERVAL_SECONDS = 6.0  # `max.poll.interval.ms`; longer where one message takes longer
_QUICKEST_SECONDS = 0.01
_CONCURRENCY = 4
_EDGE_SECONDS = 0.1  # in which an ending call and a revocation may pass each other
_CONFIG = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 300}


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    messages: int
    handled: int
    twice: int
    longest: float  # seconds, of one message
    joins: int
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        done = f"{self.messages} messages, {self.handled} handled, {self.twice} of them twice"
        members = f"{self.joins} joins in {self.seconds:.0f} s"
        longest = f"the longest message took {self.longest:.1f} s"
        return "\n".join([f"{done}; {members}; {longest}", *self.wrong[:20]])


@dataclass(slots=True)
class Handled:
    """A message that a member was given, in monotonic seconds; its handler may never begin."""

    partition: int
    offset: int
    given: float
    began: float = math.inf
    ended: float = math.inf


@dataclass
class Member:
    """One member of the group, in a thread of its own, and the messages that it handled."""

    bootstrap: str
    registry: str
    slowest: float  # seconds that a message takes at most
    random: Random
    concurrency: int
    # The offsets of each partition, in runs: one from each assignment on.
    runs: dict[int, list[list[int]]] = field(default_factory=dict)
    times: list[Handled] = field(default_factory=list)
    # The messages that no handler has begun, by partition and offset.
    waiting: dict[tuple[int, int], Handled] = field(default_factory=dict)
    # The end of each revocation in monotonic seconds, by partition.
    revoked: dict[int, list[float]] = field(default_factory=dict)
    leaving: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.app = Consumers(group="slow")
        # Its events are dicts, which have no handlers in the public interface.
        handler = handler_of(self._handle, None, OnPoison.STOP, concurrency=self.concurrency)
        self.app._register(RecordDict, handler)
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def leave(self) -> None:
        """Leave the group after the current messages."""
        self.leaving.set()
        self.app.stop()

    def _work(self) -> None:
        try:
            consumer = Consumer[dict[str, Any]](
                topics=[_TOPIC],
                group="slow",
                bootstrap=self.bootstrap,
                registry=self.registry,
                config={**_CONFIG, "max.poll.interval.ms": int(self._interval * 1000)},
                commit_every=0.5,
            )
            self._note_revocations(consumer)
            self._note_hand_overs(consumer)
            if self.concurrency > 1:
                self.app.run(consumer)
                return
            with consumer:
                while not self.leaving.is_set():
                    message = consumer.poll(0.2)
                    if message is not None:
                        self._handle(message)
        except BaseException as error:
            self.error = error

    def _note_revocations(self, consumer: Consumer[dict[str, Any]]) -> None:
        """Note revocations in the thread that serves them; `on_revoked` would delay them."""
        membership: Any = consumer._membership
        take_back = membership._handed_out.take_back

        def noted(gone: set[Partition], *is_busy: Any, is_closing: bool) -> None:
            take_back(gone, *is_busy, is_closing=is_closing)
            for partition in gone:
                self.revoked.setdefault(partition.partition, []).append(time.monotonic())

        membership._handed_out.take_back = noted

    def _note_hand_overs(self, consumer: Consumer[dict[str, Any]]) -> None:
        """Note the messages that a member of several at once gives to its handler."""
        membership: Any = consumer._membership
        hand_over = membership.hand_over

        def noted(raw: confluent_kafka.Message) -> None:
            if membership.step.current is raw:  # else its partition was revoked
                self._give(raw.partition() or 0, raw.offset() or 0)
            hand_over(raw)

        membership.hand_over = noted

    def _give(self, partition: int, offset: int) -> None:
        now = Handled(partition, offset, time.monotonic())
        self.times.append(now)
        self.waiting[partition, offset] = now

    @property
    def _interval(self) -> float:
        """The seconds after which a member of this kind that does not poll is evicted."""
        alone = self.concurrency == 1
        return max(_INTERVAL_SECONDS, 1.5 * self.slowest if alone else 0.1 * self.slowest)

    def _handle(self, message: Message[dict[str, Any]]) -> None:
        if self.concurrency == 1:
            self._give(message.partition, message.offset)
        now = self.waiting.pop((message.partition, message.offset))
        now.began = time.monotonic()
        runs = self.runs.setdefault(message.partition, [])
        if self.concurrency > 1 or not runs or runs[-1][-1] + 1 != message.offset:
            runs.append([message.offset])
        else:
            runs[-1].append(message.offset)
        # As many take 10 to 20 ms as take 30 to 60 s.
        share = self.slowest / _QUICKEST_SECONDS
        time.sleep(_QUICKEST_SECONDS * share ** self.random.random())
        now.ended = time.monotonic()


class Warnings(logging.Handler):
    """Collects the warnings of consumers: an eviction is one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of `headworks.consumer`."""
    handler, log = Warnings(), logging.getLogger("headworks.consumer")
    log.addHandler(handler)
    try:
        yield handler.lines
    finally:
        log.removeHandler(handler)


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def campaign(folder: Path, seconds: float, seed: int, slowest: float) -> Report:
    """Run a group on servers of its own for about so long."""
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(folder / "broker")]
    store = f"sqlite:///{folder}/registry.db"
    with (
        child_process.start(["broker", "start", *arguments]) as broker,
        child_process.start(
            ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
        ) as registry,
    ):
        return work(broker.address, registry.url, seconds, seed, slowest=slowest)


def work(bootstrap: str, registry: str, seconds: float, seed: int, *, slowest: float) -> Report:
    """Handle messages in members that come and go, and judge what they did."""
    random, began = Random(seed), time.monotonic()
    mean = (slowest - _QUICKEST_SECONDS) / math.log(slowest / _QUICKEST_SECONDS)
    count = int(seconds / mean * 3)  # three members need about so long
    create(bootstrap, _TOPIC, _PARTITIONS)
    fill(bootstrap, registry, _TOPIC, range(count), _PARTITIONS)

    def member() -> Member:
        concurrency = random.choice([1, _CONCURRENCY])
        return Member(bootstrap, registry, slowest, Random(random.random()), concurrency)

    with collected_warnings() as warnings:
        members, gone = [member()], []
        while time.monotonic() - began < seconds:
            time.sleep(random.uniform(0.5, min(5.0, seconds / 4)))
            if len(members) > 1 and random.random() < 0.4:
                leaving = members.pop(random.randrange(len(members)))
                leaving.leave()
                gone.append(leaving)
            elif len(members) < 5:
                members.append(member())
        patience = 120 + seconds + 2 * slowest
        until(lambda: _handled(members + gone) >= count or _failed(members + gone), patience)
        for each in members + gone:
            each.leave()
            each.thread.join(60 + slowest)
            assert not each.thread.is_alive(), "a member leaves after its messages"
    return _judge(members + gone, count, warnings, time.monotonic() - began, slowest)


def _handled(members: list[Member]) -> int:
    return len(_offsets(members))


def _failed(members: list[Member]) -> bool:
    return any(each.error is not None for each in members)


def _offsets(members: list[Member]) -> Counter[tuple[int, int]]:
    return Counter(
        (partition, offset)
        for each in members
        for partition, runs in list(each.runs.items())
        for run in list(runs)
        for offset in list(run)
    )


def _judge(
    members: list[Member], count: int, warnings: list[str], seconds: float, slowest: float
) -> Report:
    wrong = [*warnings, *(repr(each.error) for each in members if each.error is not None)]
    seen = _offsets(members)
    per_partition = Counter(number % _PARTITIONS for number in range(count))
    expected = {(p, offset) for p, size in per_partition.items() for offset in range(size)}
    wrong += [f"partition {p} offset {at} was skipped" for p, at in sorted(expected - set(seen))]
    twice = sum(times > 1 for times in seen.values())
    calls = [call for each in members for call in each.times]
    wrong += [line for each in members for line in _repeated_without_reason(each, calls)]
    longest = max((call.ended - call.began for call in calls if call.ended < math.inf), default=0)
    return Report(count, sum(seen.values()), twice, longest, len(members), seconds, tuple(wrong))


def _repeated_without_reason(member: Member, calls: list[Handled]) -> list[str]:
    """Return the messages of a member that were repeated though it could have committed them.

    It could, if everything of its partition up to the message had ended when that was revoked.
    """
    begins: dict[tuple[int, int], float] = {}  # of the last call
    for call in calls:
        if call.began < math.inf:
            place = call.partition, call.offset
            begins[place] = max(call.began, begins.get(place, 0.0))
    revoked_at = [(call, _end_of(call, member)) for call in member.times]
    wrong = []
    for call, end in revoked_at:
        if call.ended > end or end == math.inf or begins[call.partition, call.offset] < end:
            continue
        in_hand = (
            before.partition == call.partition
            and before.offset <= call.offset
            and its_end == end < before.ended + _EDGE_SECONDS
            for before, its_end in revoked_at
        )
        if not any(in_hand):
            wrong.append(
                f"partition {call.partition} offset {call.offset} was repeated, and nothing before"
                " it was in hand"
            )
    return wrong


def _end_of(call: Handled, member: Member) -> float:
    """Return when the partition of a message was revoked after the member was given it."""
    revoked = member.revoked.get(call.partition, ())
    return next((end for end in revoked if end > call.given), math.inf)
