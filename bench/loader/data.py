"""The data to load: page views of about 195 bytes, and the flights of 2013, written as users write.

Rules: fastavro encodes the values once. They are sent repeatedly with other offsets, so that making
them is not measured. Their times are spread over a week, unless the caller asks for the ten minutes
before a load.
"""

from __future__ import annotations

import importlib
import io
import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer

from headworks._wire import prefix
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of
from producer_sdk._generator import generate, write

_CATALOGUE = Path(__file__).resolve().parents[2] / "schemas"
_DISTINCT = 20_000
WEEK_MS = 7 * 86_400_000
TEN_MINUTES_MS = 600_000
_START_MS = 1_767_225_600_000  # 2026-01-01
_PAGE_VIEW: dict[str, Any] = {
    "type": "record",
    "name": "PageView",
    "namespace": "bench.web",
    "headworks": {"event_time": "header.time"},
    "fields": [
        {
            "name": "header",
            "type": {
                "type": "record",
                "name": "Header",
                "fields": [
                    {"name": "member", "type": "long"},
                    {"name": "session", "type": ["null", "string"]},
                    {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                    {"name": "server", "type": "string"},
                    {"name": "service", "type": "string"},
                ],
            },
        },
        {"name": "page", "type": "string"},
        {"name": "referrer", "type": ["null", "string"]},
        {"name": "agent", "type": "string"},
        {"name": "address", "type": "string"},
        {"name": "millis", "type": "long"},
        {"name": "score", "type": "double"},
        {
            "name": "device",
            "type": {"type": "enum", "name": "Device", "symbols": ["DESKTOP", "PHONE", "TABLET"]},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "tests", "type": {"type": "map", "values": "string"}},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "country", "type": "string"},
                        {"name": "latitude", "type": "double"},
                    ],
                },
            ],
        },
        {"name": "member_only", "type": "boolean"},
    ],
}


@dataclass(frozen=True, slots=True)
class Events:
    """A schema, and encoded values of it."""

    schema: dict[str, Any]
    values: tuple[bytes, ...]

    @property
    def mean(self) -> float:
        """Bytes of a value."""
        return sum(map(len, self.values)) / len(self.values)

    def named(self, topic: str) -> str:
        """The schema's text, for a topic."""
        own = self.schema.get("headworks", {})
        return json.dumps({**self.schema, "headworks": {**own, "topic": topic}})


def page_views(span_ms: int = WEEK_MS) -> Events:
    """Page views of so long a time."""
    rng = random.Random(3)
    rows = (_page_view(rng, n, span_ms) for n in range(_DISTINCT))
    return Events(_PAGE_VIEW, _encoded(_PAGE_VIEW, rows))


def flights(folder: Path) -> Events:
    """The flights of 2013 as the demo sends them; UsageError without the package they are in."""
    from headworks._cli.demo.events import flights as typed
    from headworks._cli.demo.source import FlightData

    source = FlightData()
    write(generate([_CATALOGUE]), folder / "flight_events")
    sys.path.insert(0, str(folder))
    module = importlib.import_module("flight_events.nyc")
    encode = module.Flight.__headworks__.encode
    rows = source.half_year("flights", 1) + source.half_year("flights", 2)
    values = tuple(encode(event) for event in typed(module, rows, datetime.now(UTC)))
    return Events(json.loads((_CATALOGUE / "nyc" / "flights.avsc").read_text()), values)


def send(broker: str, registry: str, topic: str, events: Events, count: int) -> None:
    """Register the schema and fill the topic with `count` events."""
    send_each(broker, registry, [topic], events, count)


def send_each(
    broker: str, registry: str, topics: Sequence[str], events: Events, count: int
) -> None:
    """Register the schema of each topic, and fill each with `count` events."""
    schemas = RegistryClient(f"http://{registry}")
    producer = Producer(
        {
            "bootstrap.servers": broker,
            "compression.type": "zstd",
            "linger.ms": 50,
            "batch.num.messages": 5000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for topic in topics:
        head = prefix(schemas.register(subject_of(topic), events.named(topic)).id)
        values = [head + value for value in events.values[:count]]
        for n in range(count):
            while True:
                try:
                    producer.produce(topic, values[n % len(values)])
                    break
                except BufferError:
                    producer.poll(0.1)
    producer.flush()


def _page_view(rng: random.Random, n: int, span_ms: int) -> dict[str, Any]:
    return {
        "header": {
            "member": rng.randrange(10**9),
            "session": f"{rng.getrandbits(96):024x}" if n % 4 else None,
            "time": _START_MS + rng.randrange(span_ms),
            "server": f"app{n % 40:02}.dc1.example.com",
            "service": "frontend",
        },
        "page": f"/in/profile/{rng.randrange(10**7)}",
        "referrer": "https://www.example.com/search?q=x" if n % 2 else None,
        "agent": "Mozilla/5.0 (X11; Linux x86_64)",
        "address": f"10.{n % 7}.{n % 250}.{rng.randrange(250)}",
        "millis": rng.randrange(10_000),
        "score": rng.random(),
        "device": ("DESKTOP", "PHONE", "TABLET")[n % 3],
        "tags": ["jobs", "people"][: n % 3],
        "tests": {f"experiment{k}": "blue" for k in range(n % 3)},
        "place": {"country": "de", "latitude": rng.uniform(-90, 90)} if n % 2 else None,
        "member_only": n % 5 == 0,
    }


def _encoded(schema: dict[str, Any], rows: Iterable[dict[str, Any]]) -> tuple[bytes, ...]:
    parsed = parse_schema(json.loads(json.dumps(schema)))
    values = []
    for row in rows:
        out = io.BytesIO()
        schemaless_writer(out, parsed, row)
        values.append(out.getvalue())
    return tuple(values)
