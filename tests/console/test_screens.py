"""Every screen in a real browser, on the demo's events: what it shows, and how it is used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, Request, expect

from tests.console.browser import PATIENCE, assert_everything_fits, opened
from tests.console.fetch import Fetch
from tests.console.screens import SCREENS, address, without_address
from tests.console.screenshots import BREAKING
from tests.console.stage import SECRETS, Stage

pytestmark = pytest.mark.e2e

OPEN_ALL = "document.querySelectorAll('details').forEach(one => one.open = true)"

# The first look is often too early, and the last may take long on a busy machine.
expect.set_options(timeout=PATIENCE)


def is_hostile(shown: Any) -> bool:
    text = json.dumps(shown)
    return "hostile" in text or "onerror" in text


@pytest.fixture(scope="module")
def fetch(stage: Stage) -> Fetch:
    """The console, once it has heard of everything."""
    found = Fetch(stage.url)
    found.until("/topics.json", lambda data: len(data["part"]["rows"]) > 5)
    groups = ("punctuality-dashboard", "archive-export")
    found.until("/groups.json", lambda data: all(name in json.dumps(data) for name in groups))
    found.until("/home.json", lambda data: len(data["part"]["rows"]) > 4)
    found.until("/loads.json", lambda data: data["run_count"] == 2)
    return found


def test_every_route_is_looked_at() -> None:
    assert not without_address()


def _assert_accessible(page: Page, options: dict[str, Any] | None = None) -> None:
    found = Axe().run(page, options=options).response["violations"]
    assert not found, json.dumps(found, indent=1)


@pytest.mark.parametrize("path", SCREENS)
def test_every_screen_is_accessible_and_fits_every_window(
    browser: Browser, stage: Stage, fetch: Fetch, path: str
) -> None:
    with opened(browser, color_scheme="light") as page:
        page.goto(stage.url + address(path, fetch))
        expect(page.locator("main")).to_contain_text(SCREENS[path])
        _assert_accessible(page)
        page.emulate_media(color_scheme="dark")
        page.reload()  # or colors would still change from one scheme to the other
        _assert_accessible(page, {"runOnly": ["color-contrast"]})
        page.evaluate(OPEN_ALL)
        _assert_accessible(page)
        expect(page.locator("#command")).not_to_be_empty()
        assert_everything_fits(page)
        page.set_viewport_size({"width": 390, "height": 800})
        _assert_accessible(page, {"runOnly": ["target-size"]})  # fingers, too


def test_every_screen_is_there_without_javascript_and_as_json(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:
    with opened(browser, java_script_enabled=False) as page:
        for path, said in SCREENS.items():
            page.goto(stage.url + address(path, fetch))
            expect(page.locator("main")).to_contain_text(said)
            link = page.get_by_text("This page as JSON").get_attribute("href")
            assert link
            answer = fetch(link)
            assert answer.status == 200
            assert {"title", "command", "sources", "data"} == set(answer.json)


def test_the_heatmap_has_the_windows_of_a_topic_that_is_not_complete(fetch: Fetch) -> None:
    health = fetch.data("/home.json")
    worst = health["part"]["rows"][0]
    assert worst["topic"] == "weather"
    assert worst["states"]["lost"] == 4
    assert {cell["grade"] for cell in worst["cells"]} >= {1}
    assert not health["well"]
    assert "4 of" in health["sentence"]
    # What test_hostile did to the installation, if it came before this, is younger.
    news = [one["kind"] for one in health["news"] if not is_hostile(one)]
    assert news[:2] == ["load", "load"]


def test_the_audit_of_a_topic_explains_a_window(fetch: Fetch) -> None:
    audit = fetch.data("/audit/weather/windows.json")
    assert [tier["tier"] for tier in audit["tiers"]] == ["hadoop"]
    window = fetch.data(f"/audit/weather/windows/{audit['windows'][0]}.json")
    made = {(one["tier"], one["application"]) for one in window["contributions"]}
    assert made == {("producer", "departures-board"), ("hadoop", "headworks-loader")}
    assert window["loads"][0]["load"] == 2


def test_try_a_change_refuses_with_reasons_and_registers_nothing(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:
    before = stage.registry.versions("flights-value")
    with opened(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(f"{stage.url}/schemas/flights-value/versions")
        page.get_by_role("link", name="Try a change").last.click()
        text = page.locator("#schema")
        assert "punctuality" in text.input_value()
        text.fill(BREAKING.read_text(encoding="utf-8"))
        page.get_by_role("button", name="Try it").click()
        verdict = page.locator("section[aria-labelledby=verdict]")
        expect(verdict).to_contain_text("refused")
        expect(verdict).to_contain_text("fix")
        expect(verdict).to_contain_text("punctuality-dashboard")
        page.get_by_role("button", name="Copy the gate's command").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("headworks schema check proposed.avsc --against registry:")
        added = json.loads(stage.registry.version("flights-value", 2).text)
        added["fields"].append({"name": "gate", "type": ["null", "string"], "default": None})
        text.fill(json.dumps(added))
        page.get_by_role("button", name="Try it").click()
        expect(verdict).to_contain_text("ADD COLUMNS (`gate` string)")
        expect(verdict).to_contain_text("pass")
        text.fill("{ not json")
        page.get_by_role("button", name="Try it").click()
        expect(verdict).to_contain_text("HW301")
    assert stage.registry.versions("flights-value") == before


def test_messages_are_found_by_field_place_and_permalink(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:
    with opened(browser) as page:
        page.goto(f"{stage.url}/topics/flights/messages")
        page.get_by_label("where field").fill("route.origin")
        page.get_by_label("is (* for anything)").fill("JFK")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#live")).to_contain_text("scanned")
        rows = page.locator("table.messages tbody tr")
        assert rows.count() > 3
        assert all('"JFK"' in text for text in rows.all_inner_texts())
        rows.first.get_by_role("link").first.click()
        expect(page.locator("pre")).to_contain_text('"origin": "JFK"')
        place = page.url
    assert fetch(place.removeprefix(stage.url) + ".json").json["data"]["message"]["event"]
    early = fetch.data("/topics/flights/messages.json?time=2013-01-01T12:00&limit=5")
    assert {row["event"]["flight_date"] for row in early["rows"]} == {"2013-01-01"}
    assert all(row["timestamp_ms"] >= 1357041600000 for row in early["rows"])
    first = fetch.data("/topics/flights/messages.json?partition=0&offset=0&limit=1")["rows"][0]
    assert (first["partition"], first["offset"], first["schema_version"]) == (0, 0, 1)


def test_older_and_newer_lead_through_every_message_once(fetch: Fetch) -> None:
    seen: list[tuple[int, int]] = []
    cursor = "0:0,1:0,2:0,3:0"
    while cursor:
        found = fetch.data(f"/topics/weather/messages.json?from={cursor}&limit=7")
        seen += [(row["partition"], row["offset"]) for row in found["rows"]]
        cursor = found["newer"]
    assert len(seen) == len(set(seen)) == found["total"]
    newest = fetch.data("/topics/weather/messages.json?limit=8")
    older = fetch.data(f"/topics/weather/messages.json?from={newest['older']}&limit=8")
    assert len(newest["rows"]) == 8
    assert older["rows"]


def test_sensitive_fields_are_masked_everywhere(fetch: Fetch) -> None:
    rows = fetch.data("/topics/signups/messages.json?limit=50")["rows"]
    assert len(rows) == 12
    place = f"/topics/signups/messages/{rows[0]['partition']}/{rows[0]['offset']}"
    pages = ["/topics/signups/messages", place, "/topics/signups/messages?field=email&value=*"]
    for path in [*pages, *(page.replace("?", ".json?") for page in pages[2:]), place + ".json"]:
        body = fetch(path).body
        assert not [secret for secret in SECRETS if secret in body], path
    assert rows[0]["event"]["address"]["city"] == "London"
    # A filter sees what is shown, so that nobody can guess until it fits.
    asked = f"/topics/signups/messages.json?field=email&value={SECRETS[0]}"
    assert fetch.data(asked)["rows"] == []


def test_a_page_renews_itself_until_it_is_paused(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:
    with opened(browser) as page:
        page.goto(f"{stage.url}/topics")
        age = page.locator(".ages")
        first = age.inner_text()
        expect(age).not_to_have_text(first)
        pause = page.get_by_role("button", name="Pause")
        pause.click()
        expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") in ("INPUT", "A")


def test_the_keyboard_reaches_the_content_first(browser: Browser, stage: Stage) -> None:
    with opened(browser) as page:
        page.goto(f"{stage.url}/topics")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.wait_for_url("**#main")
        assert page.evaluate("location.hash") == "#main"


def test_a_phone_shows_the_newest_windows_first(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:
    for script in (True, False):
        with opened(
            browser, viewport={"width": 360, "height": 800}, java_script_enabled=script
        ) as page:
            page.goto(stage.url)
            newest = page.locator(".heat .w").last.bounding_box()
            assert newest is not None
            assert newest["x"] + newest["width"] <= 360
            name = page.locator(".heat tbody th").first.bounding_box()
            assert name is not None
            assert name["x"] >= 0, "the names of the topics stay in sight"


def test_a_topic_shows_its_rate_and_how_far_its_groups_are(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:

    def is_whole(data: Any) -> bool:
        """Whether the rate is known, and how far behind the first group is."""
        first, *_ = data["readers"] or [{"behind_ms": None}]
        return data["rate"] is not None and first["behind_ms"] is not None

    data = fetch.until("/topics/flights/messages.json", is_whole)
    worst, best = data["readers"]
    assert (worst["name"], worst["state"]) == ("archive-export", "stopped")
    lags = fetch.data("/groups/archive-export/lag.json")["line"]
    assert (worst["lag"], worst["because"]) == (lags["lag"], lags["because"])
    assert worst["behind_ms"] > 0
    assert (best["name"], best["state"], best["lag"]) == ("punctuality-dashboard", "ok", 0)
    with opened(browser) as page:
        page.goto(f"{stage.url}/topics/flights/messages?time=2013-01-01T12:00:00.123&partition=1")
        expect(page.locator("#live")).to_contain_text(f"{worst['lag']:,} messages of lag")
        # What was sought stays in the form, to be refined.
        expect(page.get_by_label("from time (UTC)")).to_have_value("2013-01-01T12:00:00.123")
        expect(page.get_by_label("partition", exact=True)).to_have_value("1")


def test_looking_for_a_topic_stays_at_the_tier(fetch: Fetch) -> None:
    for path in ("/home", "/audit"):
        body = fetch(f"{path}?tier=hadoop&q=a").body
        assert '<input type="hidden" name="tier" value="hadoop">' in body, path


def test_a_schema_is_found_by_its_fields_and_a_topic_by_its_owner(fetch: Fetch) -> None:
    rows = fetch.data("/schemas.json?q=street")["rows"]
    assert [(row["subject"], row["found"]) for row in rows] == [
        ("signups-value", ["address.street"])
    ]
    assert "address.street" in fetch("/schemas?q=street").body
    rows = fetch.data("/topics.json?q=identity")["part"]["rows"]
    assert [row["topic"] for row in rows] == ["signups"]


def test_a_search_leads_from_the_newest_message_to_the_oldest(fetch: Fetch) -> None:
    found: list[tuple[int, int]] = []
    query = "find=local_hour%3C24&limit=7"
    while query:
        page = fetch.data(f"/topics/weather/messages.json?{query}")
        assert page["newest_first"]
        times = [row["timestamp_ms"] for row in page["rows"]]
        assert times == sorted(times, reverse=True)
        found += [(row["partition"], row["offset"]) for row in page["rows"]]
        query = f"find=local_hour%3C24&limit=7&before={page['older']}" if page["older"] else ""
    assert len(found) == len(set(found)) == page["total"]
    assert fetch.data("/topics/weather/messages.json?find=local_hour%3E23")["rows"] == []
    assert fetch("/topics/weather/messages.json?find=@nothing=1").status == 400


def test_messages_are_shown_by_columns_and_saved_as_csv(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:
    query = "find=route.origin%3DJFK&columns=carrier,route.origin"
    lines = fetch(f"/topics/flights/messages.csv?{query}").body.splitlines()
    assert lines[0] == "time,partition,offset,version,key,carrier,route.origin,headers,problem"
    assert {line.split(",")[6] for line in lines[1:]} == {"JFK"}
    masked = fetch("/topics/signups/messages.csv").body
    assert not [secret for secret in SECRETS if secret in masked]
    with opened(browser) as page:
        page.goto(f"{stage.url}/topics/flights/messages")
        page.get_by_text("Columns: the whole event").click()
        page.get_by_label("route.origin").check()
        page.get_by_role("button", name="Show").click()
        expect(page.locator("table.messages thead")).to_contain_text("route.origin")
        older = page.get_by_role("link", name="Older").get_attribute("href")
        assert "columns=route.origin" in str(older)


def test_lineage_leads_from_producers_to_readers_and_the_table(fetch: Fetch) -> None:
    found = fetch.data("/topics/flights/lineage.json")
    (producer,) = found["producers"]
    assert producer["application"] == "departures-board"
    assert producer["messages"] > 0
    assert [one["name"] for one in found["readers"]] == ["archive-export", "punctuality-dashboard"]
    assert (found["owner"], found["table"]["table"]) == ("flight-operations", "flights")


def test_one_search_finds_everything(fetch: Fetch) -> None:
    kinds = {one["kind"]: one["hits"] for one in fetch.data("/search.json?q=flights")["found"]}
    assert {"topic", "schema", "group", "table"} <= set(kinds)
    fields = fetch.data("/search.json?q=street")["found"]
    assert [(one["kind"], one["hits"][0]["name"]) for one in fields] == [("field", "signups-value")]
    assert fields[0]["hits"][0]["says"] == "address.street"
    owners = fetch.data("/search.json?q=identity")["found"]
    assert ("owner", "signups-value") in [(one["kind"], one["hits"][0]["name"]) for one in owners]
    assert "masked" not in fetch("/search?q=street").body
    assert fetch("/search?q=" + "x" * 300).status == 400


def test_bytes_are_shown_unless_something_is_masked(fetch: Fetch) -> None:
    row = fetch.data("/topics/flights/messages.json?limit=1")["rows"][0]
    assert row["bytes"] == []
    place = f"/topics/flights/messages/{row['partition']}/{row['offset']}"
    position, digits, _ = fetch.data(f"{place}.json")["message"]["bytes"][0]
    assert position == 0
    assert int(digits[:14].replace(" ", ""), 16) == row["schema_id"]
    row = fetch.data("/topics/signups/messages.json?limit=1")["rows"][0]
    place = f"/topics/signups/messages/{row['partition']}/{row['offset']}"
    assert fetch.data(f"{place}.json")["message"]["bytes"] == []
    assert "are not shown" in fetch(place).body


def test_one_partition_is_shown_in_its_order(fetch: Fetch) -> None:
    rows = fetch.data("/topics/flights/messages.json?partition=1&offset=0&limit=100")["rows"]
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(offsets)


def test_an_open_message_stays_open(browser: Browser, stage: Stage, fetch: Fetch) -> None:
    with opened(browser) as page:
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url) if is_renewal(one) else None)
        page.clock.install()
        page.goto(f"{stage.url}/topics/flights/messages")
        page.locator("table.messages summary").first.click()
        expect(page.get_by_role("button", name="Held while a message is open")).to_be_visible()
        asked.clear()  # a slow page renews itself before the message is open
        page.clock.run_for(30_000)
        assert not asked
        page.locator("table.messages summary").first.click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        with page.expect_request(is_renewal):
            page.clock.run_for(6_000)


def test_what_is_unfolded_stays_so_when_the_page_renews_itself(
    browser: Browser, stage: Stage, fetch: Fetch
) -> None:
    with opened(browser) as page:
        page.clock.install()
        # A slow page renews itself before the clock is moved on.
        with page.expect_response(lambda one: is_renewal(one.request)) as first:
            page.goto(f"{stage.url}/topics/flights/messages")
            page.get_by_text("Partitions", exact=True).click()
            page.clock.run_for(6_000)
        assert first.value.status == 200
        with page.expect_request(lambda one: "if-none-match" in one.headers):
            page.clock.run_for(6_000)
        expect(page.get_by_role("region", name="Partitions")).to_be_visible()


def is_renewal(request: Request) -> bool:
    return "hx-request" in request.headers
