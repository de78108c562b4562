"""Where a consumer reads: topics by pattern, from a time on, again, and what it leaves behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from prometheus_client import CollectorRegistry, generate_latest

from consumer_sdk import Consumer, OnPoison, Partition
from consumer_sdk.prometheus import ConsumerCollector
from consumer_sdk.testing import ReplayingConsumer
from headworks._audit.reader import read_ledger
from headworks._audit_counting import publishing
from headworks._audit_counting.outcomes import CONSUMED
from headworks._server.child_process import Service
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from headworks.registry_client._schema_ids import EventSchemaIds
from producer_sdk import Producer
from tests.pipeline.conftest import V1_FIELDS, Topic, schema_text
from tests.pipeline.test_consumer import AT, FAST, consumer, poison, read, read_until
from tests.relay import Relay
from tests.waiting import until

pytestmark = pytest.mark.e2e

Make = Callable[..., Producer]


def send(producer: Make, topic: Topic, *counts: int, user: str = "same") -> None:
    """Events whose time is as many minutes after AT as they count."""
    with producer() as running:
        for n in counts:
            at = AT + timedelta(minutes=n)
            running.send(topic.v1.Click(user=user, at=at, count=n))


def counts(messages: list[Any]) -> list[int]:
    return [m.event.count for m in messages]


def test_a_group_begins_at_a_time_and_goes_on_where_it_was(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    send(producer, topic, *range(6))
    since = AT + timedelta(minutes=2, seconds=30)
    with consumer(topic, broker, registry, start=since) as reading:
        assert counts(read(reading, 2)) == [3, 4]
    with consumer(topic, broker, registry, start=AT) as again:  # committed: the start means nothing
        assert counts(read(again, 1)) == [5]
    later = {"group": "later", "start": AT + timedelta(hours=1)}
    with consumer(topic, broker, registry, **later) as reading:  # after all there is: at the end
        while not reading.assignment:
            assert reading.poll(0.2) is None
        send(producer, topic, 7)
        assert counts(read(reading, 1)) == [7]


def test_a_group_that_began_at_the_end_skips_nothing_that_comes_after(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    send(producer, topic, 1)
    with consumer(topic, broker, registry, start="latest") as reading:
        until(lambda: reading.poll(0.2) is None and reading.assignment)
    send(producer, topic, 2)  # nobody reads, and the group has read nothing yet
    with consumer(topic, broker, registry, start="latest") as again:
        assert counts(read(again, 1)) == [2]


def test_a_time_must_have_a_zone(topic: Topic, broker: Service, registry: Service) -> None:
    with pytest.raises(UsageError, match="no time zone"):
        consumer(topic, broker, registry, start=AT.replace(tzinfo=None))


def test_rewinding_by_time_end_and_offset(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    send(producer, topic, *range(5))
    with consumer(topic, broker, registry) as reading:
        with pytest.raises(UsageError, match="no partition"):
            reading.rewind("earliest")
        assert counts(read(reading, 4)) == [0, 1, 2, 3]
        reading.rewind(AT + timedelta(minutes=2))
        assert counts(read(reading, 2)) == [2, 3]
        reading.rewind("earliest")
        (first,) = read(reading, 1)
        assert first.event.count == 0
        reading.rewind({Partition(topic.name, first.partition): 4})
        assert counts(read(reading, 1)) == [4]
        with pytest.raises(UsageError, match="not assigned"):
            reading.rewind({Partition(topic.name, 99): 4})
        reading.rewind("earliest")
    # The group was left at the beginning, though it had read everything before.
    with consumer(topic, broker, registry) as again:
        assert counts(read(again, 1)) == [0]
        again.rewind("latest")
        assert again.poll(1.0) is None


def test_what_was_processed_before_a_rewind_does_not_undo_it(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    send(producer, topic, *range(3))
    with consumer(topic, broker, registry) as reading:
        assert counts(read(reading, 2)) == [0, 1]  # one of them is processed, and not stored yet
        reading.rewind("earliest")
    with consumer(topic, broker, registry) as again:
        assert counts(read(again, 1)) == [0]


def create(broker: Service, topic: Topic) -> None:
    """Create the topic with four partitions: Apache Kafka by itself creates one."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic.name, 4, 1)])[topic.name].result(60)


def test_a_rewind_of_one_partition_leaves_what_was_read_of_another(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    create(broker, topic)
    for user in "abcdefgh":
        send(producer, topic, 0, user=user)
    with consumer(topic, broker, registry) as reading:
        found = read(reading, 8)
        other = next(m.partition for m in found if m.partition != found[-1].partition)
        reading.rewind({Partition(topic.name, other): 0})
    with consumer(topic, broker, registry) as again:
        rest = [m for m in found if m.partition == other]
        assert [m.offset for m in read(again, len(rest))] == [m.offset for m in rest]
        assert again.poll(1.0) is None


def offsets(messages: Iterable[Any]) -> dict[int, list[int]]:
    """The offsets of messages by partition, because partitions have no order."""
    found: dict[int, list[int]] = {}
    for message in messages:
        found.setdefault(message.partition, []).append(message.offset)
    return found


def test_the_double_rewinds_as_a_consumer_does(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    create(broker, topic)
    for n, user in enumerate("abcdefgh"):
        send(producer, topic, n, n + 10, user=user)
    with consumer(topic, broker, registry) as reading:
        messages = read(reading, 16)
        double = ReplayingConsumer(messages=messages)
        expected = list(iter(lambda: double.poll(1.0), None))
        assert offsets(expected) == {p.partition: [*range(n)] for p, n in ends(messages).items()}
        one, other = sorted(ends(messages))[:2]
        for target in ({one: 1}, AT + timedelta(minutes=13), {other: 2, one: 0}, "earliest"):
            reading.rewind(target)
            double.rewind(target)
            expected = list(iter(lambda: double.poll(1.0), None))
            assert expected
            assert offsets(read(reading, len(expected))) == offsets(expected)
            assert reading.poll(1.0) is None
        for each in (reading, double):
            each.rewind("earliest")
            each.poll(10.0)
            each.rewind("latest")
            assert each.poll(0.5) is None
            with pytest.raises(UsageError, match="not assigned"):
                each.rewind({Partition(topic.name, 99): 4})
            with pytest.raises(UsageError, match="no time zone"):
                each.rewind(AT.replace(tzinfo=None))


def ends(messages: list[Any]) -> dict[Partition, int]:
    places = [Partition(m.topic, m.partition) for m in messages]
    return {place: places.count(place) for place in places}


def test_topics_by_pattern_also_those_that_come_later(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    client = RegistryClient(registry.url)
    names = [f"{topic.name}.{kind}" for kind in ("red", "green", "secret", "blue")]
    for name in names:
        client.register(f"{name}-value", schema_text(name, V1_FIELDS))
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.address})

    def put(name: str) -> None:
        schema = client.latest(f"{name}-value")
        assert schema is not None
        event = b"\x02u" + b"\x00" + b"\x02"
        plain.produce(name, b"\x00" + schema.id.to_bytes(4, "big") + event)
        assert plain.flush(60) == 0

    for name in names[:3]:
        put(name)
    seen: set[str] = set()
    config = {**FAST, "topic.metadata.refresh.interval.ms": 500}
    pattern = {"matching": rf"{topic.name}\..*", "excluding": r".*\.secret"}
    with consumer(topic, broker, registry, events=(), config=config, **pattern) as reading:
        seen |= {m.topic for m in read(reading, 2)}
        assert seen == {names[0], names[1]}
        put(names[3])
        assert [m.topic for m in read(reading, 1)] == [names[3]]


def test_the_version_a_message_was_written_in(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        running.send(topic.v1.Click(user="same", at=AT, count=1))
        running.send(topic.v2.Click(user="same", at=AT, count=2))
    with consumer(topic, broker, registry) as reading:
        assert [m.schema_version for m in read(reading, 2)] == [1, 2]


def test_partitions_that_come_and_go_are_told(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    send(producer, topic, 1)
    told: list[tuple[str, int]] = []
    with consumer(
        topic,
        broker,
        registry,
        on_assigned=lambda found: told.append(("assigned", len(found))),
        on_revoked=lambda gone: told.append(("revoked", len(gone))),
    ) as reading:
        read(reading, 1)
        mine = len(reading.assignment)
        assert told == [("assigned", mine)]
    assert told == [("assigned", mine), ("revoked", mine)]


def dead_letters(name: str, broker: Service, count: int) -> list[confluent_kafka.Message]:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    client.subscribe([name])
    found: list[confluent_kafka.Message] = []

    def come() -> bool:
        found.extend(m for m in client.consume(10, 0.5) if m.error() is None)
        return len(found) >= count

    try:
        until(come, 120)
    finally:
        client.close()
    assert len(found) == count
    return found


def test_poison_goes_to_the_dead_letter_topic_as_it_was(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    poison(topic, broker)
    send(producer, topic, 1, user="good")
    with consumer(topic, broker, registry, on_poison=OnPoison.DEAD_LETTER) as reading:
        messages = read_until(reading, lambda found: bool(found) and reading.skipped == 2)
    found = [message.event.user for message in messages]
    assert (found, reading.skipped) == (["good"], 2)
    letters = dead_letters(f"{topic.name}.dead-letter", broker, 2)
    assert sorted(m.value() or b"" for m in letters) == [b"\x00\x00\x00\x00\x01\xff", b"not framed"]
    headers = dict(letters[0].headers() or [])
    assert headers["headworks.dead-letter.topic"] == topic.name.encode()
    assert headers["headworks.dead-letter.group"] == f"g-{topic.name}".encode()
    assert headers["headworks.dead-letter.partition"] == b"0"
    assert headers["headworks.dead-letter.reason"]


def test_the_application_rejects_what_it_cannot_digest(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        for n in range(3):
            event = topic.v1.Click(user="same", at=AT, count=n)
            running.send(event, headers={"trace": b"t"})
    letters = f"{topic.name}-refused"
    with consumer(topic, broker, registry, dead_letter_topic=letters) as reading:
        with pytest.raises(UsageError, match="no message to reject"):
            reading.reject("nothing yet")
        read(reading, 2)
        reading.reject("count 1 is odd")
        with pytest.raises(UsageError, match="no message to reject"):
            reading.reject("twice")
    with consumer(topic, broker, registry) as again:
        assert counts(read(again, 1)) == [2]
    (letter,) = dead_letters(letters, broker, 1)
    headers = dict(letter.headers() or [])
    assert headers["trace"] == b"t"
    assert headers["headworks.dead-letter.reason"] == b"count 1 is odd"
    assert letter.key() == b"same"


def test_a_dead_letter_that_the_broker_refuses_is_not_left_behind(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    poison(topic, broker)
    options = {"on_poison": OnPoison.DEAD_LETTER, "dead_letter_topic": "no/such/name"}
    with consumer(topic, broker, registry, **options) as reading:
        with pytest.raises(UnreachableError, match="could not be written to no/such/name"):
            read(reading, 1)
        assert reading.skipped == 0
        with pytest.raises(UnreachableError):  # it comes again
            read(reading, 1)


def test_asyncio_goes_on_while_a_consumer_waits(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    send(producer, topic, *range(20))

    async def main() -> list[int]:
        found = []
        with consumer(topic, broker, registry) as reading:
            async for message in reading:
                found.append(message.event.count)
                if len(found) == 20:
                    assert await reading.apoll(0.5) is None
                    break
            waiting = asyncio.create_task(reading.apoll(120))
            for _ in range(30):
                await asyncio.sleep(0.01)
                assert not waiting.done()
            await asyncio.to_thread(send, producer, topic, 20)
            last = await waiting
            assert last is not None
            found.append(last.event.count)
        return found

    assert asyncio.run(main()) == list(range(21))


def test_a_group_counts_itself_into_the_audit(
    producer: Make, topic: Topic, broker: Service, registry: Service, tmp_path: Path
) -> None:
    send(producer, topic, *range(10), user="good")
    poison(topic, broker)
    options = {"audit": True, "on_poison": OnPoison.SKIP, "state_dir": tmp_path / "consumer"}
    with consumer(topic, broker, registry, **options) as reading:
        found = 0
        while found < 10 or reading.skipped < 2:
            found += reading.poll(5.0) is not None
        page = CollectorRegistry()
        page.register(ConsumerCollector(reading, application="test"))
    text = generate_latest(page).decode()
    assert 'headworks_consumer_messages_total{application="test",outcome="consumed"} 10.0' in text
    assert 'headworks_consumer_messages_total{application="test",outcome="skipped"} 2.0' in text
    ledger = read_ledger(broker.address, registry.url)
    rows = ledger.balances(f"consumer:g-{topic.name}", topic.name)
    timed = [row for row in rows if row.delivered]
    assert sum(row.accounted for row in rows) == 12
    assert all(row.complete and row.delivered == row.accounted for row in timed)
    assert list((tmp_path / "consumer" / f"g-{topic.name}").glob("*.counts")) == []


def test_counts_that_are_on_their_way_when_it_closes_are_waited_for(
    topic: Topic, broker: Service, registry: Service, tmp_path: Path
) -> None:
    with Relay(broker.address) as cable:
        cable.cut()
        counts = publishing.AuditPublisher(
            {"bootstrap.servers": cable.address},
            EventSchemaIds(registry.url, tmp_path),
            tmp_path / "counts",
            tier=f"consumer:{topic.name}",
            application="test",
            every=3600,
        )
        counts.counters.count(topic.name, 0, 10, CONSUMED)
        assert counts._report() == 2  # counts and a heartbeat, as its thread does now and then
        closing = threading.Thread(target=counts.close)
        closing.start()
        closing.join(1)
        cable.mend()
        closing.join()
    assert list((tmp_path / "counts").iterdir()) == []
    (row,) = read_ledger(broker.address, registry.url).balances(
        f"consumer:{topic.name}", topic.name
    )
    assert row.accounted == 1


def test_counts_of_a_killed_consumer_are_published_by_the_next(
    producer: Make, topic: Topic, broker: Service, registry: Service, tmp_path: Path
) -> None:
    send(producer, topic, *range(5))
    program = f"""
import os, signal
from pathlib import Path
from consumer_sdk import Consumer
reading = Consumer(
    topics=["{topic.name}"], group="killed-{topic.name}", bootstrap="{broker.address}",
    registry="{registry.url}", audit=True, state_dir=Path("{tmp_path}") / "c", audit_every=3600,
    config={{"session.timeout.ms": 10_000}},  # so long the group waits for it when it is dead
)
for n, message in enumerate(reading):
    if n == 3:
        reading.commit()
        os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    group = f"killed-{topic.name}"
    options = {"group": group, "audit": True, "state_dir": tmp_path / "c", "events": ()}
    with consumer(topic, broker, registry, topics=[topic.name], **options) as reading:
        assert counts_of_dicts(read(reading, 1)) == [4]
    rows = read_ledger(broker.address, registry.url).balances(f"consumer:{group}", topic.name)
    assert sum(row.accounted for row in rows) == 5


def counts_of_dicts(messages: list[Any]) -> list[int]:
    return [m.event["count"] for m in messages]


def test_a_signal_ends_the_iteration_and_commits(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    send(producer, topic, *range(3))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        with consumer(topic, broker, registry) as reading:
            reading.stop_on_signals()
            found = []
            timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGTERM,))
            for message in reading:
                found.append(message.event.count)
                if len(found) == 3:
                    timer.start()
        timer.join()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert found == [0, 1, 2]
    with consumer(topic, broker, registry) as again:
        assert again.poll(2.0) is None


def test_two_selections_of_topics_are_refused(topic: Topic) -> None:
    with pytest.raises(UsageError, match="either"):
        Consumer[Any](group="g", topics=["a"], matching="b")
