"""`headworks.schema.validation=payload`: bytes that are no datum of their schema do not get in."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from crc32c import crc32c
from typer.testing import CliRunner

from headworks._broker.topics.known_schemas import KnownSchemas
from headworks._cli.topic import topic_app
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import Codec, Record, encode_batch
from headworks._server import child_process
from headworks.errors import UsageError
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from tests.broker.clients import CONSUMERS, DEADLINE
from tests.broker.conftest import start_broker
from tests.broker.test_validation import create, framed, start_registry
from tests.broker.wire import Wire, produce, reply
from tests.pipeline.test_consumer import command
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.contract
PAYLOAD = {"headworks.schema.validation": "payload"}
DEAD_LETTERS = {"headworks.schema.validation.mode": "dead-letter"}
INVALID_RECORD, NOT_ENOUGH_REPLICAS = 87, 19
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "number", "type": "int"},
            {
                "name": "more",
                "type": {
                    "type": "record",
                    "name": "More",
                    "fields": [{"name": "text", "type": ["null", "string"]}],
                },
            },
        ],
    }
)
GOOD = b"\x02\x02\x06abc"
Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    with start_registry(tmp_path_factory.mktemp("registry")) as process:
        yield process


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, registry: child_process.Service
) -> Iterator[child_process.Service]:
    folder = tmp_path_factory.mktemp("broker")
    with start_broker(folder, "--registry", registry.url) as process:
        yield process


def ask(address: str, topic: str, *pairs: Pair, codec: Codec = Codec.NONE) -> Any:
    """The reply to one batch of these keys and values, once the registry has answered."""
    batch = encode_batch([Record(0, 1, *pair, ()) for pair in pairs], codec=codec)
    return ask_batch(address, topic, batch)


def ask_batch(address: str, topic: str, batch: bytes, patience: float = DEADLINE) -> Any:
    """The reply to a batch, once the registry has answered or the patience has ended."""
    end = time.monotonic() + patience
    while True:
        with Wire(address) as to:
            to.send(ApiKey.PRODUCE, 8, produce(topic, 0, batch, acks=-1))
            parts = reply(ApiKey.PRODUCE, 8, to.receive()[1]).responses[0].partition_responses
        if parts[0].error_code != NOT_ENOUGH_REPLICAS or time.monotonic() > end:
            return parts[0]


def resealed(batch: bytes) -> bytes:
    """The batch with the CRC that its bytes have now."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def topics(address: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=DEADLINE).topics)


@pytest.mark.parametrize("codec", list(Codec))
def test_each_bad_record_is_named_with_its_byte_and_field(
    broker: child_process.Service, registry: child_process.Service, codec: Codec
) -> None:
    topic = f"named-{codec.name.lower()}"
    create(broker.address, topic, PAYLOAD)
    known = RegistryClient(registry.url).register(f"{topic}-value", SCHEMA).id
    good: Pair = b"k", framed(known, GOOD)
    assert ask(broker.address, topic, good, (b"k", None), codec=codec).error_code == 0
    bad = [GOOD[:-1], GOOD + b"!", b"\x02\x04", b"", b"\x02\x02\x02\xff"]
    pairs: list[Pair] = [pair for datum in bad for pair in (good, (b"k", framed(known, datum)))]
    answer = ask(broker.address, topic, *pairs, codec=codec)
    assert answer.error_code == INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 3, 5, 7, 9]
    texts = [error.batch_index_error_message for error in answer.record_errors]
    subject = f"its value is no datum of schema id {known} of subject {topic}-value"
    assert all(text.startswith(subject) for text in texts)
    assert "byte 7 of the value, in field more.text: the datum ends too early" in texts[0]
    assert "byte 11 of the value: 1 bytes are left after the datum" in texts[1]
    assert "byte 6 of the value, in field more.text: 2 is no branch of the union" in texts[2]
    assert "byte 5 of the value, in field number: the datum ends too early" in texts[3]
    assert "not UTF-8" in texts[4]
    found = CONSUMERS["confluent-kafka"](broker.address, topic, 2)
    assert [m.value for m in found] == [good[1], None]


def test_keys_are_checked_where_they_have_a_subject(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    client = RegistryClient(registry.url)
    for topic in ("plain-keys", "typed-keys"):
        create(broker.address, topic, PAYLOAD)
        value = framed(client.register(f"{topic}-value", SCHEMA).id, GOOD)
    key_id = client.register("typed-keys-key", '{"type": "string"}').id
    assert ask(broker.address, "plain-keys", (b"any", value)).error_code == 0
    good = framed(key_id, b"\x06abc")
    assert ask(broker.address, "typed-keys", (good, value), (None, value)).error_code == 0
    answer = ask(
        broker.address,
        "typed-keys",
        (good, value),
        (b"any", value),
        (framed(key_id, b"\x08abc"), value),
        (framed(key_id + 1000, b"\x06abc"), value),
    )
    assert answer.error_code == INVALID_RECORD
    texts = [error.batch_index_error_message for error in answer.record_errors]
    assert [error.batch_index for error in answer.record_errors] == [1, 2, 3]
    assert "its key has no schema id" in texts[0]
    assert "its key is no datum of schema id" in texts[1]
    assert "is not registered in subject typed-keys-key" in texts[2]


def test_the_typed_producer_gets_in(
    broker: child_process.Service, registry: child_process.Service, tmp_path: Path
) -> None:
    site: Site = new_site(tmp_path, broker.address, registry.url)
    create(broker.address, site.topic, PAYLOAD)
    with Producer(
        broker.address, registry.url, application="test", state_dir=tmp_path / "state"
    ) as producer:
        for number in range(3_000):  # some batches are so large that a thread checks them
            assert producer.send(site.visit(f"user {number}"))
        new = site.two.Visit(user="two", at=site.visit().at, seconds=1)
        producer.send_and_wait(new, DEADLINE)
    assert len(CONSUMERS["confluent-kafka"](broker.address, site.topic, 3_001)) == 3_001


def test_a_schema_that_holds_itself_is_checked(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "linked", PAYLOAD)
    link = '{"type":"record","name":"Link","fields":[{"name":"next","type":["null","Link"]}]}'
    client = RegistryClient(registry.url)
    client.set_compatibility("linked-value", "BACKWARD", "avro")  # no table could follow
    known = client.register("linked-value", link).id
    assert (
        ask(broker.address, "linked", (b"k", framed(known, b"\x02" * 200 + b"\0"))).error_code == 0
    )
    answer = ask(broker.address, "linked", (b"k", framed(known, b"\x02" * 300 + b"\0")))
    assert answer.error_code == INVALID_RECORD
    assert "more than 250 values inside each other" in answer.error_message


def shown(address: str, topic: str) -> list[confluent_kafka.Message]:
    """What comes of the topic within a second."""
    return read(address, topic, 1_000, patience=1)


def read(
    address: str, topic: str, count: int, patience: float = DEADLINE
) -> list[confluent_kafka.Message]:
    """The first `count` messages of all partitions, or those that come meanwhile."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "reader"})
    partitions = consumer.list_topics(topic, DEADLINE).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in partitions])
    found: list[confluent_kafka.Message] = []
    end = time.monotonic() + patience
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            found.append(message)
    consumer.close()
    return found


def headers(message: confluent_kafka.Message) -> dict[str, str]:
    """The broker's headers of a dead letter."""
    prefix = "headworks.dead-letter."
    given = cast("list[tuple[str, bytes]]", message.headers() or [])
    return {name.removeprefix(prefix): value.decode() for name, value in given if prefix in name}


@pytest.mark.parametrize("codec", list(Codec))
def test_refused_records_become_dead_letters_and_the_others_are_stored(
    broker: child_process.Service, registry: child_process.Service, codec: Codec
) -> None:
    topic = f"letters-{codec.name.lower()}"
    create(broker.address, topic, PAYLOAD | DEAD_LETTERS)
    known = RegistryClient(registry.url).register(f"{topic}-value", SCHEMA).id
    good: Pair = b"k", framed(known, GOOD)
    short, foreign = framed(known, GOOD[:-1]), framed(known + 1000, GOOD)
    pairs = [good, (b"short", short), (None, foreign), good, (None, b"text")]
    for base in (0, 5):
        answer = ask(broker.address, topic, *pairs, codec=codec)
        assert (answer.error_code, answer.base_offset) == (0, base)
    found = read(broker.address, topic, 4)
    assert [(m.offset(), m.key(), m.value()) for m in found] == [(n, *good) for n in (0, 3, 5, 8)]
    letters = read(broker.address, f"{topic}.dead-letter", 6)
    expected = [(b"short", short), (None, foreign), (None, b"text")] * 2
    assert [(m.key(), m.value()) for m in letters] == expected
    places = [(h["topic"], h["partition"], int(h["offset"])) for h in map(headers, letters)]
    assert places == [(topic, "0", n) for n in (1, 2, 4, 6, 7, 9)]
    reasons = [headers(m)["reason"] for m in letters[:3]]
    assert "in field more.text: the datum ends too early" in reasons[0]
    assert "is not registered in subject" in reasons[1]
    assert "too short for a schema id" in reasons[2]
    assert all(m.timestamp()[1] == 1 for m in letters), "the time of the event stays"


def test_a_batch_of_bad_records_leaves_only_its_offsets(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "all-bad", PAYLOAD | DEAD_LETTERS)
    known = RegistryClient(registry.url).register("all-bad-value", SCHEMA).id
    bad: list[Pair] = [(b"k", b"text %d" % n) for n in range(4_000)]  # a thread validates them
    assert ask(broker.address, "all-bad", *bad).error_code == 0
    answer = ask(broker.address, "all-bad", (b"k", framed(known, GOOD)))
    assert (answer.error_code, answer.base_offset) == (0, 4_000)
    assert [m.offset() for m in read(broker.address, "all-bad", 1)] == [4_000]
    letters = read(broker.address, "all-bad.dead-letter", 4_000)
    assert [m.value() for m in letters] == [value for _, value in bad]
    assert [int(headers(m)["offset"]) for m in letters] == list(range(4_000))
    assert "wrote 4000 records of" in broker.words()


def test_a_retry_is_no_duplicate_and_dead_letters_come_at_least_once(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "retried", PAYLOAD | DEAD_LETTERS)
    known = RegistryClient(registry.url).register("retried-value", SCHEMA).id
    bases = []
    for sequence in (0, 0, 2):  # the second is the first again
        records = [Record(0, 1, b"k", v, ()) for v in (framed(known, GOOD), b"text")]
        batch = encode_batch(records, producer=(4711, 0, sequence))
        bases.append(ask_batch(broker.address, "retried", batch).base_offset)
    assert bases == [0, 0, 2]
    assert [m.offset() for m in read(broker.address, "retried", 2)] == [0, 2]
    letters = read(broker.address, "retried.dead-letter", 3)
    assert [headers(m)["offset"] for m in letters] == ["1", "1", "3"]


def test_transactions_and_numbers_that_are_wrong_are_rejected_whole(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "whole", PAYLOAD | DEAD_LETTERS)
    RegistryClient(registry.url).register("whole-value", SCHEMA)
    errors: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "transactional.id": "whole", "log_level": 0}
    )
    producer.init_transactions(DEADLINE)
    producer.begin_transaction()
    producer.produce("whole", b"text", on_delivery=lambda error, _: errors.append(error))
    producer.flush(DEADLINE)
    assert [error.name() for error in errors] == ["INVALID_RECORD"]
    producer.abort_transaction(DEADLINE)
    record = Record(0, 1, b"k", b"text", ())
    one, two = encode_batch([record]), encode_batch([record, record])
    twice = encode_batch([record, record])[: len(two) - (len(one) - 61)] + one[61:]
    sealed = resealed(twice)
    assert ask_batch(broker.address, "whole", sealed).error_code == INVALID_RECORD
    assert "whole.dead-letter" not in topics(broker.address)


def test_without_a_place_for_dead_letters_the_batch_is_rejected(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    topic = "t" * 245
    create(broker.address, topic, PAYLOAD | DEAD_LETTERS)
    RegistryClient(registry.url).register(f"{topic}-value", SCHEMA)
    batch = encode_batch([Record(0, 1, b"k", b"text", ())])
    answer = ask_batch(broker.address, topic, batch, patience=0)
    assert answer.error_code == NOT_ENOUGH_REPLICAS
    assert "this broker leads no partition of ttt" in answer.error_message


def test_the_command_sends_dead_letters_of_the_broker_back(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "early", PAYLOAD | DEAD_LETTERS)
    client = RegistryClient(registry.url)
    client.register("early-value", SCHEMA)
    later = SCHEMA.replace('"R"', '"Later"')
    known = client.register("elsewhere-value", later).id
    value = framed(known, GOOD)
    assert ask(broker.address, "early", (b"k", value)).error_code == 0
    client.set_compatibility("early-value", "NONE", "avro")
    assert client.register("early-value", later).id == known
    # The broker remembers for two seconds that the id is unknown.
    until(lambda: ask(broker.address, "early", (b"k", value)) and shown(broker.address, "early"))
    redriven = command("dead-letter", "redrive", "early", "--yes", broker=broker, registry=registry)
    assert redriven.returncode == 0, redriven.stderr
    found = until(lambda: [m for m in shown(broker.address, "early") if m.headers()])
    assert (found[0].key(), found[0].value()) == (b"k", value)
    assert dict(found[0].headers() or [])["headworks.origin"] == b"early/0/0"


def test_acknowledged_dead_letters_outlive_a_kill(
    tmp_path: Path, registry: child_process.Service
) -> None:
    known = RegistryClient(registry.url).register("killed-value", SCHEMA).id
    options = ["--registry", registry.url, "--require-subject", ".*"]
    with start_broker(tmp_path, *options) as broker:
        create(broker.address, "killed", PAYLOAD | DEAD_LETTERS)
        pairs: list[Pair] = [(b"k", framed(known, GOOD)), (b"k", b"text")]
        for _ in range(20):
            assert ask(broker.address, "killed", *pairs).error_code == 0
        broker.kill()
    with start_broker(tmp_path, *options) as broker:
        assert len(read(broker.address, "killed", 20)) == 20
        assert len(read(broker.address, "killed.dead-letter", 20)) == 20


def test_known_schemas_outlive_the_registry_and_the_broker(tmp_path: Path) -> None:
    with start_registry(tmp_path) as registry:
        client = RegistryClient(registry.url)
        one = client.register("away-value", SCHEMA).id
        two = client.register("away-value", SCHEMA.replace('"int"', '"long"')).id
        with start_broker(tmp_path, "--registry", registry.url) as broker:
            create(broker.address, "away", PAYLOAD)
            assert ask(broker.address, "away", (b"k", framed(one, GOOD))).error_code == 0
    with start_broker(tmp_path, "--registry", registry.url) as broker:
        assert ask(broker.address, "away", (b"k", framed(one, GOOD))).error_code == 0
        answer = ask(broker.address, "away", (b"k", framed(one, GOOD + b"!")))
        assert answer.error_code == INVALID_RECORD, "known schemas are checked, not let through"
        batch = encode_batch([Record(0, 1, b"k", framed(two, GOOD), ())])
        with Wire(broker.address) as to:
            to.send(ApiKey.PRODUCE, 8, produce("away", 0, batch, acks=-1))
            parts = reply(ApiKey.PRODUCE, 8, to.receive()[1]).responses[0].partition_responses
        assert parts[0].error_code == NOT_ENOUGH_REPLICAS
        assert "does not say whether" in parts[0].error_message


@pytest.mark.parametrize("damage", ["cut", "other registry", "no database"])
def test_a_file_that_cannot_be_used_is_begun_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "schemas.sqlite"
    known = KnownSchemas(path, "http://one")
    known.add("t-value", 7)
    known.add_text(7, SCHEMA)
    known.add_missing("t-key")
    known.close()
    again = KnownSchemas(path, "http://one")
    assert (again.has("t-value", 7), again.text(7), again.lacks("t-key")) == (True, SCHEMA, True)
    again.close()
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif damage == "no database":
        path.write_bytes(b"nonsense" * 100)
    url = "http://other" if damage == "other registry" else "http://one"
    begun = KnownSchemas(path, url)
    assert not begun.has("t-value", 7)
    assert "begun again" in caplog.text
    begun.add("t-value", 8)
    begun.close()
    assert KnownSchemas(path, url).has("t-value", 8)


def test_a_topic_without_a_subject_is_not_created_where_one_is_required(
    registry: child_process.Service, tmp_path: Path
) -> None:
    options = ["--registry", registry.url, "--require-subject", r"shop\..*"]
    with start_broker(tmp_path, *options) as broker:
        create(broker.address, "free", {})
        with pytest.raises(KafkaException, match=r"(?s)POLICY_VIOLATION.*shop.orders-value"):
            create(broker.address, "shop.orders", {})
        with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
            use(broker.address, "shop.orders")
        assert "needs the subject shop.orders-value" in broker.words()
        RegistryClient(registry.url).register("shop.orders-value", SCHEMA)
        use(broker.address, "shop.orders")
        with pytest.raises(KafkaException, match="ALREADY_EXISTS"):
            create(broker.address, "shop.orders", {})


def use(address: str, topic: str) -> None:
    """Produce to a topic without creating it first."""
    errors: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "topic.metadata.propagation.max.ms": 100, "log_level": 0}
    )
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE) == 0
    if errors[0] is not None:
        raise KafkaException(errors[0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--require-subject", ".*"], "needs a registry"),
        (["--registry", "http://127.0.0.1:1", "--require-subject", "("], "no regular expression"),
    ],
)
def test_a_rule_that_cannot_be_applied_is_refused_at_the_start(
    tmp_path: Path, options: list[str], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        start_broker(tmp_path, *options)


def test_the_command_line_asks_the_registry(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    where = ["--bootstrap", broker.address, "--registry", registry.url]
    asked = ["create", "asked-for", "--require-subject", *where]
    refused = CliRunner().invoke(topic_app, asked).exception
    assert "has no subject asked-for-value" in str(refused)
    RegistryClient(registry.url).register("asked-for-value", SCHEMA)
    assert CliRunner().invoke(topic_app, asked).exit_code == 0
