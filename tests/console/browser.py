"""A real Chromium for the console's tests and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

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
