"""The SDKs: encoding, decoding, and the whole send, beside the libraries that people use instead.

Codecs are timed in this process, in one thread. The whole send goes to a real broker and registry,
each in its own process on this machine, and ends when everything is delivered. Ours is measured as
installed (with the compiled encoder) and in the Python form.
"""

from __future__ import annotations

import dataclasses
import gc
import io
import json
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import fastavro
from confluent_kafka import SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.frame import Bench
from bench.sdk.events import TOPIC, Measured, prepare
from bench.sdk.fixture import fixture_start
from bench.sdk.handling import handling_bars, measure_handling
from bench.sdk.hanging import hanging_bars, measure_hanging
from bench.sdk.peers import dataclasses_avroschema
from bench.servers import registry_and_broker
from consumer_sdk import Decoder
from headworks import _bundled_schemas
from headworks._native import COMPILED
from headworks._wire import prefix
from headworks.codec import Event
from headworks.registry_client import RegistryClient
from producer_sdk import Producer, WhenFull

TITLE = "The SDKs: encode, decode and send, beside fastavro and Confluent's serializers"
US = "headworks"
PURE = "headworks, pure Python"
FASTAVRO = "fastavro"
CONSTRUCTED = "fastavro + construction"
CONFLUENT = "confluent-kafka, from dict"
DATACLASS = "confluent-kafka, from dataclass"
UNTOLD = "confluent-kafka, from dict, without delivery reports"
FLOOR = "confluent-kafka, ready bytes, without delivery reports"
THIRD = "dataclasses-avroschema"


def run(bench: Bench) -> None:
    """Measure everything."""
    measured = prepare(bench.folder / "events")
    if not COMPILED:
        bench.missing(
            "headworks, compiled", "no compiler when it was installed: python hatch_build.py"
        )
    with registry_and_broker(bench.folder) as (registry, running):
        client = RegistryClient(registry.url)
        schema_id = client.register(f"{TOPIC}-value", measured.text).id
        client.register("headworks.audit-value", _bundled_schemas.audit_schema())
        third = dataclasses_avroschema(bench, measured)
        for _ in bench.rounds(full=5):
            _encode(bench, measured, registry.url, third)
            _decode(bench, measured, client, registry.url, schema_id)
            _send(bench, measured, running.address, registry.url)
        measure_hanging(bench, measured, registry.url)
        measure_handling(bench, measured, registry.url)
    for _ in bench.rounds(full=5):
        bench.record("broker and registry of the pytest fixture up", US, fixture_start(bench), "s")
    _bars(bench)
    hanging_bars(bench)
    handling_bars(bench)


def _bars(bench: Bench) -> None:
    bench.bar("encode", at_least=1.8, got=bench.ratio("encode", US, FASTAVRO), unit="x fastavro")
    bench.bar(
        "decode into objects",
        at_least=8,
        got=bench.ratio("decode into objects", US, CONSTRUCTED),
        unit="x fastavro + construction",
    )
    bench.bar(
        "send against SerializingProducer from dict",
        at_least=3,
        got=bench.ratio("send", US, CONFLUENT),
        unit="x",
    )
    bench.bar("send", at_least=80_000, got=bench.median("send", US), unit="events/s")
    bench.bar(
        "broker and registry of the pytest fixture up",
        at_most=2,
        got=bench.median("broker and registry of the pytest fixture up", US),
        unit="s",
    )


def _rate(call: Callable[[], object], seconds: float) -> float:
    """Calls a second of the thread's CPU time, the best of some stretches: what is slower is
    somebody else's.
    """
    count, best, ends = 1000, 0.0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        began = time.thread_time()
        for _ in range(count):
            call()
        best = max(best, count / (time.thread_time() - began))
    return best


def _encode(
    bench: Bench, measured: Measured, registry: str, third: Callable[[], object] | None
) -> None:
    seconds = 0.3 if bench.quick else 1.5
    schema = fastavro.parse_schema(json.loads(measured.text))
    kind, event, plain = measured.module.PageView.__headworks__, measured.event, measured.plain
    serializer = AvroSerializer(
        SchemaRegistryClient({"url": registry}),
        measured.text,
        conf={"auto.register.schemas": False},
    )
    context = SerializationContext(TOPIC, MessageField.VALUE)

    def by_fastavro() -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, plain)
        return out.getvalue()

    assert kind.encode(event) == kind.python_encoder.encode(event) == by_fastavro()
    cases: list[tuple[str, Callable[[], object]]] = [
        (US, lambda: kind.encode(event)),
        (PURE, lambda: kind.python_encoder.encode(event)),
        (FASTAVRO, by_fastavro),
        (CONFLUENT, lambda: serializer(plain, context)),
    ]
    if third is not None:
        cases.append((THIRD, third))
    for who, call in cases:
        bench.record("encode", who, _rate(call, seconds), "events/s")


def _decode(
    bench: Bench, measured: Measured, client: RegistryClient, registry: str, schema_id: int
) -> None:
    seconds = 0.3 if bench.quick else 1.5
    kind = measured.module.PageView.__headworks__
    schema = fastavro.parse_schema(json.loads(measured.text))
    data = kind.encode(measured.event)
    value = prefix(schema_id) + data
    decoder = Decoder(client, TOPIC, kind)
    deserializer = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    context = SerializationContext(TOPIC, MessageField.VALUE)
    assert decoder.decode(value)[0] == measured.event
    cases: list[tuple[str, Callable[[], object]]] = [
        (US, lambda: decoder.decode(value)),
        (
            CONSTRUCTED,
            lambda: measured.typed(fastavro.schemaless_reader(io.BytesIO(data), schema, None)),  # type: ignore[arg-type]
        ),
        ("confluent-kafka + construction", lambda: measured.typed(deserializer(value, context))),
    ]
    for who, call in cases:
        bench.record("decode into objects", who, _rate(call, seconds), "events/s")


def _send(bench: Bench, measured: Measured, broker: str, registry: str) -> None:
    count = 60_000 if bench.quick else 300_000
    make, kind = measured.written, measured.module.PageView.__headworks__
    for who, encoder in ((US, kind.encoder), (PURE, kind.python_encoder)):
        kept, kind.encoder = kind.encoder, encoder
        with Producer(
            broker,
            registry,
            application="bench",
            events=(measured.module.PageView,),
            state_dir=bench.folder / "state",
            when_full=WhenFull.BLOCK,
            block_ms=60_000,
            queue_messages=count,
            queue_bytes=1 << 30,
        ) as producer:
            kind.encoder = kept
            _time(bench, who, _sending(producer, make), count, producer.flush)
    serializer = AvroSerializer(
        SchemaRegistryClient({"url": registry}),
        measured.text,
        conf={"auto.register.schemas": False},
    )
    as_dict = AvroSerializer(
        SchemaRegistryClient({"url": registry}),
        measured.text,
        to_dict=lambda event, _: dataclasses.asdict(event),
        conf={"auto.register.schemas": False},
    )
    config = {
        "bootstrap.servers": broker,
        "compression.type": "zstd",
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": count,
        "queue.buffering.max.kbytes": 1 << 20,
    }
    from_dict = SerializingProducer({**config, "value.serializer": serializer})
    told = _telling(from_dict, lambda: _keyed(measured.written_dict()))
    _time(bench, CONFLUENT, told, count, from_dict.flush)
    from_dict = SerializingProducer({**config, "value.serializer": serializer})
    untold = _untold(from_dict, lambda: _keyed(measured.written_dict()))
    _time(bench, UNTOLD, untold, count, from_dict.flush)
    from_class = SerializingProducer({**config, "value.serializer": as_dict})
    told = _telling(from_class, lambda: (b"%d" % (event := make()).member, event))
    _time(bench, DATACLASS, told, count // 5, from_class.flush)
    bare = confluent_kafka.Producer(config)
    value = measured.module.PageView.__headworks__.encode(measured.event)
    _time(bench, FLOOR, lambda: bare.produce(TOPIC, value, b"123456789"), count, bare.flush)


def _sending(producer: Producer, make: Callable[[], Event]) -> Callable[[], object]:
    def send() -> None:
        producer.send(make())

    return send


def _keyed(value: dict[str, Any]) -> tuple[bytes, object]:
    return b"%d" % value["member"], value


def _telling(
    peer: SerializingProducer, make: Callable[[], tuple[bytes, object]]
) -> Callable[[], object]:
    """As the client's documentation sends: reports are served before each message, and looked at.

    Headworks counts what was delivered and what was lost; who is not told cannot.
    """
    outcomes = [0, 0]

    def report(error: object, _message: object) -> None:
        outcomes[error is None] += 1

    def send() -> None:
        peer.poll(0)
        key, value = make()
        peer.produce(TOPIC, key=key, value=value, on_delivery=report)

    return send


def _untold(
    peer: SerializingProducer, make: Callable[[], tuple[bytes, object]]
) -> Callable[[], object]:
    """Sends and never asks what became of it."""

    def send() -> None:
        key, value = make()
        peer.produce(TOPIC, key=key, value=value)

    return send


def _time(
    bench: Bench,
    who: str,
    send: Callable[[], object],
    count: int,
    flush: Callable[[float], object],
) -> None:
    """Events a second from the first send until the last is delivered, connected as they are; and
    what one costs this process, librdkafka's threads included, and the thread that sends.
    """
    send()
    flush(30)
    gc.collect()
    began, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
    for _ in range(count):
        send()
    thread = time.thread_time() - thread
    flush(120)
    cpu, took = time.process_time() - cpu, time.perf_counter() - began
    bench.record("send", who, count / took, "events/s", cpu=1e6 * cpu / count, cpu_unit="us/event")
    bench.record("send, CPU of the sending thread", who, 1e6 * thread / count, "us/event")
