"""A real Chromium for the console's tests and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests import tools

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


PATIENCE = 120_000  # milliseconds

# The narrowest page of WCAG 2.2 (1.4.10), a phone, a tablet, and windows on each side of a layout.
WIDTHS = (320, 390, 768, 1040, 1152, 1280)

# Regions of tables that are narrower than these; a heatmap may be wider, and begins at its end.
_CUT = """
[...document.querySelectorAll(".scroll:has(table):not(.ends)")]
  .filter(one => !one.closest("details") && one.scrollWidth > one.clientWidth + 1)
  .map(one => one.ariaLabel || one.className)
"""


def chromium() -> str:
    """Its program; the calling test is skipped without it."""
    tools.require("chromium")
    return str(tools.chromium())


@contextmanager
def browsing() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=list(ARGUMENTS), timeout=PATIENCE
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """Open a page whose errors, a breach of the security policy among them, fail the test."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    try:
        yield page
        assert not wrong
    finally:
        context.close()


def assert_everything_fits(page: Page) -> None:
    """Neither the page nor a table in it is wider than its place, in windows of every width."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (page.url, width)
        assert not page.evaluate(_CUT), (page.url, width)
