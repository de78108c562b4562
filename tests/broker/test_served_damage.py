"""A batch that is damaged on disk, and was served before the scrubber read it.

Its first reader may suffer. The broker checks what a reader got that leaves, or loses its place, so
that the next one gets an error. A broker that verifies fetches serves no such batch at all.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from tests.broker.test_durability import headworks
from tests.broker.wire import Wire, fetch, fetched
from tests.damage import PATIENCE, batches, flip_bit, produce_batches, segment
from tests.soak.process import Broker
from tests.tools import needs
from tests.waiting import until

# kafka-python reads its schemas in a way that Python deprecates
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.our_broker("files of our own"),
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

GOOD, DAMAGED, OUT_OF_RANGE = 0, int(ErrorCode.CORRUPT_MESSAGE), int(ErrorCode.OFFSET_OUT_OF_RANGE)
# Zeros make librdkafka abort: it takes them for the headers of messages in an old format.
VALUES = [b"\0" * 200 + b"%03d" % number for number in range(50)]
READER = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "check.crcs": True})
consumer.assign([TopicPartition(sys.argv[2], 0, 0)])
message = consumer.poll(60)  # the first one comes as late as the machine is slow
for _ in range(40):
    if message is not None:
        print(message.error().name() if message.error() else message.offset(), flush=True)
    message = consumer.poll(0.5)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Its segments are never sealed, so that no pass of its scrubber reads them."""
    started = Broker(tmp_path_factory.mktemp("broker"), "--default-partitions", "1")
    started.start()
    yield started
    started.stop()


def damage(broker: Broker, topic: str, *, batch: int = 2, values: list[bytes] = VALUES) -> Path:
    """Write ten messages a batch, and flip a bit in one of the batches."""
    produce_batches(broker.address, topic, values)
    path = segment(broker.folder, topic)
    flip_bit(path, batches(path)[batch])
    return path


def at(wire: Wire, topic: str, offset: int, max_bytes: int = 1 << 20) -> tuple[int, bytes]:
    wire.send(ApiKey.FETCH, 11, fetch(topic, 0, offset, max_bytes=max_bytes))
    error, _, found = fetched(wire.receive()[1])
    return error, found


def leave(broker: Broker, topic: str) -> None:
    with Wire(broker.address) as wire:
        assert at(wire, topic, 10)[0] == GOOD


def fetch_past_it_first(broker: Broker, topic: str) -> None:
    """As clients do that fetch on while the application has the damaged batch."""
    with Wire(broker.address) as wire:
        assert at(wire, topic, 10)[0] == GOOD
        assert at(wire, topic, 50) == (GOOD, b"")


def lose_its_place(broker: Broker, topic: str) -> None:
    with Wire(broker.address) as wire:
        assert at(wire, topic, 10)[0] == GOOD
        assert at(wire, topic, 1 << 60)[0] == OUT_OF_RANGE
        until(lambda: at(wire, topic, 20)[0] == DAMAGED)


@pytest.mark.parametrize("harmed", [leave, fetch_past_it_first, lose_its_place])
def test_the_next_reader_gets_an_error(
    broker: Broker, harmed: Callable[[Broker, str], None]
) -> None:
    topic = harmed.__name__
    path = damage(broker, topic)
    position = batches(path)[2].position
    harmed(broker, topic)
    until(lambda: f"{path}: damaged at byte {position}: CRC32C is" in broker.words())
    with Wire(broker.address) as wire:
        assert at(wire, topic, 0) == (GOOD, path.read_bytes()[:position])
        assert at(wire, topic, 20)[0] == at(wire, topic, 29)[0] == DAMAGED
        assert at(wire, topic, 30)[0] == GOOD


def test_readers_of_whole_batches_leave_nothing_behind(broker: Broker) -> None:
    produce_batches(broker.address, "whole", VALUES)
    leave(broker, "whole")
    damage(broker, "after-whole")
    leave(broker, "after-whole")
    until(lambda: "after-whole-0: " in broker.words())
    assert "/whole-0/" not in broker.words()


def test_librdkafka_is_harmed_once(broker: Broker) -> None:
    damage(broker, "once")

    def read() -> tuple[int, list[str]]:
        command = [sys.executable, "-c", READER, broker.address, "once"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return ran.returncode, ran.stdout.split()

    code, seen = read()
    assert code < 0, (
        "if librdkafka no longer aborts, docs/decisions/damaged-batches.md is out of date"
    )
    until(lambda: "/once-0/00000000000000000000.log: damaged at byte" in broker.words())
    code, seen = read()
    assert code == 0
    assert seen[:20] == [str(number) for number in range(20)]
    assert set(seen[20:]) == {"INVALID_MSG"}


@pytest.fixture(scope="module")
def verifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It checks what it serves, and never scrubs."""
    options = "--verify-fetches", "--scrub-mb-per-second", "0", "--default-partitions", "1"
    started = Broker(tmp_path_factory.mktemp("verifying"), *options)
    started.start()
    yield started
    started.stop()


@pytest.mark.parametrize("size", [20, 30_000], ids=["small", "larger than a read"])
def test_a_broker_that_verifies_serves_no_damage_at_all(verifying: Broker, size: int) -> None:
    topic = f"verified-{size}"
    path = damage(verifying, topic, values=[b"%03d" % n + bytes(size) for n in range(50)])
    data, places = path.read_bytes(), batches(path)
    with Wire(verifying.address) as wire:
        assert at(wire, topic, 0) == (GOOD, data[: places[2].position])
        assert at(wire, topic, 20)[0] == at(wire, topic, 25)[0] == DAMAGED
        assert at(wire, topic, 30) == (GOOD, data[places[3].position :])
        # A client's limit may end a reply within a batch.
        assert at(wire, topic, 30, places[3].size + 100)[1].startswith(
            data[places[3].position :][:100]
        )
    assert verifying.words().count(f"{path}: damaged at byte") == 1


def test_it_serves_no_damage_that_is_beyond_what_it_notes(verifying: Broker) -> None:
    path = damage(verifying, "many", values=[b"%04d" % n for n in range(1100)])
    for one in batches(path)[:109]:
        flip_bit(path, one, at=70)
    with Wire(verifying.address) as wire:
        assert {at(wire, "many", offset)[0] for offset in range(0, 1090, 10)} == {DAMAGED}
        assert at(wire, "many", 1090)[0] == GOOD


@pytest.fixture(scope="module")
def known(verifying: Broker) -> str:
    """A topic whose offsets 20 to 29 get an error."""
    damage(verifying, "known")
    return "known"


def confluent(address: str, topic: str, offset: int, count: int) -> tuple[list[int], str]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
    found: list[int] = []
    while True:
        message = consumer.poll(PATIENCE)
        assert message is not None
        problem = message.error()
        if problem is None:
            found.append(int(message.offset() or 0))
        if problem is not None or len(found) == count:
            consumer.close()
            return found, problem.name() if problem else ""


def python(address: str, topic: str, offset: int, count: int) -> tuple[list[int], str]:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import CorruptRecordError

    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, offset)
    found: list[int] = []
    try:
        while len(found) < count:
            found += [one.offset for many in consumer.poll(500).values() for one in many]
    except CorruptRecordError as error:
        return found, type(error).__name__
    finally:
        consumer.close()
    return found, ""


@pytest.mark.parametrize(
    ("client", "told"), [(confluent, "INVALID_MSG"), (python, "CorruptRecordError")]
)
def test_a_client_is_told_and_goes_on_behind_it(
    verifying: Broker,
    known: str,
    client: Callable[[str, str, int, int], tuple[list[int], str]],
    told: str,
) -> None:
    read = partial(client, verifying.address, known)
    assert read(0, 50) == (list(range(20)), told)
    assert read(20, 50) == ([], told)
    assert read(30, 20) == (list(range(30, 50)), "")


def test_aiokafka_waits_in_front_of_it(
    verifying: Broker, known: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def read() -> list[int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=verifying.address, enable_auto_commit=False)
        place = AioPartition(known, 0)
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, 0)
            found = [(await consumer.getone()).offset for _ in range(20)]
            next_one = asyncio.create_task(consumer.getone())
            async with asyncio.timeout(PATIENCE):
                while "CorruptRecordException" not in caplog.text:
                    await asyncio.sleep(0.01)
            assert not next_one.done()
            consumer.seek(place, 30)
            found.append((await next_one).offset)
            return found + [(await consumer.getone()).offset for _ in range(19)]
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == [*range(20), *range(30, 50)]


@needs("kcat")
def test_kcat_ends_in_front_of_it(verifying: Broker, known: str) -> None:
    command = ["kcat", "-b", verifying.address, "-C", "-t", known, "-p", "0", "-e", "-f", "%o\\n"]
    ran = subprocess.run([*command, "-o", "0"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "Broker: Invalid message" in ran.stderr
    assert ran.stdout.split() == [str(number) for number in range(20)]
    ran = subprocess.run([*command, "-o", "30"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert ran.stdout.split() == [str(number) for number in range(30, 50)]


def test_a_group_is_moved_behind_it(verifying: Broker, known: str) -> None:
    """The way on for a group of any client: the command of docs/broker.md."""
    reset = ["group", "reset", "plain", "--to", "30", "--topic", f"{known}:0"]
    done = headworks(*reset, "--bootstrap", verifying.address)
    assert done.returncode == 0, done.stderr
    config = {"bootstrap.servers": verifying.address, "group.id": "plain"}
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([known])
    message = consumer.poll(PATIENCE)
    assert message is not None
    assert (message.error(), message.offset()) == (None, 30)
    consumer.close()
