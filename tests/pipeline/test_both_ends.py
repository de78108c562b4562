"""Producer and consumer through a real broker and registry, and what the audit says of it."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from consumer_sdk import Consumer, OnPoison, PoisonMessageError
from headworks._audit.balance import Balance, total
from headworks._audit.reader import read_ledger
from headworks._server.child_process import Service
from headworks.codec import EncodeError
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from producer_sdk import DeliveryError, Producer, WhenFull
from tests.producer_sdk.events import AT, Site, new_site

pytestmark = pytest.mark.e2e

NOBODY = "127.0.0.1:1"


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def producer(site: Site, **more: Any) -> Producer:
    options = {"application": "test", "state_dir": site.state, "close_timeout": 60.0, **more}
    options.setdefault("audit_every", 3600)  # counts stay to be seen, however slow the machine is
    return Producer(options.pop("bootstrap", site.bootstrap), site.registry, **options)


def read(site: Site, count: int, *events: type, **more: Any) -> list[Any]:
    group = more.pop("group", f"readers-of-{site.topic}")
    asked: dict[str, Any] = {"events": events} if events else {"topics": [site.topic]}
    found: list[Any] = []
    with Consumer[Any](
        group=group, bootstrap=site.bootstrap, registry=site.registry, **asked, **more
    ) as consumer:
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {count} came"
            found.append(message)
    return found


def balance(site: Site) -> Balance:
    return total(read_ledger(site.bootstrap, site.registry).balances("hadoop", site.topic))


def test_typed_events_go_through(site: Site) -> None:
    with producer(site) as to:
        for user in ("ada", "grace"):
            assert to.send(site.visit(user), headers={"trace": b"1"})
    messages = read(site, 2, site.one.Visit)
    assert sorted(m.event.user for m in messages) == ["ada", "grace"]
    assert {m.event.at for m in messages} == {AT}
    assert {m.timestamp for m in messages} == {int(AT.timestamp() * 1000)}
    assert {m.key for m in messages} == {b"ada", b"grace"}
    assert messages[0].headers == (("trace", b"1"),)
    assert messages[0].schema_id == messages[1].schema_id


def test_an_old_writer_is_read_with_the_new_schema_and_back(site: Site) -> None:
    two = site.two
    page = two.Page(url="/")
    with producer(site) as to:
        to.send(site.visit("old"))
        new = two.Visit(user="new", at=AT, seconds=1 << 20, device=two.Device.PHONE, page=page)
        to.send(new)
    new_reader = {m.event.user: m.event for m in read(site, 2, two.Visit, group="two")}
    assert new_reader["new"] == new
    old = two.Visit(user="old", at=AT, seconds=5)
    assert new_reader["old"] == old
    assert old.device is two.Device.UNKNOWN
    assert old.page is None
    plain = {m.event["user"]: m.event for m in read(site, 2, group="untyped")}
    assert plain["old"] == {"user": "old", "at": AT, "seconds": 5}
    assert plain["new"]["page"] == {"url": "/"}


def test_a_wrong_event_raises_and_is_not_counted(site: Site) -> None:
    with producer(site) as to:
        with pytest.raises(EncodeError, match="seconds"):
            to.send(site.visit(seconds="5"))
        with pytest.raises(TypeError, match="headworks gen"):
            to.send({"user": "ada"})  # type: ignore[arg-type]
        to.send(site.visit())
    assert balance(site).attempted == balance(site).delivered == 1


def test_the_audit_counts_every_message_in_its_window(site: Site) -> None:
    hours = [AT + dt.timedelta(hours=i) for i in range(6)]
    with producer(site, audit_every=0.05) as to:
        for i in range(600):
            to.send(site.visit(at=hours[i % 6]))
    rows = read_ledger(site.bootstrap, site.registry).balances("hadoop", site.topic)
    windows = Counter({row.window_start: row.delivered for row in rows})
    expected = {int(at.timestamp() * 1000) // 600_000 * 600_000: 100 for at in hours}
    assert windows == expected
    assert not list(site.state.glob("*.counts"))


def test_an_unregistered_schema_is_refused(site: Site, tmp_path: Path, broker: Service) -> None:
    other = site.topic + "-unknown"
    from tests.headworks.codec.generated_packages import build
    from tests.producer_sdk.events import visit_schema

    cls = build(tmp_path, {"v.avsc": visit_schema(other, 1)})["web"].Visit
    with pytest.raises(UsageError, match="headworks schema register"):
        producer(site, events=(cls,))
    with producer(site, auto_register=True) as to:
        to.send(cls(user="a", at=AT, seconds=1))
    assert RegistryClient(site.registry).versions(f"{other}-value") == [1]


def test_without_a_registry_a_known_schema_is_sent(site: Site) -> None:
    cls = site.one.Visit
    options: dict[str, Any] = {"application": "test", "state_dir": site.state, "events": (cls,)}
    options["close_timeout"] = 60.0
    with pytest.raises(UnreachableError):
        Producer(site.bootstrap, "http://" + NOBODY, **options)
    with producer(site) as to:
        to.send(site.visit())
    # The ids are remembered per registry: the address stays, the service is gone.
    memory = site.state / "schema-ids.json"
    memory.write_text(memory.read_text().replace(site.registry, "http://" + NOBODY))
    with Producer(site.bootstrap, "http://" + NOBODY, **options) as to:
        assert to.send(site.visit())
    assert len(read(site, 2, cls)) == 2


def test_a_full_queue_drops_and_counts(site: Site) -> None:
    to = producer(site, bootstrap=NOBODY, queue_messages=100, close_timeout=0.5)
    taken = sum(to.send(site.visit()) for _ in range(150))
    assert taken == 100
    assert to.counts()["attempted"] == 150
    assert to.counts()["dropped:queue_full"] == 50
    assert to.close() == 100
    # What could not be delivered nor reported is on disk, and the next producer reports it. Nothing
    # but the address says which cluster the counts are of.
    with producer(site, bootstrap=f"{site.bootstrap},{NOBODY}"):
        pass
    whole = balance(site)
    assert (whole.attempted, whole.delivered, whole.dropped, whole.failed) == (150, 0, 50, 100)


def test_a_full_queue_may_be_waited_for(site: Site) -> None:
    with producer(site, queue_messages=50, when_full=WhenFull.BLOCK, block_ms=60_000) as to:
        assert all(to.send(site.visit()) for _ in range(500))
    assert balance(site).delivered == 500


def test_waiting_for_an_acknowledgement(site: Site) -> None:
    with producer(site) as to:
        partition, offset = to.send_and_wait(site.visit(), 60)
        assert (to.send_and_wait(site.visit(), 60)) == (partition, offset + 1)
        assert asyncio.run(to.asend(site.visit()))
        assert to.flush(60) == 0
    with pytest.raises(UsageError, match="closed"):
        to.send(site.visit())
    lost = producer(site, bootstrap=NOBODY, close_timeout=0.2)
    with pytest.raises(DeliveryError, match="did not acknowledge"):
        lost.send_and_wait(site.visit(), 0.2)
    lost.close()


def test_what_was_processed_is_not_read_again(site: Site) -> None:
    with producer(site) as to:
        for i in range(10):
            to.send(site.visit(f"user{i}", seconds=i))
    group = f"once-{site.topic}"
    first = [m.event.seconds for m in read(site, 4, site.one.Visit, group=group)]
    rest = [m.event.seconds for m in read(site, 6, site.one.Visit, group=group)]
    assert sorted(first + rest) == list(range(10))


def test_what_raised_is_read_again(site: Site) -> None:
    with producer(site) as to:
        to.send(site.visit())
    group = f"again-{site.topic}"

    def fail() -> None:
        with Consumer(
            [site.one.Visit], group=group, bootstrap=site.bootstrap, registry=site.registry
        ) as consumer:
            for _ in consumer:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert len(read(site, 1, site.one.Visit, group=group)) == 1


def read_to_poison(consumer: Consumer[Any]) -> None:
    for _ in range(10):
        consumer.poll(60)


def test_a_poison_message_stops_or_is_skipped(site: Site) -> None:
    raw = confluent_kafka.Producer({"bootstrap.servers": site.bootstrap})
    raw.produce(site.topic, b"not framed", partition=0)
    raw.produce(site.topic, b"\x00\x00\x00\x00\x01\xff", partition=0)
    assert raw.flush(60) == 0
    with producer(site) as to:
        to.send(site.visit())
    with pytest.raises(PoisonMessageError, match=f"{site.topic} partition 0 offset 0"):
        read(site, 2, site.one.Visit)
    with Consumer(
        [site.one.Visit],
        group=f"stop-{site.topic}",
        bootstrap=site.bootstrap,
        registry=site.registry,
    ) as consumer:
        for _ in range(2):  # asking again does not skip it
            with pytest.raises(PoisonMessageError, match="partition 0 offset 0"):
                read_to_poison(consumer)
    with Consumer(
        [site.one.Visit],
        group=f"skip-{site.topic}",
        bootstrap=site.bootstrap,
        registry=site.registry,
        on_poison=OnPoison.SKIP,
    ) as consumer:
        found: list[Any] = []
        while not found or consumer.skipped < 2:
            message = consumer.poll(1)
            found += [] if message is None else [message.event]
        assert (found, consumer.skipped) == ([site.visit()], 2)
