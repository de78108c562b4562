"""Several events on one topic: the members of a union in one event type, in their order."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumers, Message
from headworks._server.child_process import Service
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from tests.consumer_sdk.test_handlers import run_until
from tests.headworks.codec.generated_packages import build

pytestmark = pytest.mark.e2e


def record(name: str, field: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": "long"}]}


SCHEMA = {
    "type": "record",
    "name": "OrderEvent",
    "namespace": "shop",
    "headworks": {"topic": "order-events", "event_time": "at", "key": ["order"]},
    "fields": [
        {"name": "order", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "event", "type": [record("OrderPlaced", "items"), record("OrderPaid", "cents")]},
    ],
}


def test_a_handler_matches_the_members_of_a_union(
    tmp_path: Path, broker: Service, registry: Service
) -> None:
    text = json.dumps(SCHEMA)
    RegistryClient(registry.url).register("order-events-value", text)
    shop = build(tmp_path, {"order.avsc": text})["shop"]
    at = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    sent = [shop.OrderPlaced(items=3), shop.OrderPaid(cents=1250), shop.OrderPlaced(items=1)]
    with Producer(
        broker.address, registry.url, application="test", state_dir=tmp_path / "state"
    ) as producer:
        for event in sent:
            producer.send(shop.OrderEvent(order="o1", at=at, event=event))
    app = Consumers(group="order-events", bootstrap=broker.address, registry=registry.url)
    seen: list[str] = []

    @app.on(shop.OrderEvent)
    def handle(message: Message[Any]) -> None:
        match message.event.event:
            case shop.OrderPlaced(items=items):
                seen.append(f"placed {items}")
            case shop.OrderPaid(cents=cents):
                seen.append(f"paid {cents}")

    run_until(app, lambda: len(seen) == 3)
    assert seen == ["placed 3", "paid 1250", "placed 1"]
