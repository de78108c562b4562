"""The console as a server: what it answers before anybody looks at a screen."""

from __future__ import annotations

import pytest

from headworks import service
from headworks.errors import UsageError
from tests.console.fetch import Fetch


def test_every_answer_forbids_what_comes_from_elsewhere(console: Fetch) -> None:
    for path in ("/topics", "/topics.json", "/static/console.css", "/nowhere", "/health"):
        policy = console(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert console(path).headers["x-content-type-options"] == "nosniff"


def test_pages_hold_no_script_and_no_style_of_their_own(console: Fetch) -> None:
    html = console("/topics").body
    assert "<style" not in html
    assert " style=" not in html
    assert "<script>" not in html
    assert "//" not in html.replace("<!doctype html>", "").replace("http://www.w3.org", "")


def test_a_name_that_is_no_address_is_not_answered(console: Fetch) -> None:
    assert console("/topics", headers={"Host": "evil.example"}).status == 421
    assert console("/topics", headers={"Host": "localhost:8090"}).status == 200


def test_an_unknown_page_says_so_in_both_forms(console: Fetch) -> None:
    assert console("/nowhere").status == 404
    assert "there is no page" in console("/nowhere").body
    assert console("/nowhere.json").json["data"]["fix"] == "begin at /"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_it_only_reads(console: Fetch, method: str) -> None:
    for path in ("/topics", "/topics/x/messages", "/schemas/x-value/versions", "/groups/x/lag"):
        answer = console(path, method=method)
        assert answer.status == 405
        assert "only reads" in answer.body


@pytest.mark.parametrize("path", ["/topics?page=x", "/topics?page=-1", "/topics?page=" + "9" * 40])
def test_a_readers_mistake_is_said_and_is_no_error_of_the_server(console: Fetch, path: str) -> None:
    answer = console(path)
    assert answer.status == 400
    assert "page must be a whole number" in answer.body


def test_it_is_not_exposed_without_a_guard() -> None:
    with pytest.raises(UsageError, match="the console would ask nobody who they are"):
        service.start(["console", "start", "--listen", "0.0.0.0:0"])
