"""The pages with charts in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.console.browser import PATIENCE, opened
from tests.console.stage import Stage

pytestmark = pytest.mark.e2e
expect.set_options(timeout=PATIENCE)


def test_charts_lead_to_an_earlier_time_and_back(browser: Browser, stage: Stage) -> None:
    with opened(browser) as page:
        page.goto(f"{stage.url}/topics/flights/charts?span=day")
        for link in ("Earlier", "Earlier", "Later", "Newest"):
            page.get_by_role("link", name=link).click()
            page.wait_for_load_state()
            expect(page.locator("[aria-current=true]")).to_have_text("day")
            past = link != "Newest"
            expect(page.get_by_role("link", name="Newest")).to_have_count(int(past))
            # What is past does not change, and is not loaded again.
            expect(page.locator("main[hx-get]")).to_have_count(int(not past))
        page.goto(f"{stage.url}/groups/archive-export/lag")
        page.get_by_role("link", name="Earlier").click()
        expect(page.locator("main")).to_contain_text("until 20")
