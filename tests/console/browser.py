"""A real Chromium for the console's tests and pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

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
    """Where it is; skips the test where there is none, but not in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and not os.environ.get("CI"):
        pytest.skip("no chromium on this machine")
    assert found is not None, "CI must have chromium"
    return found


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
