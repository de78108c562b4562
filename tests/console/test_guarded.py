"""Visibility in the console: exactly what the registry's users and grants give."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.console.fetch import Fetch
from tests.console.stage import Stage, guarded_console
from tests.waiting import until

pytestmark = pytest.mark.e2e

GRANTS = """
[[grants]]
to = ["ada"]
roles = ["reader"]
prefix = "flights"

[[grants]]
to = ["ada"]
roles = ["reader"]
on = ["groups"]
prefix = "punctuality"

[[grants]]
to = ["root"]
roles = ["admin"]
"""


@pytest.fixture(scope="module")
def guarded(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetch]:
    passwords = {name: f"{name}-password" for name in ("ada", "root", "eve")}
    with guarded_console(stage, tmp_path_factory.mktemp("guarded"), passwords, GRANTS) as url:
        fetch = Fetch(url)
        for path in ("/topics", "/schemas", "/groups", "/loads", "/home", "/audit"):
            wait_for_sources(fetch, credentials("root"), f"{path}.json")
        yield fetch


def credentials(name: str) -> dict[str, str]:
    pair = f"{name}:{name}-password".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def test_nobody_is_nobody(guarded: Fetch) -> None:
    for path in ("/", "/topics", "/topics.json", "/try", "/schemas/flights-value/versions.json"):
        answer = guarded(path)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert "flights" not in answer.body
    assert guarded("/topics", headers={"Authorization": "Basic eDp5"}).status == 401
    assert guarded("/static/console.css").status == 200


def test_a_page_says_that_there_is_more_than_one_may_see(guarded: Fetch) -> None:
    eve, ada = credentials("eve"), credentials("ada")
    answer = guarded("/schemas", headers=eve)
    assert "you may see none of them" in answer.body
    assert "No subject is registered yet" not in answer.body
    for path in ("/schemas/flights-value/versions", "/topics/flights/messages"):
        body = guarded(path, headers=ada).body
        assert "punctuality-dashboard" in body
        assert "and groups that you may not see" in body
        assert "may not see" not in guarded(path, headers=credentials("root")).body


def test_everybody_sees_what_their_grants_give(guarded: Fetch) -> None:
    ada, root = credentials("ada"), credentials("root")
    for path in ("/topics", "/schemas", "/groups", "/loads", "/home", "/audit"):
        for form in ("", ".json"):
            body = guarded(path + form, headers=ada).body
            for hidden in ("weather", "airlines", "signups", "archive-export"):
                assert hidden not in body, (path, hidden)
    assert "flights" in guarded("/topics", headers=ada).body
    assert "weather" in guarded("/topics", headers=root).body
    assert "punctuality-dashboard" in guarded("/groups", headers=ada).body


def wait_for_sources(fetch: Fetch, who: dict[str, str], path: str) -> None:
    """Until every source has been read once."""
    until(
        lambda: all(
            one["age_seconds"] is not None for one in fetch(path, headers=who).json["sources"]
        )
    )


@pytest.mark.parametrize(
    "path",
    [
        "/topics/weather/messages",
        "/topics/weather/messages/0/0",
        "/schemas/weather-value/versions",
        "/try?subject=weather-value",
        "/groups/archive-export/lag",
        "/topics/weather/charts",
        "/topics/weather/lineage",
        "/audit/weather/windows",
        "/audit/weather/windows/1357016400000",
        "/tables/weather/columns",
        "/loads/2/topics",
    ],
)
def test_what_may_not_be_seen_is_not_there(guarded: Fetch, path: str) -> None:
    assert guarded(path, headers=credentials("root")).status in (200, 404)
    answer = guarded(path, headers=credentials("ada"))
    assert answer.status == 404
    assert (
        guarded(
            path.replace("?", ".json?") if "?" in path else path + ".json",
            headers=credentials("ada"),
        ).status
        == 404
    )


def test_what_may_not_be_seen_is_not_saved_nor_found(guarded: Fetch) -> None:
    ada = credentials("ada")
    assert guarded("/topics/weather/messages.csv", headers=ada).status == 404
    assert guarded("/topics/flights/messages.csv", headers=ada).status == 200
    for word in ("weather", "archive", "signups"):
        assert guarded(f"/search.json?q={word}", headers=ada).json["data"]["found"] == []
    for path in ("/topics/flights/lineage", "/lineage"):
        lineage = guarded(path, headers=ada).body
        assert "archive-export" not in lineage
        assert "and groups that you may not see" in lineage
        assert "weather" not in lineage


def test_no_page_names_a_path_of_the_consoles_machine(guarded: Fetch, stage: Stage) -> None:
    for path in ("/", "/loads", "/audit/flights/windows", "/tables/flights/columns"):
        assert str(stage.folder) not in guarded(path, headers=credentials("root")).body


def test_a_schema_for_a_subject_that_may_not_be_read_is_not_judged(
    guarded: Fetch, stage: Stage
) -> None:
    text = stage.registry.version("weather-value", 1).text
    answer = guarded(
        "/try.json", method="POST", body=urlencode({"schema": text}), headers=credentials("ada")
    )
    assert answer.status == 400
    assert "may not read" in json.dumps(answer.json)
