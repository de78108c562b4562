"""The metrics, read back with Prometheus' own parser."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from headworks._registry.security.route_rules import RULES
from headworks._server import child_process
from tests.registry.guarding import As, basic, start, write_files
from tests.registry.rest import fresh, record, text_of

pytestmark = pytest.mark.e2e

V1 = text_of(record("id:long"))
BROKEN = text_of(record("id:long", "n:int"))
_NAME = "headworks_registry_"


class Scrape:
    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        answer = urllib3.request("GET", url + "/metrics", headers=headers)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        self.samples = [
            sample
            for family in text_string_to_metric_families(answer.data.decode())
            for sample in family.samples
        ]

    def value(self, name: str, **labels: str) -> float:
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == _NAME + name and labels.items() <= sample.labels.items()
        )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    with start(tmp_path_factory.mktemp("metrics")) as one:
        yield one


def test_requests_and_their_time(running: child_process.Service) -> None:
    ask, subject = As(running.url, {}), fresh()
    route = "/subjects/{subject}/versions"
    before, began = Scrape(running.url), time.monotonic()
    for _ in range(3):
        assert ask("POST", f"/subjects/{subject}/versions", {"schema": V1}).status == 200
    assert ask("POST", f"/subjects/{subject}/versions", {"schema": BROKEN}).status == 409
    assert ask("GET", "/subjects/none/versions").code == 40401
    after, took = Scrape(running.url), time.monotonic() - began

    def more(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    assert more("requests_total", method="POST", route=route, status="200") == 3
    assert more("requests_total", method="POST", route=route, status="409") == 1
    assert more("requests_total", method="GET", route=route, status="404") == 1
    assert more("request_seconds_count", method="POST", route=route) == 4
    assert 0 < more("request_seconds_sum", method="POST", route=route) < took
    assert more("registrations_total", outcome="registered") == 3
    assert more("registrations_total", outcome="refused") == 1
    assert more("refusals_total", code="40901") == 1
    assert more("refusals_total", code="40401") == 1
    assert more("incompatible_total", rule="HW001") == 1
    assert after.value("requests_in_flight") == 1  # the scrape itself
    assert more("subjects") == more("versions") == 1
    assert after.value("info") == 1


def test_reads_from_memory(running: child_process.Service) -> None:
    ask = As(running.url, {})
    number = ask("POST", f"/subjects/{fresh()}/versions", {"schema": V1}).body["id"]
    ask("GET", f"/schemas/ids/{number}")
    read = {"route": "/schemas/ids/{schema_id}"}
    counted, kept = [], []
    for _ in range(2):
        before = Scrape(running.url)
        for _ in range(7):
            ask("GET", f"/schemas/ids/{number}")
        after = Scrape(running.url)
        asked = after.value("requests_total", **read) - before.value("requests_total", **read)
        hits = after.value("fast_reads_total") - before.value("fast_reads_total")
        counted.append((hits, asked))
        kept.append(after.value("fast_reads_bytes"))
    # The look at the store's revision finds the registration above once, at a time of its own, and
    # what is in memory is forgotten then.
    assert (7, 0) in counted
    assert sum(hits + asked for hits, asked in counted) == 14
    assert max(kept) > 0


def test_totals_follow_the_store(running: child_process.Service) -> None:
    ask, subject = As(running.url, {}), fresh()
    before = Scrape(running.url)
    ask("POST", f"/subjects/{subject}/versions", {"schema": V1})
    assert Scrape(running.url).value("subjects") == before.value("subjects") + 1
    ask("DELETE", f"/subjects/{subject}")
    assert Scrape(running.url).value("subjects") == before.value("subjects")


def test_labels_are_bounded(running: child_process.Service) -> None:
    """Whatever callers send, labels are the program's own words."""
    ask = As(running.url, {})
    for number in range(20):
        ask("GET", f"/nothing/{number}")
        ask("GET", f"/subjects/unknown-{number}/versions")
        ask("POST", f"/subjects/unknown-{number}/versions", {"schema": f"bad {number}"})
    for method in ("PROPFIND", "PATCH", "TRACE", "LINK"):
        ask(method, "/subjects")
    routes = {route for _, route in RULES} | {"none"}
    for sample in Scrape(running.url).samples:
        assert "unknown" not in str(sample.labels)
        assert "nothing" not in str(sample.labels)
        assert sample.labels.get("route", "none") in routes
        assert sample.labels.get("method", "GET") in {"GET", "POST", "PUT", "DELETE", "other"}


def test_scraping_needs_a_reader_and_failed_logins_are_counted(tmp_path: Path) -> None:
    with start(tmp_path, *write_files(tmp_path)) as running:
        assert urllib3.request("GET", running.url + "/metrics").status == 401
        for headers in (basic("root", "x"), {"Authorization": "Bearer x"}, basic("nobody")):
            As(running.url, headers)("GET", "/subjects")
        scrape = Scrape(running.url, basic("reader"))
        assert scrape.value("authentication_failures_total", reason="password") == 1
        assert scrape.value("authentication_failures_total", reason="scheme") == 1
        assert scrape.value("refusals_total", code="401") == 3
        assert scrape.value("refusals_total", code="40301") == 1


def test_a_store_that_fails_is_counted(tmp_path: Path) -> None:
    import sqlite3

    with start(tmp_path) as running:
        ask = As(running.url, {})
        assert ask("POST", f"/subjects/{fresh()}/versions", {"schema": V1}).status == 200
        with sqlite3.connect(tmp_path / "registry.db") as connection:
            connection.execute("DROP TABLE versions")
        connection.close()
        assert ask("GET", "/subjects").code == 50001
        reply = urllib3.request("GET", running.url + "/metrics")
        assert reply.status == 200, "what can be told is told"
        assert b"headworks_registry_store_errors_total 1.0" in reply.data
