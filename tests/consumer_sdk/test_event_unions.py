"""Several events on one topic: the members of a union, in one event type or at the top."""

from __future__ import annotations

import copy
import datetime as dt
import io
import json
import pickle
from pathlib import Path
from typing import Any

import confluent_kafka
import fastavro
import pytest

from consumer_sdk import Consumer, Consumers, DecodeError, Decoder, Deleted, Message, OnPoison
from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._untyped_events import event_name, tagged
from headworks._audit_counting.schema_use import UNREGISTERED
from headworks._server.child_process import Service
from headworks._wire import prefix
from headworks.codec import EncodeError, event_type, from_json, to_json
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
        *(broker.address, registry.url),
        application="test",
        state_dir=tmp_path / "state",
        close_timeout=60.0,
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


AT = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
WHEN = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}


def event(name: str, field: str) -> dict[str, Any]:
    """An event of the topic `entries`, with a time and a key."""
    governed = {"topic": "entries", "event_time": "at", "key": [field]}
    made = record(name, field) | {"namespace": "book", "headworks": governed}
    made["fields"].append(WHEN)
    return made


@pytest.mark.parametrize("compiled", [True, False])
def test_every_class_of_a_union_is_sent_and_read(
    tmp_path: Path, broker: Service, registry: Service, compiled: bool
) -> None:
    union = [event("Opened", "account"), event("Moved", "cents"), event("Closed", "account")]
    topic = f"entries-{compiled}".lower()
    for branch in union:
        branch["headworks"]["topic"] = topic
    texts = {"all.avsc": json.dumps([union[0], "book.Moved", union[2]])}
    book = build(tmp_path, {**texts, "moved.avsc": json.dumps(union[1])})["book"]
    number = RegistryClient(registry.url).register(f"{topic}-value", json.dumps(union)).id
    sent = [
        book.Moved(cents=5, at=AT),
        book.Closed(account=1, at=AT),
        book.Opened(account=1, at=AT),
        book.Moved(cents=7, at=AT),
    ]
    for cls in (book.Opened, book.Moved, book.Closed):
        kind = event_type(cls)
        kind.encoder = kind.encoder if compiled else kind.python_encoder
    with Producer(
        broker.address,
        registry.url,
        application="test",
        events=(book.Opened, book.Moved, book.Closed),
        state_dir=tmp_path / "state",
        close_timeout=60.0,
    ) as producer:
        for one in sent:
            producer.send(one, partition=0)
        with pytest.raises(EncodeError, match="Moved: cents is 'x'"):
            producer.send(book.Moved(cents="x", at=AT))
    with Consumer[dict[str, Any]](
        topics=[topic], group=topic, bootstrap=broker.address, registry=registry.url
    ) as plain:
        found = [next(iter(plain)) for _ in sent]
    assert [each.event_name for each in found] == [
        "book.Moved",
        "book.Closed",
        "book.Opened",
        "book.Moved",
    ]
    assert [(each.key, each.schema_id) for each in found] == [
        (key, number) for key in (b"5", b"1", b"1", b"7")
    ]
    assert {each.timestamp for each in found} == {int(AT.timestamp() * 1000)}
    app = Consumers(group="entries", bootstrap=broker.address, registry=registry.url)
    seen: list[Any] = []
    for cls in (book.Opened, book.Moved, book.Closed):
        app.on(cls)(lambda message: seen.append(message.event))
    run_until(app, lambda: len(seen) == len(sent))
    assert seen == sent


@pytest.mark.parametrize(
    ("schema", "datum", "name", "shown"),
    [
        (PAID, {"cents": 5}, "bank.Paid", {"cents": 5}),
        ([PAID, LOST], ("bank.Lost", {"at": 5}), "bank.Lost", {"bank.Lost": {"at": 5}}),
        (["null", PAID], ("bank.Paid", {"cents": 5}), "bank.Paid", {"cents": 5}),
        (["null", PAID, LOST], None, None, None),
        ("long", 7, None, 7),
        ([PAID, "long", LOST], 7, None, 7),
        (  # a record of a union may be defined inside another one
            [member("Pair", "a", fields=[{"name": "a", "type": PAID}]), "bank.Paid"],
            ("bank.Paid", {"cents": 5}),
            "bank.Paid",
            {"bank.Paid": {"cents": 5}},
        ),
    ],
)
def test_a_dict_knows_the_name_of_its_record(
    schema: Any, datum: Any, name: str | None, shown: Any
) -> None:
    decoder = Decoder(Registry(schema), "payments")  # type: ignore[arg-type]
    event, _ = decoder.decode(encoded(schema, datum))
    assert event == (datum[1] if isinstance(datum, tuple) else datum)
    assert event_name(event) == name
    assert tagged(event) == shown
    if name is not None:
        again = pickle.loads(pickle.dumps(copy.deepcopy(event)))
        assert (again, event_name(again), json.dumps(again)) == (event, name, json.dumps(event))


def test_a_class_has_the_name_of_its_record(tmp_path: Path) -> None:
    bank = build(tmp_path, {"a.avsc": json.dumps(PAID)})["bank"]
    assert event_name(bank.Paid(cents=5)) == "bank.Paid"
    assert event_name(Deleted(bank.Paid, b"k")) is None


def test_the_bytes_of_a_union_are_those_of_fastavro(tmp_path: Path) -> None:
    union = [record(f"E{number}", "n") | {"headworks": {"topic": "t"}} for number in range(130)]
    package = build(tmp_path, {"t.avsc": json.dumps(union)})
    (module,) = package.values()
    for number in (0, 63, 64, 129):
        made = getattr(module, f"E{number}")(n=number)
        kind = event_type(made)
        whole = encoded(union, (f"E{number}", {"n": number}))
        assert prefix(1) + kind.encode(made) == whole
        for encoder in (kind.encoder, kind.python_encoder):
            assert encoder.message(prefix(1) + kind.branch, made)[0] == whole
        assert from_json(type(made), to_json(made)) == made


def test_the_classes_of_a_union_read_with_one_schema(
    tmp_path: Path, broker: Service, registry: Service
) -> None:
    """Several classes tell the audit the group's schema; those of several schemas do not."""
    union = json.dumps([record(name, "n") | {"headworks": {"topic": "one"}} for name in "AB"])
    number = RegistryClient(registry.url).register("one-value", union).id
    texts = {"u.avsc": union, "p.avsc": json.dumps(PAID), "r.avsc": json.dumps(REFUNDED)}
    modules = build(tmp_path, texts)
    of_union, bank = modules["default"], modules["bank"]
    events = [of_union.A, of_union.B, bank.Paid, bank.Refunded]
    client = {"bootstrap.servers": broker.address}
    tier = AuditTier(client, registry.url, "g", "a", tmp_path / "state", events, every=3600)
    try:
        tier.look_up()
        assert (tier._reader("one"), tier._reader("payments")) == (number, UNREGISTERED)
    finally:
        tier.close()


def version(*more: Any, topic: str = "ledger") -> str:
    fields = [{"name": "n", "type": "long"}, *more]
    made = {"type": "record", "name": "Line", "namespace": "books", "fields": fields}
    return json.dumps(made | {"headworks": {"topic": topic}})


def test_each_version_of_a_record_is_read_by_its_own_class(tmp_path: Path) -> None:
    added = {"name": "note", "type": "string", "default": ""}
    later = {"name": "place", "type": "string", "default": ""}
    first, second = version(), version(added)
    one, two = (build(tmp_path, {"l.avsc": text})["books"] for text in (first, second))
    for kinds in ((one, two), (two, one)):
        found = []
        for text, datum in (
            (first, {"n": 1}),
            (second, {"n": 2, "note": "x"}),
            (version(added, later), {"n": 3, "note": "y", "place": "z"}),
        ):
            types = [event_type(each.Line) for each in kinds]
            decoder = Decoder(Registry(json.loads(text)), "ledger", *types)  # type: ignore[arg-type]
            found.append(decoder.decode(encoded(json.loads(text), datum))[0])
        assert found[:2] == [one.Line(n=1), two.Line(n=2, note="x")]
        assert type(found[2]) is kinds[0].Line  # no class has its schema: the first reads it


def test_a_class_of_the_name_comes_before_an_alias(tmp_path: Path) -> None:
    renamed = member("Returned", "back", aliases=["Refunded"])
    old = build(tmp_path, {"a.avsc": json.dumps(renamed)})["bank"]
    new = build(tmp_path, {"a.avsc": json.dumps(REFUNDED)})["bank"]
    kinds = event_type(old.Returned), event_type(new.Refunded)
    decoder = Decoder(Registry(REFUNDED), "payments", *kinds)  # type: ignore[arg-type]
    assert decoder.decode(encoded(REFUNDED, {"back": 3}))[0] == new.Refunded(back=3)


def test_classes_of_one_name_have_their_own_handlers(
    tmp_path: Path, broker: Service, registry: Service
) -> None:
    """Two versions of one topic, and the same record on another topic."""
    added = {"name": "note", "type": "string", "default": ""}
    texts = version(), version(added), version(topic="archive")
    one, two, other = (build(tmp_path, {"l.avsc": text})["books"].Line for text in texts)
    for text, topic in zip(texts, ("ledger", "ledger", "archive"), strict=True):
        RegistryClient(registry.url).register(f"{topic}-value", text)
    sent = [one(n=1), two(n=2, note="x"), other(n=3), one(n=4)]
    with Producer(
        broker.address,
        registry.url,
        application="test",
        events=(one, two, other),
        state_dir=tmp_path / "state",
        close_timeout=60.0,
    ) as producer:
        for each in sent:
            producer.send(each, partition=0)
    app = Consumers(group="lines", bootstrap=broker.address, registry=registry.url)
    seen: dict[type, list[Any]] = {one: [], two: [], other: []}

    def keep(cls: type) -> None:
        @app.on(cls)
        def handle(message: Message[Any]) -> None:
            seen[cls].append(message.event)

    for cls in seen:
        keep(cls)
    run_until(app, lambda: sum(map(len, seen.values())) == len(sent))
    assert seen == {one: [sent[0], sent[3]], two: [sent[1]], other: [sent[2]]}


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
