"""Sources that are down are said on the page, and are never an error of the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from tests.console.fetch import Fetch

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetch]:
    """A console where nothing answers."""
    folder: Path = tmp_path_factory.mktemp("alone")
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = ["console", "start", "--listen", "127.0.0.1:0", "--bootstrap", dead]
    arguments += ["--registry", f"http://{dead}", "--warehouse", str(folder / "warehouse")]
    arguments += ["--audit-store", f"sqlite:///{folder / 'audit.db'}"]
    with child_process.start(arguments) as running:
        yield Fetch(running.url)
    assert not list(folder.iterdir()), "a console makes no files"


def test_lists_name_the_unreachable_server_and_the_fix(alone: Fetch) -> None:
    alone.until(
        "/topics.json", lambda _: _problems(alone, "/topics.json") >= {"broker", "registry"}
    )
    page = alone("/topics")
    assert page.status == 200
    assert "no broker answers" in page.body
    assert "headworks up" in page.body
    for path in ("/", "/schemas", "/groups", "/audit", "/loads", "/try"):
        assert alone(path).status == 200, path
        assert alone(f"{path}.json" if path != "/" else "/home.json").status == 200, path
    assert "No reconciler keeps the audit yet" in alone("/").body
    assert "Nothing has been loaded" in alone("/loads").body


@pytest.mark.parametrize(
    "path",
    [
        "/topics/x/messages",
        "/topics/x/messages/0/0",
        "/schemas/x-value/versions",
        "/try?subject=x-value",
        "/groups/x/lag",
        "/audit/x/windows",
        "/audit/x/windows/99999999999999999",
        "/loads/1/topics",
        "/tables/x/columns",
        "/topics/%ff/messages",
    ],
)
def test_a_thing_that_cannot_be_asked_for_is_no_error_of_ours(alone: Fetch, path: str) -> None:
    answer = alone(path)
    assert answer.status in (404, 503), answer.body
    assert "<h1>" in answer.body


def _problems(fetch: Fetch, path: str) -> set[str]:
    return {one["name"] for one in fetch(path).json["sources"] if one["problem"]}
