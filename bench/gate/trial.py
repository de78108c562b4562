"""A change tried on the newest messages of its topic: `headworks schema check --try-on`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Producer

from bench.servers import registry_and_broker
from headworks._wire import prefix
from headworks.registry_client import RegistryClient

MESSAGES = 100_000
_TOPIC = "payments"
_ADDED = {"name": "channel", "type": "string", "default": "web"}
_FIELDS: list[dict[str, Any]] = [
    {"name": "payment_id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "paid_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "amount", "type": "double"},
    {"name": "voucher", "type": ["null", "string"], "default": None},
    {"name": "labels", "type": {"type": "array", "items": "string"}},
    {"name": "items", "type": "int"},
    {"name": "shop", "type": "int"},
    {"name": "is_repeated", "type": "boolean"},
    {"name": "city", "type": "string"},
]


@contextmanager
def proposal(folder: Path) -> Iterator[list[str]]:
    """Yield the arguments that check a new field of a topic of MESSAGES messages."""
    folder.mkdir()
    with registry_and_broker(folder) as (registry, broker):
        _fill(broker.address, RegistryClient(registry.url))
        schemas = folder / "schemas"
        schemas.mkdir()
        changed = _schema([*_FIELDS, _ADDED]) | {"headworks": {"topic": _TOPIC}}
        (schemas / "payment.avsc").write_text(json.dumps(changed), encoding="utf-8")
        at = ["--against", f"registry:{registry.url}", "--bootstrap", broker.address]
        asked = ["schema", "check", str(schemas), "--usage", "none", "--format", "json"]
        yield [*asked, *at, "--try-on", str(MESSAGES)]


def _fill(address: str, registry: RegistryClient) -> None:
    schema = _schema(_FIELDS)
    start = prefix(registry.register(f"{_TOPIC}-value", json.dumps(schema)).id)
    parsed = fastavro.parse_schema(schema)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "compression.type": "lz4"})
    for number in range(MESSAGES):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, _payment(number))
        producer.produce(_TOPIC, start + written.getvalue(), str(number))
        producer.poll(0)
    producer.flush(60)


def _schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "Payment", "namespace": "bench", "fields": fields}


def _payment(number: int) -> dict[str, Any]:
    return {
        "payment_id": number,
        "customer": f"customer {number}",
        "paid_at": 1_700_000_000_000 + number,
        "amount": number / 7,
        "voucher": None if number % 3 else "spring",
        "labels": ["gift", "express"],
        "items": number % 9,
        "shop": number % 100,
        "is_repeated": number % 2 == 0,
        "city": "Berlin",
    }
