"""Topics as DataFrames, on a real Spark and broker: typed rows in, governed events out."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql.functions import when

import hadoop_loader
from hadoop_loader._fetch.kafka_log import KafkaLog
from headworks._kafka.client_properties import client_properties
from headworks._server.child_process import Service
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.memory import encoded

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

RICH: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "value", "type": ["null", "double", "string"]},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "float"}]},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
    ],
}
LOCAL = datetime.fromisoformat("2026-05-01T23:59:59.000001")
MORE: Any = {
    **RICH,
    "fields": [*RICH["fields"], {"name": "channel", "type": "string", "default": "shop"}],
}


def order(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "at": datetime(2026, 5, 1, 12, 0, n, 500_000, UTC),
        "local": LOCAL,
        "day": date(2026, 5, 1),
        "price": Decimal(n) / 4,
        "note": None if n % 2 else f"note {n}",
        "tags": ["a"] * n,
        "counts": {"k": n},
        "value": (None, 1.5, "text")[n % 3],
        "place": {"x": n / 2},
        "kind": ("NEW", "OLD")[n % 2],
    }


@pytest.fixture
def topic(broker: Service, registry: Service) -> str:
    name = f"source.{uuid.uuid4().hex[:8]}"
    first = RegistryClient(registry.url).register(f"{name}-value", json.dumps(RICH))
    producer = Producer({"bootstrap.servers": broker.address})
    for n in range(9):
        producer.produce(name, encoded(RICH, order(n), first.id), partition=0)
    producer.flush()
    return name


def test_reads_writes_streams_and_refuses(
    spark: Any, broker: Service, registry: Service, topic: str, tmp_path: Path
) -> None:
    # One test, for one topic: each question costs Spark a second or more.
    hadoop_loader.register(spark)
    where = {"bootstrap": broker.address, "registry": registry.url}
    client = RegistryClient(registry.url)
    second = client.register(f"{topic}-value", json.dumps(MORE))

    def read(**options: str) -> Any:
        return spark.read.format("headworks").options(topic=topic, **where, **options).load()

    rows = read().orderBy("id").collect()
    assert [r["id"] for r in rows] == list(range(9))
    assert rows[2]["at"].timestamp() == datetime(2026, 5, 1, 12, 0, 2, 500_000, UTC).timestamp()
    assert {r.local for r in rows} == {LOCAL}, "whatever the session's time zone"
    assert dict(read().dtypes)["local"] == "timestamp_ntz"
    assert (rows[3].price, rows[3].note, rows[2].note) == (Decimal("0.75"), None, "note 2")
    assert (rows[4].value.double, rows[5].value.string, rows[3].value) == (1.5, "text", None)
    assert (rows[5].counts, rows[5].place.x, rows[5].kind) == ({"k": 5}, 2.5, "OLD")
    assert {r.channel for r in rows} == {"shop"}
    assert {(r._partition, r._schema_version) for r in rows} == {(0, 1)}
    assert [r._offset for r in read(start="0:6").orderBy("_offset").collect()] == [6, 7, 8]

    # The way back: what was read is written, and is the same when it is read again.
    meta = ("_partition", "_offset", "_timestamp", "_schema_version")
    derived = f"{topic}.derived"
    client.register(f"{derived}-value", json.dumps(MORE))
    frame = read().drop(*meta).where("id < 5")
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(derived, 2)])[derived].result()
    empty = spark.read.format("headworks").options(topic=derived, **where).load()
    assert (empty.count(), empty.columns) == (0, read().columns)

    def write(frame: Any, **options: str) -> None:
        to = frame.write.format("headworks").mode("append")
        to.options(topic=derived, **where, **options).save()

    write(frame, key="id")
    again = spark.read.format("headworks").options(topic=derived, **where).load()
    assert again.drop(*meta).orderBy("id").collect() == frame.orderBy("id").collect()

    # What does not fit is refused, and nothing has left.
    before = _size(broker, derived)
    for wrong, told in (
        (frame.withColumn("wild", frame.id), "Order has no field wild"),
        (frame.withColumn("at", frame.local), "column at is timestamp_ntz, and the schema wants"),
        (frame.drop("price"), "there is no column price, and Order has no default"),
        (frame.withColumn("id", frame.note), "column id is string, and the schema wants bigint"),
        (read().drop("_offset"), "has no field _partition"),
    ):
        with pytest.raises(Exception, match=told):
            write(wrong)
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        frame.write.format("headworks").mode("overwrite").options(topic=derived, **where).save()
    with pytest.raises(Exception, match="has no schema in the registry"):
        spark.read.format("headworks").options(topic="nobody", **where).load()
    assert _size(broker, derived) == before == 5

    # A row that does not fit ends its task; what goes before it is in the topic.
    one_bad = frame.withColumn("kind", when(frame.id == 4, "BAD").otherwise(frame.kind)).orderBy(
        "id"
    )
    with pytest.raises(
        Exception, match=r"row 4 of a task .* column kind is 'BAD', which is no symbol"
    ):
        write(one_bad.coalesce(1))
    sent = _size(broker, derived) - before
    assert sent > 0
    assert sent % 4 == 0, "Spark tries a task again, and each try sends what goes before the row"

    # A bad message ends a query, or is left out.
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"junk", partition=0)
    producer.produce(topic, encoded(MORE, {**order(9), "channel": "web"}, second.id), partition=0)
    producer.flush()
    with pytest.raises(Exception, match=r"\[0\] offset 9 is no row"):
        read().collect()
    assert read(bad="skip").count() == 10

    stream = spark.readStream.format("headworks").options(topic=topic, bad="skip", **where).load()
    query = (
        stream.select("id", "channel")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination(200)
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [(r.id, r.channel) for r in found] == [*((n, "shop") for n in range(9)), (9, "web")]


def _size(broker: Service, topic: str) -> int:
    log = KafkaLog(client_properties(broker.address))
    marks = log.watermarks({topic: log.partitions()[topic]})
    return sum(mark.high for mark in marks[topic].values())
