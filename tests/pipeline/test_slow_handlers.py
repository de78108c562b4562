"""A handler that takes its time: its member stays in the group, and a rebalance does not wait."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from consumer_sdk import Consumer, Message, Partition
from consumer_sdk._fetch_buffer import FetchBuffer, FetchLimits
from headworks._server.child_process import Service
from headworks.errors import UsageError
from tests.consumer_sdk.zookeeper_group.cluster import fill
from tests.soak import slow_handlers
from tests.waiting import until, within_some_time

pytestmark = pytest.mark.e2e

Dicts = Consumer[dict[str, Any]]
Make = Callable[..., Dicts]
CONFIG = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 2000}
STAYS = {**CONFIG, "session.timeout.ms": 30_000, "max.poll.interval.ms": 60_000}
INTERVALS = (2.0, 10.0, 50.0)  # seconds; the next one if the machine stands still for longer


def impatient(interval: float) -> dict[str, Any]:
    """The properties of a member that may be silent for so many seconds."""
    most = int(interval * 1000)
    return {**CONFIG, "session.timeout.ms": most, "max.poll.interval.ms": most}


@pytest.fixture
def member(request: pytest.FixtureRequest, broker: Service, registry: Service) -> Make:
    """Makes members of this test's group, whose topic has 120 messages in two partitions."""
    name = request.function.__name__.removeprefix("test_")
    slow_handlers.create(broker.address, name, 2)
    fill(broker.address, registry.url, name, range(120), 2)

    def make(**options: Any) -> Dicts:
        options = {"config": CONFIG, "commit_every": 0.2, "group": name, **options}
        options = {"bootstrap": broker.address, "registry": registry.url, **options}
        return Consumer(topics=[name], **options)

    return make


def following(consumer: Dicts) -> Message[dict[str, Any]]:
    found = until(lambda: consumer.poll(0.5))
    assert found is not None
    return found


def evictions(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [r.getMessage() for r in caplog.records if r.name == "headworks.consumer"]
    return [line for line in lines if "max.poll.interval.ms" in line]


def test_quick_messages_of_a_long_backlog_evict_nobody(
    member: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def check(interval: float) -> None:
        caplog.clear()
        began = time.monotonic()
        found: list[int] = []
        with member(config=impatient(interval), group=f"backlog-{interval}") as consumer:
            while len(found) < 120:  # more than max.poll.interval.ms, of one fetch
                found.append(following(consumer).event["number"])
                time.sleep(interval / 50)
            assert consumer.poll(0.1) is None
        assert time.monotonic() - began > 2 * interval
        assert sorted(found) == list(range(120))
        assert evictions(caplog) == []

    within_some_time(check, *INTERVALS)


def test_a_rebalance_does_not_wait_for_a_handler(member: Make) -> None:
    with member(config=STAYS) as slow:
        at_hand = following(slow)  # ... and is handled from here on
        joining = member(config=STAYS)
        other = following(joining)
        partitions = {at.partition for at in joining.assignment}
        assert len(partitions) == 1, "the group has shared its partitions"
        later = [following(slow).partition for _ in range(20)]
        assert partitions.isdisjoint(later), "a message of the other member was given out"
        assert (other.partition, other.offset) in {
            (at_hand.partition, at_hand.offset),  # was in hand, and is repeated
            (1 - at_hand.partition, 0),
        }
        joining.close()


def test_a_stuck_handler_loses_its_partitions_and_reads_on_later(
    member: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with member() as stuck:
        first = following(stuck)
        with member() as other:
            # It joins at once, and gets everything when the stuck member is given up.
            until(lambda: other.poll(0.2) and len(other.assignment) == 2)
        again = following(stuck)
        assert again.offset >= first.offset
    assert evictions(caplog) != []


def test_callbacks_run_in_the_thread_of_the_application(member: Make) -> None:
    seen: list[tuple[str, threading.Thread]] = []

    def gained(_: list[Partition]) -> None:
        seen.append(("gained", threading.current_thread()))

    def lost(_: list[Partition]) -> None:
        seen.append(("lost", threading.current_thread()))

    with member(config=STAYS, on_assigned=gained, on_revoked=lost) as slow:
        following(slow)
        joining = member(config=STAYS)
        time.sleep(1)  # it joins meanwhile
        assert [what for what, _ in seen] == ["gained"], "no callback beside the handler"
        until(lambda: (slow.poll(0.1), len(seen) >= 3)[1])
        joining.close()
    assert [what for what, _ in seen][:3] == ["gained", "lost", "gained"]
    assert {thread for _, thread in seen} == {threading.current_thread()}


def test_asyncio_hands_over_as_well(member: Make, caplog: pytest.LogCaptureFixture) -> None:
    def check(interval: float) -> None:
        caplog.clear()

        async def handle() -> int:
            count = 0
            async for _ in consumer:
                count += 1
                await asyncio.sleep(interval / 20)
                if count == 30:
                    break
            return count

        with member(config=impatient(interval), group=f"asyncio-{interval}") as consumer:
            assert asyncio.run(handle()) == 30
        assert evictions(caplog) == []

    within_some_time(check, *INTERVALS)


def test_members_that_come_and_go(
    broker: Service,
    registry: Service,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.WARNING, "headworks.consumer")

    def check(slower: float) -> None:
        """Run a campaign that is as many times slower, and whose members may be silent as long."""
        session, interval = int(3000 * slower), 6.0 * slower
        config = {**slow_handlers._CONFIG, "session.timeout.ms": session}
        monkeypatch.setattr(slow_handlers, "_CONFIG", config)
        monkeypatch.setattr(slow_handlers, "_INTERVAL_SECONDS", interval)
        monkeypatch.setattr(slow_handlers, "_TOPIC", f"slow-{slower:g}")
        times = {"seconds": 5.0 * slower, "slowest": 0.5 * slower}
        report = slow_handlers.work(broker.address, registry.url, seed=7, **times)
        if report.wrong and not any(map(is_of_standing_still, report.wrong)):
            pytest.fail(str(report))
        assert report.wrong == (), str(report)

    within_some_time(check, 1.0, 4.0, 10.0)


def is_of_standing_still(line: str) -> bool:
    """Whether a line may come from a machine that stands still: a slower campaign has none."""
    return any(each in line for each in ("removed this member", "max.poll.interval.ms", "answer"))


def test_a_limit_must_be_a_number(member: Make) -> None:
    with pytest.raises(UsageError, match="max_poll_records is 0"):
        member(max_poll_records=0)


class _Source:
    """librdkafka's consumer with messages of these sizes."""

    def __init__(self, *sizes: int) -> None:
        self._left = [b"x" * size for size in sizes]

    def consume(self, most: int, timeout: float) -> list[bytes]:
        found, self._left = self._left[:most], self._left[most:]
        return found


@pytest.mark.parametrize(
    ("limits", "sizes", "held"),
    [
        (FetchLimits(messages=100), [1] * 500, 100),
        (FetchLimits(messages=1), [1] * 500, 1),
        (FetchLimits(bytes=1000), [1000] * 500, 1),
        (FetchLimits(bytes=1000), [200] * 500, 9),  # 1 and then a step of 8
        (FetchLimits(), [1] * 7, 7),
    ],
)
def test_the_buffer_is_bounded(limits: FetchLimits, sizes: list[int], held: int) -> None:
    buffer, source = FetchBuffer(limits), _Source(*sizes)
    buffer.fill(source, 0.0)  # type: ignore[arg-type]
    assert len(buffer.messages) == held
    assert buffer.is_full == (held < len(sizes))


def test_a_buffer_that_lies_long_is_full() -> None:
    buffer = FetchBuffer(FetchLimits(seconds=0.01))
    buffer.fill(_Source(1), 0.0)  # type: ignore[arg-type]
    until(lambda: buffer.is_full, 5)
