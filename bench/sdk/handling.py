"""Typed events handled, beside FastStream, aiokafka, and Confluent's deserializers.

Every side reads the same topic from its beginning, makes a typed object of each event, and calls a
function with it. Measured is the CPU time of the process, its threads included, because brokers and
peers share the machine. FastStream is fetched into the scratch folder: never a dependency.

With a concurrency, up to so many messages are handled at once. Ours keep the order of each key, and
commit only what is finished. aiokafka has none: its row starts a task for each message, as programs
do, and keeps neither. FastStream has `max_workers`, which keeps neither as well.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import fastavro
from aiokafka import AIOKafkaConsumer
from confluent_kafka import DeserializingConsumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.frame import Bench
from bench.sdk.events import TOPIC, Measured
from consumer_sdk import Consumer, Consumers, Message
from headworks._server import child_process
from headworks._wire import HEADER_SIZE
from producer_sdk import Producer, WhenFull

WHAT = "typed events handled"
ITERATED = "headworks, iteration"
HANDLED = "headworks, handler"
HANDLED_ASYNC = "headworks, async handler"
BESIDE = 8  # the messages of one handler that are handled at the same time
HANDLED_BESIDE = f"headworks, handler, concurrency {BESIDE}"
HANDLED_ASYNC_BESIDE = f"headworks, async handler, concurrency {BESIDE}"
AIOKAFKA = "aiokafka + fastavro"
AIOKAFKA_BESIDE = f"aiokafka + fastavro, {BESIDE} tasks"
CONFLUENT = "confluent-kafka, AvroDeserializer"
DESERIALIZING = "confluent-kafka, DeserializingConsumer"
FLOOR = "confluent-kafka, bytes that nobody reads"  # librdkafka alone
FASTSTREAM = "FastStream"
_UNIT = "events/s of CPU"
_KEYS = 1_000


class _Counted:
    """Notes the CPU time between the first event and the last of `count`."""

    def __init__(self, count: int) -> None:
        self.count, self.left = count, count
        self._began = self._took = 0.0

    def __call__(self) -> bool:
        """Count an event; return whether it was the last."""
        if self.left == self.count:
            self._began = time.process_time()
        self.left -= 1
        if self.left == 0:
            self._took = time.process_time() - self._began
        return self.left <= 0

    @property
    def rate(self) -> float:
        """Events a second of CPU time."""
        return (self.count - 1) / self._took


def measure_handling(bench: Bench, measured: Measured, registry: str) -> None:
    """Measure all sides on a broker of their own, which holds nothing but these events."""
    peer = _fetch_faststream(bench)
    data = ["--data-dir", str(bench.folder / "handled")]
    with child_process.start(["broker", "start", "--listen", "127.0.0.1:0", *data]) as running:
        count = 20_000 if bench.quick else 200_000
        _fill(measured, running.address, registry, bench.folder, count)
        for _ in bench.rounds(full=3):
            _handle_events(bench, measured, running.address, registry, count, faststream=peer)


def _fetch_faststream(bench: Bench) -> bool:
    """Install FastStream into the scratch folder; False, and why, if it cannot be had."""
    folder = bench.folder / "faststream"
    name = "faststream[kafka,confluent]"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        bench.missing(FASTSTREAM, (done.stderr.strip().splitlines() or ["pip failed"])[-1])
        return False
    sys.path.append(str(folder))
    return True


def _handle_events(
    bench: Bench, measured: Measured, broker: str, registry: str, count: int, *, faststream: bool
) -> None:
    """Measure one round of every side."""
    topic = TOPIC
    ours = {"bootstrap": broker, "registry": registry}
    sides: dict[str, Callable[[_Counted], None]] = {
        ITERATED: lambda counted: _iterate(measured, ours, counted),
        HANDLED: lambda counted: _handle(measured, ours, counted, 1),
        HANDLED_BESIDE: lambda counted: _handle(measured, ours, counted, BESIDE),
        HANDLED_ASYNC: lambda counted: _handle_async(measured, ours, counted, 1),
        HANDLED_ASYNC_BESIDE: lambda counted: _handle_async(measured, ours, counted, BESIDE),
        CONFLUENT: lambda counted: _confluent(measured, broker, registry, topic, counted),
        DESERIALIZING: lambda counted: _deserializing(measured, broker, registry, topic, counted),
        FLOOR: lambda counted: _fetch_alone(broker, topic, counted),
        AIOKAFKA: lambda counted: asyncio.run(_aiokafka(measured, broker, topic, counted)),
        AIOKAFKA_BESIDE: lambda counted: asyncio.run(
            _aiokafka_tasks(measured, broker, topic, counted)
        ),
    }
    if faststream:
        for backend in ("kafka", "confluent"):
            for workers, name in ((1, ""), (BESIDE, f", {BESIDE} workers")):
                sides[f"{FASTSTREAM}, {backend}{name}"] = (
                    lambda counted, backend=backend, workers=workers: asyncio.run(  # type: ignore[misc]
                        _faststream(measured, broker, topic, backend, counted, workers)
                    )
                )
    for who, run in sides.items():
        # FastStream takes a tenth of the events, because it takes ten times as long over each.
        counted = _Counted(count // 10 if who.startswith(FASTSTREAM) else count)
        try:
            run(counted)
        except Exception as error:
            bench.missing(who, f"{type(error).__name__}: {error}")
        else:
            bench.record(WHAT, who, counted.rate, _UNIT)


def handling_bars(bench: Bench) -> None:
    """Hold our iteration and our handlers to their rates beside each peer."""
    iterated = bench.median(WHAT, ITERATED)
    bench.bar("typed events iterated", at_least=500_000, got=iterated, unit=_UNIT)
    for peer in (CONFLUENT, DESERIALIZING):
        got = bench.ratio(WHAT, ITERATED, peer)
        bench.bar(f"typed events iterated, {peer}", at_least=4, got=got, unit="x")
    for peer in (f"{FASTSTREAM}, kafka", f"{FASTSTREAM}, confluent", AIOKAFKA, CONFLUENT):
        bench.bar(f"{WHAT}, {peer}", at_least=3, got=bench.ratio(WHAT, HANDLED, peer), unit="x")
    for peer in (f"{FASTSTREAM}, kafka", f"{FASTSTREAM}, confluent", AIOKAFKA):
        got = bench.ratio(WHAT, HANDLED_ASYNC, peer)
        bench.bar(f"{WHAT} by an async handler, {peer}", at_least=3, got=got, unit="x")
    for us in (HANDLED_BESIDE, HANDLED_ASYNC_BESIDE):
        for backend in ("kafka", "confluent"):
            got = bench.ratio(WHAT, us, f"{FASTSTREAM}, {backend}, {BESIDE} workers")
            bench.bar(f"{us}, {FASTSTREAM}, {backend}", at_least=3, got=got, unit="x")
    handled = bench.median(WHAT, HANDLED)
    over = None if not iterated or not handled else 1e6 / handled - 1e6 / iterated
    bench.bar("a handler over iteration", at_most=3, got=over, unit="us")


def _fill(measured: Measured, broker: str, registry: str, folder: Path, count: int) -> None:
    """Send the events to their topic, in turn with each key: one key is handled in its order."""
    with Producer(
        broker,
        registry,
        application="bench",
        events=(measured.module.PageView,),
        state_dir=folder / "state",
        when_full=WhenFull.BLOCK,
        block_ms=60_000,
    ) as producer:
        for number in range(count):
            producer.send(measured.written(number % _KEYS))
        producer.flush(600)


def _group() -> str:
    return f"bench-{uuid.uuid4()}"


def _iterate(measured: Measured, ours: dict[str, Any], counted: _Counted) -> None:
    with Consumer([measured.module.PageView], group=_group(), **ours) as consumer:
        for _ in consumer:
            if counted():
                return


def _handle(measured: Measured, ours: dict[str, Any], counted: _Counted, concurrency: int) -> None:
    app = Consumers(group=_group(), **ours)

    def handle(message: Message[Any]) -> None:  # noqa: ARG001 - it is typed, and not looked at
        if counted():
            app.stop()

    app.on(measured.module.PageView, concurrency=concurrency)(handle)
    app.run()


def _handle_async(
    measured: Measured, ours: dict[str, Any], counted: _Counted, concurrency: int
) -> None:
    app = Consumers(group=_group(), **ours)

    async def handle(message: Message[Any]) -> None:  # noqa: ARG001
        if counted():
            app.stop()

    app.on(measured.module.PageView, concurrency=concurrency)(handle)
    app.run()


def _config(broker: str) -> dict[str, Any]:
    return {"bootstrap.servers": broker, "group.id": _group(), "auto.offset.reset": "earliest"}


def _deserializer(measured: Measured, registry: str) -> AvroDeserializer:
    client = SchemaRegistryClient({"url": registry})
    made: AvroDeserializer = AvroDeserializer(
        client, from_dict=lambda plain, _: measured.typed(plain)
    )
    return made


def _deserializing(
    measured: Measured, broker: str, registry: str, topic: str, counted: _Counted
) -> None:
    deserializer = _deserializer(measured, registry)
    consumer = DeserializingConsumer({**_config(broker), "value.deserializer": deserializer})
    consumer.subscribe([topic])
    try:
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.value() is not None and counted():
                return
    finally:
        consumer.close()


def _fetch_alone(broker: str, topic: str, counted: _Counted) -> None:
    consumer = confluent_kafka.Consumer(_config(broker))
    consumer.subscribe([topic])
    try:
        while True:
            for _ in consumer.consume(500, 1.0):
                if counted():
                    return
    finally:
        consumer.close()


def _confluent(
    measured: Measured, broker: str, registry: str, topic: str, counted: _Counted
) -> None:
    decode = _deserializer(measured, registry)
    consumer = confluent_kafka.Consumer(_config(broker))
    consumer.subscribe([topic])
    context = SerializationContext(topic, MessageField.VALUE)
    try:
        while True:
            for message in consumer.consume(500, 1.0):
                if message.error() is None:
                    decode(message.value(), context)
                    if counted():
                        return
    finally:
        consumer.close()


def _typed(measured: Measured) -> Callable[[bytes], Any]:
    schema = fastavro.parse_schema(json.loads(measured.text))

    def decode(value: bytes) -> Any:
        source = io.BytesIO(value)
        source.seek(HEADER_SIZE)
        return measured.typed(fastavro.schemaless_reader(source, schema, None))  # type: ignore[arg-type]

    return decode


def _aiokafka_consumer(measured: Measured, broker: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker,
        group_id=_group(),
        auto_offset_reset="earliest",
        value_deserializer=_typed(measured),
    )


async def _aiokafka(measured: Measured, broker: str, topic: str, counted: _Counted) -> None:
    consumer = _aiokafka_consumer(measured, broker, topic)
    await consumer.start()
    try:
        async for _ in consumer:
            if counted():
                return
    finally:
        await consumer.stop()


async def _aiokafka_tasks(measured: Measured, broker: str, topic: str, counted: _Counted) -> None:
    consumer = _aiokafka_consumer(measured, broker, topic)
    free, tasks, ended = asyncio.Semaphore(BESIDE), set[asyncio.Task[None]](), asyncio.Event()

    async def handle() -> None:
        try:
            if counted():
                ended.set()
        finally:
            free.release()

    await consumer.start()
    try:
        for _ in range(counted.count):
            await anext(consumer)
            await free.acquire()
            task = asyncio.create_task(handle())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await ended.wait()
    finally:
        await consumer.stop()


async def _faststream(
    measured: Measured, broker: str, topic: str, backend: str, counted: _Counted, workers: int
) -> None:
    module = importlib.import_module(f"faststream.{backend}")
    decode, done = _typed(measured), asyncio.Event()

    async def decoder(message: Any) -> Any:
        return decode(message.body)

    kafka = module.KafkaBroker(broker, logger=None)

    async def handle(event: Any) -> None:  # noqa: ARG001
        if counted():
            done.set()
            await asyncio.sleep(1)  # it never lets the loop run while messages are there

    options = {} if workers == 1 else {"max_workers": workers}
    kafka.subscriber(
        topic, group_id=_group(), auto_offset_reset="earliest", decoder=decoder, **options
    )(handle)
    await kafka.start()
    try:
        await asyncio.wait_for(done.wait(), 600)
    finally:
        await (kafka.stop() if hasattr(kafka, "stop") else kafka.close())
