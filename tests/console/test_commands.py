"""The command that a page shows returns what the page shows."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headworks._audit.states import DEFINITIONS
from headworks._cli.main import command_line
from headworks._cli.times import format_instant
from headworks._console.app.commands import headworks
from headworks._console.sources import Sources
from headworks._console.sources.all_sources import Endpoints
from tests.console.fetch import Fetch
from tests.console.screenshots import BREAKING
from tests.console.stage import Stage

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def fetch(stage: Stage) -> Fetch:
    found = Fetch(stage.url)
    for path in ("/topics", "/schemas", "/groups", "/home", "/loads"):
        found.until(f"{path}.json", partial(_all_read, found, path))
    return found


def _all_read(fetch: Fetch, path: str, _data: object) -> bool:
    sources = fetch(f"{path}.json").json["sources"]
    return all(one["age_seconds"] is not None for one in sources)


def run(command: str) -> Any:
    words = shlex.split(command)
    assert words[0] == "headworks"
    done = CliRunner().invoke(command_line(words[1]), [*words[1:], "--format", "json"])
    return json.loads(done.stdout)


def asked(fetch: Fetch, path: str) -> tuple[Any, Any]:
    """What a page gives, and what its command does; the page is looked at last."""
    told = run(fetch(f"{path}.json").json["command"])
    return fetch.data(f"{path}.json"), told


def test_a_folder_is_absolute_in_a_command() -> None:
    folder, store = Path("data/warehouse"), "sqlite:////audit.db"
    places = Endpoints("b:1", "http://r:1", folder, Path("schemas"), store)
    command = headworks(Sources(places), "load", "requeue", names=("t",), at=("warehouse",))
    assert command == f"headworks load requeue t --warehouse {folder.absolute()}"
    default = Sources(replace(places, warehouse=Path("headworks-data/warehouse")))
    assert headworks(default, "load", "status", at=("warehouse",)) == "headworks load status"


def test_topics(fetch: Fetch) -> None:
    shown, told = asked(fetch, "/topics")
    # What the platform itself writes goes on growing.
    assert {_size(one) for one in shown["part"]["rows"] if not one["internal"]} == {
        _size(one) for one in told if not one["topic"].startswith("headworks.")
    }


def _size(row: Any) -> tuple[str, int, int]:
    return row["topic"], row["partitions"], row["messages"]


def test_schemas(fetch: Fetch) -> None:
    shown, told = asked(fetch, "/schemas")
    assert {one["subject"]: one["version"] for one in shown["rows"]} == {
        one["subject"]: one["latest"] for one in told
    }
    shown, told = asked(fetch, "/schemas/flights-value/versions")
    assert [one["path"] for one in shown["changes"]] == [one["path"] for one in told]
    command = fetch("/schemas/flights-value/versions.json?version=1").json["command"]
    assert run(command)["version"] == 1


def test_groups(fetch: Fetch) -> None:
    shown, told = asked(fetch, "/groups")
    assert {(one["name"], one["lag"]) for one in shown["part"]["rows"]} == {
        (one["group"], one["lag"]) for one in told
    }
    shown, told = asked(fetch, "/groups/archive-export/lag")
    places = [(p["topic"], p["partition"], p["committed"], p["lag"]) for p in shown["positions"]]
    assert places == [
        (p["topic"], p["partition"], p["committed"], p["lag"]) for p in told["positions"]
    ]


def test_audit(fetch: Fetch) -> None:
    for path in ("/home", "/audit"):
        shown, told = asked(fetch, path)
        assert {row["topic"]: _counts(row) for row in shown["part"]["rows"]} == {
            row["topic"]: _counts(row) for row in told["rows"]
        }
    shown, told = asked(fetch, "/audit/weather/windows")
    (tier,) = shown["tiers"]
    assert _counts(tier) == _counts(told["total"])
    assert tier["states"]["lost"] == sum(row["lost"] for row in told["rows"]) == 4
    assert {row["window_start"] for row in told["rows"]} <= {
        format_instant(start) for start in shown["windows"]
    }
    start = shown["windows"][-1]
    shown, told = asked(fetch, f"/audit/weather/windows/{start}")
    assert [one["counts"] for one in shown["contributions"]] == [
        one["counts"] for one in told["contributions"]
    ]


def _counts(row: Any) -> list[int]:
    """The messages in each state: a page has them apart from its other figures."""
    return [row.get("states", row)[state] for state in DEFINITIONS]


def test_loads(fetch: Fetch) -> None:
    shown, told = asked(fetch, "/loads")
    assert {one["topic"]: one["table"] for one in shown["tables"]["rows"]} == {
        one["topic"]: one["table"] for one in told["topics"]
    }
    command = fetch("/tables/flights/columns.json").json["command"]
    assert shlex.split(command)[1:3] == ["sql", "DESCRIBE flights"]


def test_the_gate(fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = BREAKING.read_text(encoding="utf-8")
    Path("proposed.avsc").write_text(text, encoding="utf-8")
    told = run(fetch("/try.json").json["command"])
    (subject,) = told["subjects"]
    assert subject["verdict"] == "refused"
    assert {one["name"] for one in subject["impact"]["consumers"]} >= {"archive-export"}


@pytest.mark.parametrize(
    "path", ["/topics/flights/messages", "/topics/flights/messages/0/3", "/loads/2/topics"]
)
def test_where_no_command_does_it_is_the_page_as_json(fetch: Fetch, path: str) -> None:
    command = fetch(f"{path}.json").json["command"]
    assert shlex.split(command) == ["curl", "-s", f"{fetch.url}{path}.json"]
