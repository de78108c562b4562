"""Audit findings, and the webhook: one alert when a finding begins and one when it is over."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest

from headworks._audit import alerts, queries
from headworks._audit.alerts import send_alerts, webhook
from headworks._audit.findings import KINDS, AuditFinding, findings, general_findings
from headworks._audit.increments import CountedRange, Increment
from headworks._audit.metrics import AuditMetrics, take_snapshot
from headworks._audit.store import AuditStore
from headworks._audit.store.retention import Retention, remove_expired
from headworks._audit.thresholds import Thresholds, save_thresholds, stored_thresholds
from headworks._audit_counting import AUDIT_TOPIC
from tests.audit.test_store import DAY, WINDOW, add, increment, pass_all
from tests.waiting import PATIENCE

pytestmark = pytest.mark.unit

NOW = 10 * DAY
HOUR = 3_600_000
RECENT = (NOW - 2 * HOUR) // WINDOW


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    opened = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    yield opened
    opened.close()


def sent(topic: str, n: int, window: int = RECENT, at: int = NOW - HOUR) -> Any:
    return increment(topic, "producer", window, {"attempted": n, "delivered": n}, sent_at=at)


def loaded(topic: str, n: int, window: int = RECENT, at: int = NOW - HOUR) -> Any:
    return increment(topic, "hadoop", window, {"loaded": n}, sent_at=at)


def found(store: AuditStore, **thresholds: Any) -> dict[str, AuditFinding]:
    return {f.key: f for f in findings(store, NOW, Thresholds(**thresholds))}


def test_nothing_is_wrong_when_everything_is_there(store: AuditStore) -> None:
    add(store, sent("t", 10), loaded("t", 10), at=NOW - HOUR)
    assert found(store) == {}


def test_loss_below_the_sla_is_found_and_within_it_is_not(store: AuditStore) -> None:
    add(store, sent("bad", 1000), loaded("bad", 998), sent("good", 1000), loaded("good", 999))
    pass_all(store)
    seen = found(store, max_skew_ms=10 * DAY)
    assert list(seen) == ["lost/hadoop/bad"]
    assert "2 of 1,000 messages are lost" in seen["lost/hadoop/bad"].text


def test_messages_that_wait_for_a_load_are_overdue_and_not_lost(store: AuditStore) -> None:
    add(store, sent("t", 1000), loaded("t", 900), at=NOW - HOUR)
    (one,) = found(store).values()
    assert (one.kind, one.tier) == ("overdue", "hadoop")
    assert "100 of 1,000 messages still wait" in one.text


def test_messages_that_producers_dropped_or_gave_up_are_found(store: AuditStore) -> None:
    counts = {"attempted": 410, "delivered": 10, "dropped:queue_full": 350, "dropped:closed": 50}
    one = increment("t", "producer", RECENT, counts, sent_at=NOW - HOUR)
    add(store, one, loaded("t", 10), at=NOW - HOUR)
    assert {key: f.text.split(";")[0] for key, f in found(store).items()} == {
        "dropped/producer/t": "t: producers dropped 350 of 410 messages",
        "failed/producer/t": "t: producers gave up 50 of 410 messages with an error",
    }


def test_every_reader_of_a_store_uses_the_thresholds_of_its_reconciler(store: AuditStore) -> None:
    assert stored_thresholds(store) == Thresholds()
    save_thresholds(store, Thresholds(sla=0.9, complete_within_ms=2 * HOUR))
    save_thresholds(store, Thresholds(sla=0.9, complete_within_ms=HOUR))
    assert stored_thresholds(store) == Thresholds(sla=0.9, complete_within_ms=HOUR)


def test_general_findings_concern_no_window(store: AuditStore) -> None:
    add(store, sent("bad", 1000), loaded("bad", 998), sent("ghost", 5), at=NOW)
    pass_all(store)
    seen = [one.key for one in general_findings(store, NOW, Thresholds())]
    assert seen == ["skewed/producer/host/app", "unknown/hadoop/ghost"]
    assert {*found(store)} == {*seen, "lost/hadoop/bad", "lost/hadoop/ghost"}


def test_a_window_is_not_judged_before_its_time(store: AuditStore) -> None:
    young = NOW // WINDOW - 2
    add(store, sent("t", 10, young, NOW), loaded("t", 1, young, NOW), at=NOW)
    assert found(store, complete_within_ms=HOUR) == {}
    assert found(store, complete_within_ms=0) == {}  # somebody has just counted into it
    assert [f.key for f in findings(store, NOW + 130_000, Thresholds(complete_within_ms=0))] == [
        "overdue/hadoop/t"
    ]
    pass_all(store)  # now it is certain, however fresh the counts are
    assert list(found(store, complete_within_ms=0)) == ["lost/hadoop/t"]
    assert found(store, complete_within_ms=HOUR) == {}


def test_what_no_producer_reported_is_no_duplicate(store: AuditStore) -> None:
    add(store, sent("t", 10), loaded("t", 12), at=NOW - HOUR)
    (one,) = found(store).values()
    assert one.key == "surplus/hadoop/t"
    assert "2 more messages than producers reported (10)" in one.text


def test_offsets_that_were_loaded_twice_are_duplicates(store: AuditStore) -> None:
    for load, n in ((1, 10), (2, 2)):
        counts, ranges = {"loaded": n}, (CountedRange(0, 0, n),)
        at = NOW - HOUR + load
        one = increment("t", "hadoop", RECENT, counts, sent_at=at, commit=load, ranges=ranges)
        add(store, one, at=NOW - HOUR)
    add(store, sent("t", 10), at=NOW - HOUR)
    (finding,) = found(store).values()
    assert finding.key == "duplicated/hadoop/t"
    assert "2 messages are duplicated" in finding.text


def test_a_tier_that_went_silent_and_one_that_rests_with_its_producers(store: AuditStore) -> None:
    add(store, sent("t", 10, at=NOW), loaded("t", 10, at=NOW - 2 * HOUR))
    assert "silent/hadoop" in found(store, max_skew_ms=20 * DAY)
    assert "silent/producer" not in found(store, max_skew_ms=20 * DAY)
    add(store, loaded("t", 1, at=NOW + 1))
    assert "silent/hadoop" not in found(store, max_skew_ms=20 * DAY)


def steady(topic: str, *days: range) -> list[Any]:
    """Reports of a producer in each of these windows, as they were sent."""
    first = NOW // WINDOW
    told = {"attempted": 1, "delivered": 1}
    return [
        increment(topic, "producer", first + w, told, sent_at=(first + w + 1) * WINDOW)
        for windows in days
        for w in windows
    ]


def test_producers_that_stopped_are_noticed_and_those_that_rest_are_not(store: AuditStore) -> None:
    add(store, *steady("stopped", range(-40, -6)), at=NOW)
    add(store, *steady("busy", range(-40, 0)), *steady("sparse", range(-40, -6, 2)), at=NOW)
    yesterday, today = range(-170, -150), range(-26, -6)
    add(store, *steady("nightly", yesterday, today), at=NOW)
    quiet = [f for f in found(store, max_skew_ms=20 * DAY).values() if f.kind == "quiet"]
    assert [one.topic for one in quiet] == ["stopped"]
    assert "18 of the 18 windows up to 1970-01-10T23:00:00Z" in quiet[0].text


def heartbeat(process: str, at: int, host: str = "web1", **counts: int) -> Increment:
    return Increment(
        process, AUDIT_TOPIC, "producer", at, counts or {"running": 60}, 0, host, "app", at
    )


def test_a_killed_process_is_found_beside_living_ones_of_its_application(store: AuditStore) -> None:
    minutes = [NOW - HOUR + n * 60_000 for n in range(60)]
    add(store, *(heartbeat("lives", at) for at in minutes), at=NOW)
    add(store, *(heartbeat("killed", at) for at in minutes[:20]), at=NOW)
    add(store, *(heartbeat("closed", at, "web2") for at in minutes[:20]), at=NOW)
    add(store, heartbeat("closed", minutes[20], "web2", ended=1), heartbeat("closed", minutes[19]))
    add(store, heartbeat("slow", minutes[10], "web3", running=1_200), at=NOW)
    (one,) = found(store, silent_after_ms=HOUR // 2).values()
    assert one.key == "vanished/producer/web1/app"
    assert one.text.startswith(
        "1 process of app on web1 sent the last heartbeat at 1970-01-10T23:19:00Z, did not close"
    )
    assert queries.sources(store) == []  # a heartbeat counts nothing
    add(store, heartbeat("killed", NOW, "web9", ended=1))  # its successor has published its counts
    assert found(store) == {}
    assert remove_expired(store, NOW + 2 * DAY, Retention()) == 2
    assert remove_expired(store, NOW + 20 * DAY, Retention()) == 2


def test_every_kind_of_finding_is_documented(root: Path) -> None:
    text = (root / "docs" / "audit.md").read_text(encoding="utf-8")
    kinds = text.partition("The kinds of findings:")[2].partition("The console's first page")[0]
    documented = {kind for row in kinds.splitlines() for kind in re.findall("`(.+?)`", row[:30])}
    assert documented == {*KINDS}


def test_a_surplus_names_the_producer_that_reports_no_more(store: AuditStore) -> None:
    end = (RECENT + 1) * WINDOW
    for host, at in (("web1", end - 60_000), ("web2", end + 300_000)):
        told = {"attempted": 5, "delivered": 5}
        one = increment("t", "producer", RECENT, told, host=host, sent_at=at)
        add(store, one, at=at)
    add(store, loaded("t", 13), at=NOW - HOUR)
    (finding,) = (f for f in found(store).values() if f.kind == "surplus")
    assert "likely app on web1" in finding.text
    assert "web2" not in finding.text


def test_topics_that_a_tier_does_not_know(store: AuditStore) -> None:
    add(store, sent("t", 10), loaded("t", 10), sent("new", 5), loaded("foreign", 7), at=NOW - HOUR)
    assert {"unknown/hadoop/new", "unreferenced/hadoop/foreign"} == found(store).keys()


def test_a_consumer_is_judged_on_the_topics_that_it_reads(store: AuditStore) -> None:
    reads = increment("a", "consumer:g", RECENT, {"consumed": 10}, sent_at=NOW - HOUR)
    add(store, sent("a", 10), sent("b", 10), reads, at=NOW - HOUR)
    assert found(store) == {}


def test_a_wrong_clock_and_a_producer_that_left_messages_open(store: AuditStore) -> None:
    counts = {"attempted": 9, "delivered": 5}
    ahead = increment("t", "producer", RECENT, counts, sent_at=NOW - HOUR, host="ahead")
    add(store, ahead, loaded("t", 9, at=NOW - 2 * HOUR), at=NOW - 2 * HOUR)
    seen = found(store)
    assert "3,600 s ahead" in seen["skewed/producer/ahead/app"].text
    assert "4 messages" in seen["abandoned/producer/ahead/app"].text


class Hook:
    """A webhook of one's own: what it was told, and whether it takes anything."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if hook.status == 200:
                    hook.told.append(json.loads(body))
                self.send_response(hook.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    opened = Hook()
    yield opened
    opened.close()


@pytest.mark.e2e
def test_an_alert_is_sent_once_and_again_when_it_is_resolved(
    store: AuditStore, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may keep the thread of the hook waiting.
    monkeypatch.setattr(alerts, "_TIMEOUT_SECONDS", PATIENCE)
    post = webhook(hook.url)
    one = AuditFinding("duplicated", "duplicated/hadoop/t", "hadoop", "t", "twice")
    hook.status = 503
    assert send_alerts(store, [one], 1, post) == 0
    hook.status = 200
    assert send_alerts(store, [one], 2, post) == 1
    assert send_alerts(store, [one], 3, post) == 0
    again = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")  # as after a restart
    assert send_alerts(again, [one], 4, post) == 0
    assert send_alerts(again, [], 5, post) == 1
    again.close()
    firing, resolved = hook.told
    assert firing["firing"] == [{**one.as_dict(), "since": 2}]
    assert resolved["resolved"] == [{**one.as_dict(), "since": 2}]


def test_metrics_have_the_series_that_the_alert_rules_query(store: AuditStore, root: Path) -> None:
    add(store, sent("t", 10), loaded("t", 8), at=NOW - HOUR)
    pass_all(store)
    metrics = AuditMetrics()
    metrics.last = take_snapshot(store, NOW, findings(store, NOW, Thresholds()))
    text = generate_latest(metrics.registry).decode()
    assert 'headworks_audit_messages{state="lost",tier="hadoop"} 2.0' in text
    assert 'headworks_audit_findings{kind="lost"} 1.0' in text
    assert 'headworks_audit_worst_topic_lost_messages{tier="hadoop",topic="t"} 2.0' in text
    import yaml

    rules = yaml.safe_load((root / "deploy" / "alerts" / "audit.yml").read_text())
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}
    for rule in rules["groups"][0]["rules"]:
        asked = {word for word in names if word in rule["expr"]}
        assert asked, rule["alert"]


def test_upkeep_forgets_details_and_keeps_sums(store: AuditStore) -> None:
    for n in range(5):
        add(store, sent("t", 10, 1, at=n * 1000), loaded("t", 10, 1, at=n * 1000), at=n)
    add(store, sent("t", 10, 2, at=DAY), loaded("t", 9, 2, at=DAY), at=DAY)
    assert remove_expired(store, 2 * DAY, Retention(details_ms=DAY + HOUR, sums_ms=400 * DAY)) > 0
    before = queries.balances(store, "hadoop")
    assert [(b.delivered, b.accounted) for b in before] == [(50, 50), (10, 9)]
    assert not queries.explain(store, "t", WINDOW).contributions
    assert len(queries.explain(store, "t", 2 * WINDOW).contributions) == 2
    add(store, loaded("t", 1, 2, at=DAY + 1))  # the rest still finds its window
    assert queries.balances(store, "hadoop")[1].complete
    remove_expired(store, 500 * DAY, Retention(details_ms=DAY, sums_ms=400 * DAY))
    assert queries.balances(store, "hadoop") == []
    assert queries.sources(store) == []


def test_ids_that_are_no_uuids_count_once_too(store: AuditStore) -> None:
    one = increment("t", "hadoop", 0, {"loaded": 1})
    odd = type(one)(**{**{f: getattr(one, f) for f in one.__slots__}, "id": "load-1/t/0"})
    assert add(store, odd) == 1
    assert add(store, odd) == 0
    assert uuid.UUID(one.id)


def test_a_window_that_waits_for_its_load_is_no_delay_yet(store: AuditStore) -> None:
    for window, arrived in ((0, True), (1, False)):
        add(store, increment("t", "producer", window, {"attempted": 9, "delivered": 9}, sent_at=1))
        if arrived:
            add(store, increment("t", "hadoop", window, {"loaded": 9}, sent_at=2))
    end, patience = 2 * WINDOW, Thresholds().complete_within_ms

    def seconds(now: int) -> float | None:
        (tier,) = [one for one in take_snapshot(store, now, []).tiers if one.state.tier == "hadoop"]
        return tier.time.p95

    def metrics(now: int) -> str:
        page = AuditMetrics()
        page.last = take_snapshot(store, now, [])
        return generate_latest(page.registry).decode()

    assert "headworks_audit_complete_seconds{" not in metrics(patience)  # no window is due yet
    assert "headworks_audit_complete_seconds{" in metrics(end + patience)
    assert seconds(end + patience - 1) is not None
    assert seconds(end + patience) is None  # it is due, and nothing of it arrived
