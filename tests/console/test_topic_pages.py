"""The pages of a topic: charts of earlier times, and how long messages are kept."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.console.browser import PATIENCE, opened
from tests.console.fetch import Fetch
from tests.console.stage import Stage

pytestmark = pytest.mark.e2e
expect.set_options(timeout=PATIENCE)

WEEK_MS = 604_800_000


def test_charts_lead_to_an_earlier_time_and_back(browser: Browser, stage: Stage) -> None:
    with opened(browser) as page:
        page.goto(f"{stage.url}/topics/flights/charts?span=day")
        for link in ("Earlier", "Earlier", "Later", "Newest"):
            page.get_by_role("link", name=link).click()
            page.wait_for_load_state()
            expect(page.locator("[aria-current=true]")).to_have_text("day")
            past = link != "Newest"
            expect(page.get_by_role("link", name="Newest")).to_have_count(int(past))
            # The past does not change, and the page does not load it again.
            expect(page.locator("main[hx-get]")).to_have_count(int(not past))
        page.goto(f"{stage.url}/groups/archive-export/lag")
        page.get_by_role("link", name="Earlier").click()
        expect(page.locator("main")).to_contain_text("until 20")


def test_the_page_of_a_topic_has_its_retention(stage: Stage) -> None:
    fetch = Fetch(stage.url)
    fetch.until("/topics.json", lambda data: data["known"])
    # A broker that does not answer within two seconds is asked again after a minute.
    kept = fetch.until("/topics/flights/messages.json", lambda data: data["kept"])["kept"]
    assert kept == {"age_ms": WEEK_MS, "partition_bytes": None, "compacted": False}
    assert "<dt>kept</dt><dd>7.0 d</dd>" in fetch("/topics/flights/messages").body
