"""Several events on one topic: the members of a union, in one event type or at the top."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import confluent_kafka
import fastavro
import pytest

from consumer_sdk import Consumers, DecodeError, Decoder, Message, OnPoison
from headworks._server.child_process import Service
from headworks._wire import prefix
from headworks.codec import event_type
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


def member(name: str, field: str, **more: Any) -> dict[str, Any]:
    """A whole schema of its own, whose events go to the topic of the union."""
    return record(name, field) | {"namespace": "bank", "headworks": {"topic": "payments"}} | more


PAID, REFUNDED, LOST = member("Paid", "cents"), member("Refunded", "back"), member("Lost", "at")


def encoded(schema: Any, datum: Any, schema_id: int = 1) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return prefix(schema_id) + out.getvalue()


class Registry:
    """A registry of one schema."""

    url = "http://registry"

    def __init__(self, schema: Any) -> None:
        self._text = json.dumps(schema)

    def schema_text(self, _schema_id: int) -> str:
        return self._text


def test_a_union_at_the_top_names_the_class_of_each_event(tmp_path: Path) -> None:
    renamed = member("Returned", "back", aliases=["Refunded"])
    bank = build(tmp_path, {"a.avsc": json.dumps(PAID), "b.avsc": json.dumps(renamed)})["bank"]
    kinds = event_type(bank.Paid), event_type(bank.Returned)
    union = ["null", PAID, REFUNDED, LOST]
    decoder = Decoder(Registry(union), "payments", *kinds)  # type: ignore[arg-type]
    assert decoder.decode(encoded(union, ("bank.Paid", {"cents": 5})))[0] == bank.Paid(cents=5)
    assert decoder.decode(encoded(union, ("bank.Refunded", {"back": 7})))[0] == bank.Returned(
        back=7
    )
    for value, reason in (
        (encoded(union, ("bank.Lost", {"at": 1})), "it is a bank.Lost, and this consumer reads"),
        (encoded(union, None), "it is a null, and this consumer reads bank.Paid or bank.Returned"),
        (prefix(1) + bytes([10]), "it is of branch 5, and its schema has 4"),
        (prefix(1) + bytes([200, 1]), "it is of branch 100, and its schema has 4"),
        (prefix(1), "it ends too early"),
    ):
        with pytest.raises(DecodeError, match=reason):
            decoder.decode(value)
    alone = Decoder(Registry(REFUNDED), "payments", *kinds)  # type: ignore[arg-type]
    assert alone.decode(encoded(REFUNDED, {"back": 3}))[0] == bank.Returned(back=3)
    strange = Decoder(Registry(LOST), "payments", *kinds)  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match=r"it is a bank.Lost, and this consumer reads bank.Paid"):
        strange.decode(encoded(LOST, {"at": 3}))


def test_one_class_reads_no_other_event_of_a_union(tmp_path: Path) -> None:
    """Its fields may have defaults, so that any record would do."""
    shipped = member("Shipped", "cents")
    shipped["fields"][0]["default"] = 0
    bank = build(tmp_path, {"a.avsc": json.dumps(shipped)})["bank"]
    union = [PAID, REFUNDED]
    decoder = Decoder(Registry(union), "payments", event_type(bank.Shipped))  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match=r"it is a bank.Paid, and this consumer reads bank.Ship"):
        decoder.decode(encoded(union, ("bank.Paid", {"cents": 5})))


def test_each_class_of_a_topic_has_its_handler(
    tmp_path: Path, broker: Service, registry: Service
) -> None:
    bank = build(tmp_path, {"a.avsc": json.dumps(PAID), "b.avsc": json.dumps(REFUNDED)})["bank"]
    union = [PAID, REFUNDED, LOST]
    number = RegistryClient(registry.url).register("payments-value", json.dumps(union)).id
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for of, datum in (("Paid", {"cents": 5}), ("Lost", {"at": 1}), ("Refunded", {"back": 7})):
        plain.produce("payments", encoded(union, (f"bank.{of}", datum), number), partition=0)
    assert plain.flush(60) == 0
    app = Consumers(
        group="payments",
        bootstrap=broker.address,
        registry=registry.url,
        on_poison=OnPoison.SKIP,
    )
    seen: list[Any] = []

    @app.on(bank.Paid)
    def paid(message: Message[Any]) -> None:
        seen.append(("paid", message.event))

    @app.on(bank.Refunded, concurrency=2)
    def refunded(message: Message[Any]) -> None:
        seen.append(("refunded", message.event))

    run_until(app, lambda: len(seen) == 2)
    assert ("paid", bank.Paid(cents=5)) in seen
    assert ("refunded", bank.Refunded(back=7)) in seen
    assert app.totals == {"consumed": 2, "skipped": 1, "dead": 0, "retried": 0}
