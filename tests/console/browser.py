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
