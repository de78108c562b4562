"""The access log: who asked for what, with which result, at the level it deserves."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.registry.guarding import As, basic, start, write_files
from tests.registry.rest import record, text_of
from tests.registry.test_metrics import Scrape
from tests.waiting import until

pytestmark = pytest.mark.e2e

V1 = text_of(record("id:long"))


def entries(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if line["logger"] == "registry.access"]


def ask_for_all_kinds(url: str) -> None:
    root, reader = As(url, basic("root")), As(url, basic("reader"))
    path = "/subjects/shop.%C3%A9%0A/versions"
    assert root("POST", path.replace("%0A", ""), {"schema": V1}).status == 200
    assert reader("GET", "/subjects").status == 200
    assert reader("GET", "/subjects/shop.none/versions").status == 404
    assert reader("DELETE", "/subjects/shop.x").status == 403
    assert root("POST", path, {"schema": V1}).status == 422
    assert As(url, {})("GET", "/subjects").status == 401


def test_json(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ["--log-format", "json", "--log-level", "debug"]
    with start(tmp_path, *write_files(tmp_path), *options, log_file=log) as running:
        began = time.monotonic()
        ask_for_all_kinds(running.url)
        took = time.monotonic() - began
    found = entries(log)
    assert [(one["level"], one["principal"], one["status"]) for one in found] == [
        ("INFO", "root", 200),
        ("DEBUG", "reader", 200),
        ("DEBUG", "reader", 404),
        ("WARNING", "reader", 403),
        ("WARNING", "root", 422),
        ("WARNING", "anonymous", 401),
    ]
    first = found[0]
    assert first["method"] == "POST"
    assert first["route"] == "/subjects/{subject}/versions"
    assert first["path"] == "/subjects/shop.%C3%A9/versions"
    assert first["peer"] == "127.0.0.1"
    assert 0 < first["ms"] < took * 1000
    assert len({one["request_id"] for one in found}) == len(found)


@pytest.mark.parametrize(("level", "statuses"), [("info", 4), ("warning", 3)])
def test_levels_and_text(tmp_path: Path, level: str, statuses: int) -> None:
    log = tmp_path / "log"
    with start(tmp_path, *write_files(tmp_path), "--log-level", level, log_file=log) as running:
        ask_for_all_kinds(running.url)
    lines = log.read_text().splitlines()
    assert len(lines) == statuses
    if level == "info":
        assert "POST /subjects/shop.%C3%A9/versions 200 for root@127.0.0.1 in " in lines[0]


def test_request_ids(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start(tmp_path, "--log-format", "json", "--log-level", "debug", log_file=log) as running:

        def ask(**headers: str) -> str:
            answer = urllib3.request("GET", running.url + "/schemas/types", headers=headers)
            return answer.headers["x-request-id"]

        assert ask(**{"X-Request-Id": "mine-1"}) == "mine-1"
        for bad in ("two words", "x" * 65, 'quote"'):
            assert ask(**{"X-Request-Id": bad}) != bad
        # An answer from memory is not the answer to an earlier request.
        root = As(running.url, {})
        root("POST", "/subjects/s/versions", {"schema": V1})
        read = running.url + "/schemas/ids/1"  # forgotten once, when the change is noticed
        until(lambda: "x-request-id" not in urllib3.request("GET", read).headers)
    assert entries(log)[0]["request_id"] == "mine-1"


def test_who_hangs_up_is_no_failure_of_ours(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start(tmp_path, "--log-format", "json", log_file=log) as running:
        host, _, port = running.address.partition(":")
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nContent-Length: 99\r\n\r\n{")
            until(lambda: Scrape(running.url).value("requests_in_flight") == 2)  # this and it
        until(lambda: Scrape(running.url).value("requests_in_flight") == 1)
    assert "Traceback" not in log.read_text()
    assert [(one["level"], one["status"]) for one in entries(log)] == [("INFO", 499)]
