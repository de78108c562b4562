"""`python -m tests.console.screenshots [FOLDER]`: the pictures of docs/, made from a real console.

It stages the demo's events in a running installation and photographs the screens of docs/. With
`--every`, it photographs every screen, at each width and by day and night, for somebody to look at.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.console.browser import browsing
from tests.console.fetch import Fetch
from tests.console.screens import SCREENS as EVERY
from tests.console.screens import address
from tests.console.stage import staged

DOCS = Path(__file__).parent.parent.parent / "docs" / "images"
SCREENS = {
    "health": "/",
    "topics": "/topics",
    "schema": "/schemas/flights-value/versions",
    "messages": "/topics/flights/messages",
    "masked": "/topics/signups/messages/{}/0",
    "groups": "/groups",
    "audit": "/audit/weather/windows",
    "loads": "/loads",
}
BREAKING = (
    Path(__file__).parent.parent.parent / "cli" / "demo" / "changes" / "flights-breaking.avsc"
)
WIDTH, HEIGHT = 1440, 900
WIDTHS = (WIDTH, 768, 375)  # of a desk, a tablet, and a phone


def shoot(browser: Browser, url: str, folder: Path) -> None:
    """Every screen by day, three by night, two as a phone shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    fetch = Fetch(url)
    fetch.until("/topics.json", lambda data: data["known"])
    fetch.until("/groups.json", lambda data: data["known"])
    # What is missing is shown as still travelling until its window has been quiet for a while.
    fetch.until("/home.json", _settled, patience=300)
    partition = _partition_of(fetch, "signups")
    for scheme, width, names in (
        ("light", WIDTH, list(SCREENS)),
        ("dark", WIDTH, ["health", "schema", "messages"]),
        ("light", 390, ["health", "topics"]),
    ):
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        page = context.new_page()
        for name in names:
            page.goto(url + SCREENS[name].format(partition))
            page.wait_for_load_state("load")
            suffix = "-phone" if width < 600 else "-dark" if scheme == "dark" else ""
            page.screenshot(path=folder / f"console-{name}{suffix}.png")
        if width == WIDTH and scheme == "light":
            page.goto(f"{url}/try?subject=flights-value")
            page.fill("#schema", BREAKING.read_text(encoding="utf-8"))
            page.click("text=Try it")
            page.wait_for_selector("text=refused")
            page.screenshot(path=folder / "console-try.png")
        context.close()


def shoot_everything(browser: Browser, url: str, folder: Path) -> None:
    """Photograph whole pages: every screen at every width, by day and by night."""
    folder.mkdir(parents=True, exist_ok=True)
    fetch = Fetch(url)
    fetch.until("/topics.json", lambda data: data["known"])
    fetch.until("/groups.json", lambda data: data["known"])
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            context = browser.new_context(
                viewport={"width": width, "height": HEIGHT},
                color_scheme=scheme,
            )
            page = context.new_page()
            for path in EVERY:
                name = path.partition("?")[0].strip("/").replace("/", "-") or "home"
                page.goto(url + address(path, fetch))
                page.wait_for_load_state("load")
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            context.close()


def _settled(health: Any) -> bool:
    cells = [cell for row in health["part"]["rows"] for cell in row["cells"]]
    return bool(cells) and not [cell for cell in cells if cell["grade"] == 2]


def _partition_of(fetch: Fetch, topic: str) -> int:
    rows = fetch.data(f"/topics/{topic}/messages.json")["rows"]
    return int(rows[0]["partition"])


def main() -> None:
    """Make the pictures."""
    words = [word for word in sys.argv[1:] if word != "--every"]
    every = len(words) < len(sys.argv) - 1
    folder = Path(words[0]) if words else DOCS
    with (
        tempfile.TemporaryDirectory(prefix="console-stage-") as home,
        staged(Path(home), limit=400, sampled=every) as stage,
        browsing() as browser,
    ):
        (shoot_everything if every else shoot)(browser, stage.url, folder)
    sys.stderr.write(f"written to {folder}\n")


if __name__ == "__main__":
    main()
