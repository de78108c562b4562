"""The SDKs as a strict type checker sees them, and their doubles as what they double."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Message, Partition
from consumer_sdk._offsets import SeekTarget
from consumer_sdk.testing import ReplayingConsumer
from headworks.errors import UsageError
from producer_sdk import Producer
from producer_sdk.operations._event import LogLine
from producer_sdk.testing import RecordingProducer

pytestmark = pytest.mark.unit

PROGRAM = """
from consumer_sdk import Consumer, Consumers, Deleted, Message
from consumer_sdk.testing import ReplayingConsumer
from producer_sdk import Producer
from producer_sdk.operations._event import LogLine, MetricSample
from producer_sdk.testing import RecordingProducer

def place(producer: Producer) -> None: ...
def bill(consumer: Consumer[LogLine]) -> None: ...

place(RecordingProducer())
bill(ReplayingConsumer(list[LogLine]()))
reveal_type(Consumer(topics=["a"], group="g"))
reveal_type(Consumer([LogLine], group="g"))
reveal_type(Consumer[LogLine | MetricSample]([LogLine, MetricSample], group="g"))
reveal_type(Consumer([LogLine], group="g", tombstones=True))

@Consumers(group="g").on(Deleted[LogLine])
def forget(message: Message[Deleted[LogLine]]) -> None:
    reveal_type(message.event.event_class)

async def work(producer: Producer, consumer: Consumer[LogLine], line: LogLine) -> None:
    async with producer, consumer:
        await producer.asend_and_wait(line, 5)
        await producer.aflush(5)
        await consumer.acommit()

def wrong(producer: Producer) -> None:
    producer.send({"a": 1})
    producer.send(None)
    Consumer([LogLine], group="g", strat="latest")
"""
REVEALED = [
    "Consumer[dict[str, Any]]",
    "Consumer[LogLine]",
    "Consumer[LogLine | MetricSample]",
    "Consumer[LogLine | Deleted[LogLine]]",
    "type[LogLine]",
]


@pytest.mark.contract
def test_a_type_checker_knows_events_and_doubles(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir"]
    done = subprocess.run(
        [*command, str(tmp_path / "cache"), "--hide-error-context", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    plain = done.stdout.replace("builtins.", "").replace("typing.", "")
    plain = re.sub(r"\b(consumer_sdk|producer_sdk)\.[\w.]*\.", "", plain)
    notes = [line for line in plain.splitlines() if "Revealed" in line]
    assert [line.split('"')[1] for line in notes] == REVEALED, done.stdout
    errors = [line for line in plain.splitlines() if "error:" in line]
    lines = [line.removeprefix(f"{program}:").partition(":")[0] for line in errors]
    assert lines == ["29", "30", "31", "31"], done.stdout
    assert 'has incompatible type "dict[str, int]"; expected "Event"' in errors[0]


@pytest.mark.parametrize(
    ("double", "real"), [(RecordingProducer, Producer), (ReplayingConsumer, Consumer)]
)
def test_a_double_leaves_nothing_to_what_it_doubles(double: type, real: type) -> None:
    inherited = {"stop", "stop_on_signals", "acommit", "aclose", "skipped", "skipped_damaged"}
    public = {name for name in vars(real) if not name.startswith("_")} - inherited
    assert public <= set(vars(double))
    for name in public:
        if inspect.isfunction(getattr(real, name)):
            ours, theirs = (inspect.signature(getattr(cls, name)) for cls in (double, real))
            assert list(ours.parameters) == list(theirs.parameters), name


def line(text: str) -> LogLine:
    return LogLine(
        at=datetime(2026, 5, 1, tzinfo=UTC),
        application="shop",
        host="h",
        logger="l",
        level="INFO",
        process=1,
        thread="main",
        message=text,
    )


def test_a_replaying_consumer_processes_as_a_real_one() -> None:
    with ReplayingConsumer([line("a"), line("b"), line("c")]) as consumer:
        seen = []
        for message in consumer:
            seen.append((message.offset, message.event.message))
            if message.event.message == "b":
                consumer.reject("no b")
        assert seen == [(0, "a"), (1, "b"), (2, "c")]
        assert [m.event.message for m in consumer.processed] == ["a", "c"]
    assert [m.event.message for m in consumer.processed] == ["a", "c"]
    assert [(m.event.message, why) for m, why in consumer.rejected] == [("b", "no b")]
    assert consumer.skipped == 1


def test_a_loop_without_a_with_block_processes_its_last_message() -> None:
    consumer = ReplayingConsumer([line("a")])
    assert [message.event.message for message in consumer] == ["a"]
    assert len(consumer.processed) == 1

    async def read(consumer: ReplayingConsumer[LogLine]) -> list[str]:
        return [message.event.message async for message in consumer]

    consumer = ReplayingConsumer([line("a"), line("b")])
    assert asyncio.run(read(consumer)) == ["a", "b"]
    assert len(consumer.processed) == 2


def test_a_loop_that_is_stopped_processes_its_last_message_at_the_close() -> None:
    with ReplayingConsumer([line("a"), line("b")]) as consumer:
        for _ in consumer:
            consumer.stop()
        assert consumer.processed == []
    assert [m.event.message for m in consumer.processed] == ["a"]


def test_a_message_whose_handler_raised_is_not_processed() -> None:
    consumer = ReplayingConsumer([line("a")])

    def handle() -> None:
        with consumer:
            for _ in consumer:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        handle()
    assert consumer.processed == []


def test_a_replaying_consumer_rewinds_and_commits() -> None:
    consumer = ReplayingConsumer([line("a"), line("b")])
    assert consumer.poll(0) is not None
    consumer.commit()
    assert (len(consumer.processed), consumer.commits) == (1, 1)
    at = consumer.assignment[0]
    april = datetime(2026, 4, 1, tzinfo=UTC)
    targets: list[tuple[SeekTarget, str]] = [("earliest", "a"), ({at: 1}, "b"), (april, "a")]
    for target, text in targets:
        consumer.rewind(target)
        found = consumer.poll(0)
        assert found is not None
        assert found.event.message == text
    consumer.rewind("latest")
    assert consumer.poll(0) is None
    with pytest.raises(UsageError):
        consumer.reject("nothing")
    assert consumer.streams(1) == [consumer]


def places(messages: list[Message[str]]) -> list[tuple[int, int]]:
    return [(m.partition, m.offset) for m in messages]


def of_two_partitions() -> ReplayingConsumer[str]:
    places = [(0, 0), (1, 0), (0, 1), (1, 1)]
    return ReplayingConsumer(
        messages=[Message("text", "t", p, o, 0, None, (), 1, 1) for p, o in places]
    )


def test_a_rewind_processes_the_last_message_of_another_partition() -> None:
    with of_two_partitions() as consumer:
        assert [consumer.poll(0) for _ in range(4)][-1] is not None
        consumer.rewind({Partition("t", 0): 1})
        assert places(consumer.processed) == [(0, 0), (1, 0), (0, 1), (1, 1)]
        assert places([*consumer]) == [(0, 1)]
    with of_two_partitions() as consumer:
        assert [consumer.poll(0) for _ in range(4)][-1] is not None
        consumer.rewind({Partition("t", 1): 1})
        assert places(consumer.processed) == [(0, 0), (1, 0), (0, 1)]
        assert places([*consumer]) == [(1, 1)]


def test_a_paused_partition_does_not_hold_back_another() -> None:
    consumer = of_two_partitions()
    consumer.pause([Partition("t", 0)])
    found = [message for _ in range(3) if (message := consumer.poll(0)) is not None]
    assert places(found) == [(1, 0), (1, 1)]
    assert not consumer._ended
    consumer.resume([Partition("t", 0)])
    assert places([*consumer]) == [(0, 0), (0, 1)]


def test_whole_messages_are_replayed_as_they_are() -> None:
    message = Message("text", "t", 3, 7, 0, None, (), 1, 1)

    async def read() -> list[Message[str]]:
        async with ReplayingConsumer(messages=[message]) as consumer:
            return [each async for each in consumer]

    assert asyncio.run(read()) == [message]
    assert ReplayingConsumer(messages=[message]).assignment == [Partition("t", 3)]


def test_a_recording_producer_awaits_and_deletes() -> None:
    async def send() -> RecordingProducer:
        async with RecordingProducer() as producer:
            assert await producer.asend_and_wait(line("a"), 1) == (0, 0)
            assert await producer.aflush(1) == 0
            producer.delete(LogLine, "ada")
        return producer

    producer = asyncio.run(send())
    assert producer.deleted == [(LogLine, b"ada")]
    assert (producer.totals.attempted, producer.totals.delivered) == (2, 2)
    with pytest.raises(UsageError, match="closed"):
        producer.send(line("b"))
