"""Lost events and brokers that are away: logged at once, and counted for metrics."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headworks._cli.stack.ports import free_ports
from headworks._kafka.trouble_log import TroubleLog
from headworks._server import child_process
from headworks._server.child_process import Service
from producer_sdk import Producer, ProducerTotals, WhenFull
from producer_sdk._hung_broker import HungBroker
from producer_sdk.prometheus import ProducerCollector
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "headworks.producer"]


def test_a_full_queue_is_logged_at_once_and_then_once_a_minute(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[ProducerTotals] = []
    with HungBroker() as hung:
        producer = Producer(
            hung.address,
            site.registry,
            application="test",
            state_dir=site.state,
            queue_messages=10,
            close_timeout=0.1,
            audit_every=3600,  # its counts would take places in the queue
            on_loss=seen.append,
        )
        sent = [producer.send(site.visit()) for _ in range(11)]
        assert sent.count(False) == 1  # one alone: between two, the thread that logs may look
        until(lambda: lines(caplog) and seen)
        assert lines(caplog) == ["events lost: 1 dropped, because the queue is full"]
        assert seen[-1].dropped["queue_full"] == 1
        assert producer.totals == seen[-1]
        assert (seen[-1].attempted, seen[-1].delivered, seen[-1].queued) == (11, 0, 10)
        assert not any(producer.send(site.visit()) for _ in range(2))
        until(lambda: len(seen) > 1)
        assert len(lines(caplog)) == 1, "once a minute"
        producer.close()
        assert "events lost: 2 dropped, because the queue is full" in lines(caplog)
        assert producer.totals.dropped == {**seen[0].dropped, "queue_full": 3, "closed": 10}
        assert producer.totals.queued == 0


def test_a_broker_that_is_away_and_comes_back(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headworks.producer")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with Producer(
        address,
        site.registry,
        application="test",
        state_dir=site.state,
        close_timeout=0.5,
        config={"message.timeout.ms": 1000, "reconnect.backoff.max.ms": 200},
    ) as producer:
        producer.send(site.visit())
        until(lambda: producer.totals.dropped["timed_out"])
        until(lambda: len(lines(caplog)) == 2)
        assert f"no broker at {address} answers: " in lines(caplog)[0]
        assert "Connection refused" in lines(caplog)[0]
        assert lines(caplog)[1] == (
            "events lost: 1 dropped, because they were not delivered within message.timeout.ms"
        )
        arguments = ["broker", "start", "--listen", address, "--data-dir", str(tmp_path / "data")]
        with child_process.start(arguments):
            until(lambda: producer.send(site.visit()) and producer.totals.delivered)
            until(lambda: any("answer again, after" in line for line in lines(caplog)))


def test_totals_go_on_when_counts_are_published(site: Site) -> None:
    with Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state, audit_every=0.05
    ) as producer:
        for number in range(1, 4):
            producer.send_and_wait(site.visit(), 60)
            until(lambda: sum(producer.counts().values()) == 0)
            assert (producer.totals.attempted, producer.totals.delivered) == (number, number)
        page = CollectorRegistry()
        page.register(ProducerCollector(producer, application="test"))
        text = generate_latest(page).decode()
    delivered = 'headworks_producer_events_total{application="test",outcome="delivered"} 3.0'
    assert delivered in text
    assert 'outcome="dropped:queue_full"} 0.0' in text
    assert 'headworks_producer_queued_events{application="test"} 0.0' in text


def test_a_callback_that_raises_harms_nothing(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def raises(_: ProducerTotals) -> None:
        raise RuntimeError("the user's mistake")

    with HungBroker() as hung:
        producer = Producer(
            hung.address,
            site.registry,
            application="test",
            state_dir=site.state,
            when_full=WhenFull.DROP_NEW,
            queue_messages=1,
            close_timeout=0.1,
            audit_every=3600,
            on_loss=raises,
        )
        assert [producer.send(site.visit()) for _ in range(2)] == [True, False]
        until(lambda: "on_loss failed" in lines(caplog))
        producer.close()


def test_a_line_names_how_many_it_follows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr("headworks._kafka.trouble_log.time.monotonic", lambda: now[0])
    trouble = TroubleLog(logging.getLogger("headworks.producer"))
    for at in (100, 101, 159, 161):
        now[0] = at
        trouble.warn("kind", "it happened")
        trouble.warn("other", "something else")
    assert lines(caplog) == [
        "it happened",
        "something else",
        "it happened (2 more since the last line)",
        "something else (2 more since the last line)",
    ]
