"""The console as a server: what it answers before anybody looks at a screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headworks._server import child_process
from headworks.errors import UsageError
from headworks.registry_client import Reference, RegistryClient
from tests.console.fetch import Fetch
from tests.damage import batches, flip_bit, produce_batches, segment

pytestmark = pytest.mark.e2e


def test_every_answer_forbids_what_comes_from_elsewhere(console: Fetch) -> None:
    for path in ("/topics", "/topics.json", "/static/console.css", "/nowhere", "/health"):
        policy = console(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert console(path).headers["x-content-type-options"] == "nosniff"


def test_pages_hold_no_script_and_no_style_of_their_own(console: Fetch) -> None:
    html = console("/topics").body
    assert "<style" not in html
    assert " style=" not in html
    assert "<script>" not in html
    assert "//" not in html.replace("<!doctype html>", "").replace("http://www.w3.org", "")


def test_a_name_that_is_no_address_is_not_answered(console: Fetch) -> None:
    assert console("/topics", headers={"Host": "evil.example"}).status == 421
    assert console("/topics", headers={"Host": "localhost:8090"}).status == 200


def test_an_unknown_page_says_so_in_both_forms(console: Fetch) -> None:
    assert console("/nowhere").status == 404
    assert "there is no page" in console("/nowhere").body
    assert console("/nowhere.json").json["data"]["fix"] == "start at /"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_it_only_reads(console: Fetch, method: str) -> None:
    for path in ("/topics", "/topics/x/messages", "/schemas/x-value/versions", "/groups/x/lag"):
        answer = console(path, method=method)
        assert answer.status == 405
        assert "only reads" in answer.body


@pytest.mark.parametrize("path", ["/topics?page=x", "/topics?page=-1", "/topics?page=" + "9" * 40])
def test_a_readers_mistake_is_said_and_is_no_error_of_the_server(console: Fetch, path: str) -> None:
    answer = console(path)
    assert answer.status == 400
    assert "page must be a whole number" in answer.body


def test_it_is_not_exposed_without_a_guard() -> None:
    with pytest.raises(UsageError, match="the console would not authenticate clients"):
        child_process.start(["console", "start", "--listen", "0.0.0.0:0"])


def test_subjects_of_every_context_are_shown(
    console: Fetch, registry: child_process.Service
) -> None:
    client = RegistryClient(registry.url)
    place, order = ":.eu:place", ":.eu:orders-value"
    client.register(place, _record("Place", {"name": "city", "type": "string"}))
    text = _record("Order", {"name": "to", "type": "Place"})
    client.register(order, text, references=[Reference("Place", place, 1)])

    def listed(rows: Any) -> bool:
        return {place, order} <= {row["subject"] for row in rows["rows"]}

    data = console.until("/schemas.json?q=:.eu:", listed)
    (row,) = (row for row in data["rows"] if row["subject"] == order)
    assert (row["type_name"], row["problem"], row["topic"]) == ("Order", None, None)
    page = console(f"/schemas/{quote(order, safe='')}/versions")
    assert page.status == 200, page.body
    assert "to.city" in page.body


def _record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def test_a_damaged_batch_is_a_row_that_names_it(
    console: Fetch, broker: child_process.Service, broker_folder: Path
) -> None:
    topic = "rotten-on-a-page"
    values = [b"value-%04d-abcdefghijklmnop" % n for n in range(40)]
    produce_batches(broker.address, topic, values)
    path = segment(broker_folder, topic)
    flip_bit(path, batches(path)[2])
    console.until(f"/topics.json?q={topic}", lambda data: data["part"]["total"] == 1)
    page = f"/topics/{topic}/messages.json?from=0:0&limit=100"
    # Within five seconds a busy broker may send only some of them.
    rows = console.until(page, lambda data: len(data["rows"]) == 31)["rows"]
    assert [row["event"] for row in rows if not row["problem"]] == [
        value.decode() for value in values[:20] + values[30:]
    ]
    (damaged,) = (row for row in rows if row["problem"])
    assert (damaged["partition"], damaged["offset"], damaged["event"]) == (0, 20, None)
    assert "the record batch here is damaged, up to offset 30" in damaged["problem"]
    assert damaged["problem"] in console(f"/topics/{topic}/messages?limit=100").body
