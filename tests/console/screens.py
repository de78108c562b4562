"""Every screen of the staged installation: an address for each route, and a text on its page.

Rule: a route without an address here fails `test_screens`, so no screen is left out of what is
looked at and checked.
"""

from __future__ import annotations

import re

from headworks._console.app.routes import SCREENS as ROUTES
from tests.console.fetch import Fetch

# `{window}` and `{partition}` stand for facts of the installation: see `address`.
SCREENS = {
    "/": "topics",
    "/topics": "flights",
    "/topics/flights/messages": "newest first",
    "/topics/flights/messages/{partition}/0": "flight_number",
    "/topics/signups/messages": "masked",
    "/topics/flights/dead-letters": "is dead",
    "/topics/flights/charts": "Lag of groups",
    "/topics/flights/lineage": "departures-board",
    "/lineage": "punctuality-dashboard",
    "/schemas": "flights-value",
    "/schemas/flights-value/versions": "What changed since version 1",
    "/schemas/flights-value/usage": "departures-board",
    "/try?subject=flights-value": "Nothing is registered",
    "/groups": "archive-export",
    "/groups/archive-export/lag": "it has no members",
    "/audit": "weather",
    "/audit/weather/windows": "Window by window",
    "/audit/weather/windows/{window}": "lost",
    "/loads": "in the tables",
    "/loads/2/topics": "flights",
    "/tables/flights/columns": "distance_miles",
    "/quarantine": "schema id 9999",
    "/search?q=flight": "flights-value",
}


def without_address() -> set[str]:
    """Return the routes of the console that no screen here shows; `/home` is `/`."""
    shown = [path.partition("?")[0] for path in SCREENS]
    return {
        route
        for route in {*ROUTES} - {"/home"}
        if not any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route), path) for path in shown)
    }


def address(path: str, fetch: Fetch) -> str:
    """Return the path of a screen with the installation's window and partition."""
    if "{window}" in path:
        window = fetch.data("/audit/weather/windows.json")["windows"][-1]  # one that is wholly lost
        return path.format(window=window)
    if "{partition}" in path:
        row = fetch.data("/topics/flights/messages.json")["rows"][0]
        return path.format(partition=row["partition"])
    return path
