"""`headworks.schema.validation`: what has no schema id of the topic's subject does not get in."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks import _wire
from headworks._broker.topics.schema_ids import SchemaIdCache, SchemaIdStatus, SubjectSchemaId
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import Codec, Record, encode_batch
from headworks._server import child_process
from headworks.registry_client import RegistryClient
from producer_sdk import Producer as TypedProducer
from tests.broker.clients import CONSUMERS, DEADLINE, PRODUCERS, Message, eventually
from tests.broker.conftest import kept_address, start_broker
from tests.broker.wire import Wire, produce, reply
from tests.producer_sdk.events import Site, new_site
from tests.tools import require

pytestmark = [
    pytest.mark.contract,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
CHECKED = {"headworks.schema.validation": "true"}
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
OTHER = SCHEMA.replace('"R"', '"Other"')
NOBODY = "http://127.0.0.1:1"
INVALID_RECORD, NOT_ENOUGH_REPLICAS = 87, 19


def start_registry(folder: Path, listen: str = "127.0.0.1:0") -> child_process.Service:
    store = f"sqlite:///{folder / 'registry.db'}"
    return child_process.start(["registry", "start", "--listen", listen, "--store", store])


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


def create(address: str, topic: str, configs: dict[str, str] = CHECKED) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(DEADLINE)


def framed(schema_id: int, body: bytes = b"\x02") -> bytes:
    return _wire.prefix(schema_id) + body


def refusal(address: str, topic: str, values: list[bytes | None], codec: str) -> str:
    """The error that confluent-kafka reports for one batch of `values`."""
    errors: list[Any] = []

    def note(error: object, _: object) -> None:
        errors.append(error)

    producer = Producer(
        {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 60_000}
    )
    producer.list_topics(topic, DEADLINE)  # else they are handed on one by one while it flushes
    for value in values:
        producer.produce(topic, value, b"key", on_delivery=note)
    assert producer.flush(DEADLINE) == 0
    [name] = {error and error.name() for error in errors}
    return str(name)


def judged(address: str, topic: str, *records: bytes | None, codec: Codec = Codec.NONE) -> Any:
    """As `ask`, once the registry, which others may hold up, has told the broker what it needs."""
    end = time.monotonic() + DEADLINE
    while (answer := ask(address, topic, *records, codec=codec)).error_code == NOT_ENOUGH_REPLICAS:
        assert time.monotonic() < end, answer.error_message
    return answer


def ask(address: str, topic: str, *records: bytes | None, codec: Codec = Codec.NONE) -> Any:
    """The reply for a partition, version 8, to one batch."""
    batch = encode_batch([Record(0, 1, b"k", value, ()) for value in records], codec=codec)
    with Wire(address) as to:
        to.send(ApiKey.PRODUCE, 8, produce(topic, 0, batch, acks=-1))
        return reply(ApiKey.PRODUCE, 8, to.receive()[1]).responses[0].partition_responses[0]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_good_batches_pass_and_bad_ones_do_not_in_every_codec(
    broker: child_process.Service, registry: child_process.Service, codec: str
) -> None:
    topic = f"t-{codec}"
    create(broker.address, topic)
    known = RegistryClient(registry.url).register(f"{topic}-value", SCHEMA).id
    padding = b"x" * 300
    good = [framed(known, padding), None, framed(known, padding)]
    assert refusal(broker.address, topic, good, codec) == "None"
    for bad in (b"plain text" + padding, b"\0\0", b"", framed(known + 1000, padding)):
        assert refusal(broker.address, topic, [*good, bad], codec) == "INVALID_RECORD"
    found = CONSUMERS["confluent-kafka"](broker.address, topic, 3)
    assert [m.value for m in found] == good


def by_confluent(address: str, topic: str, value: bytes) -> str:
    return refusal(address, topic, [value], "lz4")


def by_aiokafka(address: str, topic: str, value: bytes) -> str:
    from aiokafka import AIOKafkaProducer

    async def run() -> str:
        async with AIOKafkaProducer(bootstrap_servers=address, compression_type="gzip") as to:
            try:
                await to.send_and_wait(topic, value, b"k", 0)
            except Exception as error:
                return repr(error)
            return "None"

    return asyncio.run(run())


def by_kafka_python(address: str, topic: str, value: bytes) -> str:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, compression_type="gzip")
    try:
        producer.send(topic, value, b"k").get(DEADLINE)
    except Exception as error:
        return repr(error)
    finally:
        producer.close()
    return "None"


def by_kcat(address: str, topic: str, value: bytes) -> str:
    require("kcat")
    done = subprocess.run(
        ["kcat", "-b", address, "-P", "-t", topic, "-p", "0", "-z", "snappy", "-K", "="],
        input=b"k=" + value + b"\n",
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    return done.stderr.decode() or "None"


CLIENTS = {
    "confluent-kafka": (by_confluent, "INVALID_RECORD"),
    "aiokafka": (by_aiokafka, "UnknownError"),  # it does not know the code
    "kafka-python": (by_kafka_python, "InvalidRecordError"),
    "kcat": (by_kcat, "Broker failed to validate record"),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_bad_payloads_of_every_client_are_refused(
    broker: child_process.Service, registry: child_process.Service, client: str
) -> None:
    send, said = CLIENTS[client]
    topic = f"of-{client}"
    create(broker.address, topic)
    known = RegistryClient(registry.url).register(f"{topic}-value", SCHEMA).id
    assert said in send(broker.address, topic, b"no framing " * 20)
    assert said in send(broker.address, topic, framed(known + 12345, b"x" * 200))
    if client != "kcat":  # which speaks text
        assert send(broker.address, topic, framed(known, b"x" * 200)) == "None"
        assert CONSUMERS[client](broker.address, topic, 1)[0].value == framed(known, b"x" * 200)


def test_the_typed_producer_gets_in(
    broker: child_process.Service, registry: child_process.Service, tmp_path: Path
) -> None:
    site: Site = new_site(tmp_path, broker.address, registry.url)
    create(broker.address, site.topic)
    with TypedProducer(
        broker.address, registry.url, application="test", state_dir=tmp_path / "state"
    ) as producer:
        for number in range(200):
            assert producer.send(site.visit(f"user {number}"))
        new = site.two.Visit(user="two", at=site.visit().at, seconds=1)
        producer.send_and_wait(new, DEADLINE)
    assert len(CONSUMERS["confluent-kafka"](broker.address, site.topic, 201)) == 201
    assert refusal(broker.address, site.topic, [b"{}"], "zstd") == "INVALID_RECORD"


def test_the_error_names_the_records_the_reason_and_the_fix(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "said")
    known = RegistryClient(registry.url).register("said-value", SCHEMA).id
    answer = judged(
        broker.address,
        "said",
        *(framed(known), b"\x07ello there", framed(known), b"\0", framed(999_999), None),
        codec=Codec.ZSTD,
    )
    assert answer.error_code == INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 3, 4]
    texts = [error.batch_index_error_message for error in answer.record_errors]
    assert "byte 7, not with the magic byte" in texts[0]
    assert "1 bytes is too short" in texts[1]
    assert "schema id 999999 is not registered in subject said-value" in texts[2]
    assert "headworks schema register" in texts[2]
    assert "said-0: record 1 of the batch" in answer.error_message
    assert "3 of the batch's records" in answer.error_message
    good = ask(broker.address, "said", framed(known), None, codec=Codec.ZSTD)
    assert (good.error_code, good.base_offset, good.record_errors) == (0, 0, ())


def test_rejected_records_are_logged_once_a_minute(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "told")
    for value in (b"plain", b"again"):
        assert ask(broker.address, "told", value).error_code == INVALID_RECORD
    [line] = [line for line in broker.words().splitlines() if "told-0: rejected" in line]
    assert "WARNING" in line
    assert "rejected a batch of 127.0.0.1:" in line
    assert "record 0 of the batch: message value starts with byte 112" in line
    assert "produce it with the Headworks SDK" in line


def test_an_id_of_another_subject_is_refused_until_it_is_registered(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "mine")
    client = RegistryClient(registry.url)
    elsewhere = client.register("elsewhere-value", OTHER).id
    assert judged(broker.address, "mine", framed(elsewhere)).error_code == INVALID_RECORD
    assert client.register("mine-value", OTHER).id == elsewhere
    deadline = time.monotonic() + DEADLINE
    while ask(broker.address, "mine", framed(elsewhere)).error_code:  # no is remembered shortly
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_while_the_registry_is_away_nothing_gets_in_and_then_it_does(tmp_path: Path) -> None:
    listen = kept_address()
    with start_registry(tmp_path, listen) as registry:
        client = RegistryClient(registry.url)
        one = client.register("away-value", SCHEMA).id
        two = client.register("away-value", SCHEMA.replace('"int"', '["int", "null"]')).id
        with start_broker(tmp_path, "--registry", registry.url) as broker:
            create(broker.address, "away")
            assert judged(broker.address, "away", framed(one)).error_code == 0
            registry.stop()
            assert ask(broker.address, "away", framed(one)).error_code == 0, "it is remembered"
            answer = ask(broker.address, "away", framed(two))
            assert answer.error_code == NOT_ENOUGH_REPLICAS
            assert "does not say whether" in answer.error_message
            delivered: list[Any] = []
            names = ("confluent-kafka", "aiokafka", "kafka-python")
            threads = [
                threading.Thread(target=partial(_send, delivered, name, broker.address, two))
                for name in names
            ]
            for thread in threads:
                thread.start()
            time.sleep(1.5)
            assert delivered == [], "nobody got in, nobody gave up"
            with start_registry(tmp_path, listen):
                for thread in threads:
                    thread.join(DEADLINE)
                assert sorted(delivered) == sorted(names)
            found = CONSUMERS["confluent-kafka"](broker.address, "away", 5)
            assert sorted(m.key or b"" for m in found if m.key != b"k") == [
                name.encode() for name in sorted(names)
            ]


def _send(delivered: list[Any], name: str, address: str, schema_id: int) -> None:
    PRODUCERS[name](address, "away", [Message(name.encode(), framed(schema_id))], "none")
    delivered.append(name)


def test_the_order_of_a_connection_is_kept_over_a_look_up(
    broker: child_process.Service, registry: child_process.Service
) -> None:
    create(broker.address, "order")
    client = RegistryClient(registry.url)
    client.set_compatibility("order-value", "BACKWARD", "avro")  # no table could follow
    ids = [
        client.register("order-value", SCHEMA.replace('"int"', kind)).id
        for kind in ('"int"', '["int", "null"]', '["int", "null", "string"]')
    ]
    with Wire(broker.address) as to:
        for number in range(60):
            value = framed(ids[number // 20], b"%d" % number)
            batch = encode_batch(
                [Record(0, 1, b"k", value, ())], codec=Codec(number % 5), producer=(77, 0, number)
            )
            to.send(ApiKey.PRODUCE, 8, produce("order", 0, batch, acks=-1))
        sent = to.send(ApiKey.API_VERSIONS, 0, b"")
        answers = [to.receive() for _ in range(61)]
    assert [correlation for correlation, _ in answers] == list(range(1, sent + 1))
    parts = [
        reply(ApiKey.PRODUCE, 8, body).responses[0].partition_responses[0]
        for _, body in answers[:60]
    ]
    assert [(part.error_code, part.base_offset) for part in parts] == [(0, n) for n in range(60)]


def test_others_are_served_while_a_look_up_hangs(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with start_broker(tmp_path, "--registry", url) as broker:
            create(broker.address, "hangs")
            create(broker.address, "free", {})

            def many_meanwhile() -> bool:
                """If nobody stands still for as long as the look-up takes."""
                served = 0
                with Wire(broker.address) as waiting:
                    batch = encode_batch([Record(0, 1, b"k", framed(1), ())])
                    waiting.send(ApiKey.PRODUCE, 8, produce("hangs", 0, batch))
                    while waiting.silent(0.001):
                        assert ask(broker.address, "free", b"anything").error_code == 0
                        served += 1
                    part = (
                        reply(ApiKey.PRODUCE, 8, waiting.receive()[1])
                        .responses[0]
                        .partition_responses[0]
                    )
                    assert part.error_code == NOT_ENOUGH_REPLICAS
                return served > 50

            eventually(many_meanwhile)


def test_it_needs_a_registry_and_never_goes_without(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--registry", NOBODY) as broker:
        create(broker.address, "kept")
    with start_broker(tmp_path) as broker:
        with pytest.raises(KafkaException, match=r"(?s)INVALID_CONFIG.*--registry"):
            create(broker.address, "new")
        answer = ask(broker.address, "kept", b"anything")
        assert answer.error_code == NOT_ENOUGH_REPLICAS, "it does not become lax by a restart"
        assert "--registry" in answer.error_message
        with pytest.raises(KafkaException, match="INVALID_CONFIG"):
            create(broker.address, "new", {"headworks.schema.validation": "yes"})


def test_a_bomb_is_refused(broker: child_process.Service, registry: child_process.Service) -> None:
    create(broker.address, "bomb")
    known = RegistryClient(registry.url).register("bomb-value", SCHEMA).id
    bomb = judged(broker.address, "bomb", framed(known, bytes(40 << 20)), codec=Codec.ZSTD)
    assert bomb.error_code == INVALID_RECORD
    assert "exceed" in bomb.error_message


def test_ids_are_remembered_and_asked_for_once(
    registry: child_process.Service, tmp_path: Path
) -> None:
    client = RegistryClient(registry.url)
    known = client.register("once-value", SCHEMA).id
    now = [0.0]

    async def run() -> None:
        ids = SchemaIdCache(registry.url, tmp_path / "known", clock=lambda: now[0])
        asked: list[SubjectSchemaId] = []
        real = ids._ask

        def counted(wanted: SubjectSchemaId) -> SchemaIdStatus:
            asked.append(wanted)
            return real(wanted)

        ids._ask = counted  # type: ignore[method-assign]
        one, other = (SubjectSchemaId("once-value", schema_id) for schema_id in (known, 10**6))
        assert ids.status(one) is SchemaIdStatus.NOT_CACHED
        await asyncio.gather(*(ids.look_up([one, other]) for _ in range(20)))
        assert sorted(asked) == [one, other]
        assert ids.status(one) is SchemaIdStatus.KNOWN
        assert ids.status(other) is SchemaIdStatus.UNKNOWN
        now[0] = 1e9
        assert ids.status(one) is SchemaIdStatus.KNOWN
        assert ids.status(other) is SchemaIdStatus.NOT_CACHED
        ids.close()

    asyncio.run(run())


def test_what_is_remembered_of_unknown_ids_is_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("headworks._broker.topics.schema_ids._MAX_CACHED", 10)

    async def run() -> None:
        ids = SchemaIdCache("http://127.0.0.1:1", tmp_path / "known")
        monkeypatch.setattr(ids, "_ask", lambda _: SchemaIdStatus.UNKNOWN)
        wanted = [SubjectSchemaId("t-value", number) for number in range(50)]
        await ids.look_up(wanted)
        assert [ids.status(one) for one in wanted].count(SchemaIdStatus.UNKNOWN) == 10
        assert not ids._asked
        ids.close()

    asyncio.run(run())


def test_configs_show_it(broker: child_process.Service) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        ConfigResource,
        ResourceType,
    )

    create(broker.address, "shown")
    admin = AdminClient({"bootstrap.servers": broker.address})
    [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "shown")]).values()
    assert future.result(DEADLINE)["headworks.schema.validation"].value == "true"
