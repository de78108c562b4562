"""Logs and metrics: what an operator sees of a broker."""

from __future__ import annotations

import ast
import base64
import json
import re
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3

from headworks._kafka.protocol.apis import ApiKey
from headworks._server import child_process
from tests.broker.build import batch
from tests.broker.clients import eventually
from tests.broker.conftest import start_broker
from tests.broker.secure import PASSWORDS, Files
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced, request

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parent.parent.parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def records(process: child_process.Service) -> list[dict[str, Any]]:
    *whole, _ = process.words().split("\n")  # the last one may be on its way
    return [json.loads(line) for line in whole]


def test_every_log_record_has_its_subject_as_extra() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "broker").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "_log"
        and node.func.attr in LEVELS
        and "extra" not in {keyword.arg for keyword in node.keywords}
    ]
    assert not bare


def test_json_logs_are_one_object_per_line_with_the_extra_fields(tmp_path: Path) -> None:
    files = Files.make(tmp_path / "files")
    options = ["--log-format", "json", *files.user_options]
    with start_broker(tmp_path / "data", *options) as process:
        with Wire(process.address) as wire:
            wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            wire.ask(
                ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\0alice\0" + PASSWORDS["alice"].encode()
            )
            wire.socket.sendall(b"\0\0\0\x01")
            assert wire.closed()
        with Wire(process.address) as wire:
            wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            wire.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\0bob\0wrong")
        eventually(lambda: len(records(process)) == 3)
        came, malformed, failed = records(process)
    assert came["principal"] == "alice"
    assert came["mechanism"] == "PLAIN"
    assert came["level"] == "INFO"
    assert came["logger"] == "headworks._broker.server.connection"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*", came["time"])
    assert came["peer"] == malformed["peer"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", came["peer"])
    assert malformed["kind"] == "malformed"
    assert malformed["principal"] == "alice"
    assert "a request of 1 bytes" in malformed["message"]
    assert (failed["kind"], failed["principal"]) == ("login", "bob")


def test_a_client_that_leaves_in_the_middle_is_no_warning(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--log-format", "json") as process:
        for _ in range(3):
            with Wire(process.address) as wire:
                host, port = wire.socket.getsockname()
                reset_at_close = struct.pack("ii", 1, 0)
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_at_close)
                wire.send(
                    ApiKey.METADATA,
                    4,
                    request(ApiKey.METADATA, 4, topics=None, allow_auto_topic_creation=False),
                )
        eventually(lambda: f"{host}:{port}" in process.words())
        eventually(lambda: len(records(process)) == 3)
        assert {(line["level"], line["kind"]) for line in records(process)} == {("INFO", "network")}


def test_an_operator_learns_who_created_a_topic_by_use(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--log-format", "json") as process:
        asked = kind(ApiKey.METADATA, 4, "request", "MetadataRequestTopic")(name="typo")
        with Wire(process.address) as wire:
            for _ in range(2):
                wire.ask(ApiKey.METADATA, 4, topics=(asked,), allow_auto_topic_creation=True)
            host, port = wire.socket.getsockname()
            peer = f"{host}:{port}"
        eventually(lambda: len(records(process)) >= 1)
        [created] = records(process)
    assert (created["topic"], created["peer"], created["level"]) == ("typo", peer, "INFO")
    assert "created topic typo with 4 partitions" in created["message"]
    assert "client id 'wire'" in created["message"]
    assert "--no-auto-create" in created["message"]


def test_the_level_is_obeyed_and_a_wrong_one_refused(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--log-level", "error") as process:
        with Wire(process.address) as wire:
            wire.socket.sendall(b"\0\0\0\x01")
            assert wire.closed()
        assert process.words() == ""
    with pytest.raises(Exception, match="log_level 'loud'"):
        start_broker(tmp_path, "--log-level", "loud")


# -- metrics -----------------------------------------------------------------------------------


def page(process: child_process.Service, **more: Any) -> urllib3.BaseHTTPResponse:
    found = re.search(r"metrics on (https?://\S+/metrics)", process.words())
    assert found is not None
    with urllib3.PoolManager(retries=False, **more.pop("pool", {})) as pool:
        return pool.request("GET", found.group(1), **more)


def sample(text: str, name: str, **labels: str) -> float:
    """The value of one sample."""
    for line in text.splitlines():
        found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if found is None or found[1] != name:
            continue
        if dict(re.findall(r'(\w+)="([^"]*)"', found[2] or "")) == labels:
            return float(found[3])
    raise AssertionError(f"no {name}{labels}")


def test_what_an_operator_counts(tmp_path: Path) -> None:
    from tests.broker.test_security_access import ASKED

    with start_broker(tmp_path, "--metrics", "127.0.0.1:0") as process:
        data = bytes(batch(10, size=100))
        with Wire(process.address) as wire:
            wire.ask(ApiKey.CREATE_TOPICS, 7, **ASKED[19]("counted", "g")[1])
            for _ in range(5):
                wire.send(ApiKey.PRODUCE, 7, produce("counted", 0, data, acks=-1))
                assert produced(wire.receive()[1], "counted")[0] == 0
            wire.send(ApiKey.PRODUCE, 7, produce("counted", 0, data[:-1] + b"!", acks=-1))
            wire.receive()
            wire.send(ApiKey.FETCH, 11, fetch("counted", 0, 0, max_bytes=1 << 20))
            assert fetched(wire.receive()[1])[1] == 50
            wire.ask(ApiKey.OFFSET_COMMIT, 7, **ASKED[8]("counted", "readers")[1])
            wire.ask(ApiKey.HEARTBEAT, 2, **ASKED[12]("counted", "nobody")[1])
            text = page(process).data.decode()
    assert sample(text, "headworks_broker_topic_received_bytes_total", topic="counted") == 5 * len(
        data
    )
    assert sample(text, "headworks_broker_topic_sent_bytes_total", topic="counted") == 5 * len(data)
    assert sample(text, "headworks_broker_topic_messages_total", topic="counted") == 50
    assert sample(text, "headworks_broker_topic_segments", topic="counted") == 1
    assert sample(text, "headworks_broker_log_bytes", topic="counted", partition="0") == 5 * len(
        data
    )
    assert sample(text, "headworks_broker_group_lag", group="readers", topic="counted") == 50
    assert sample(text, "headworks_broker_requests_total", api="produce") == 6
    assert (
        sample(text, "headworks_broker_errors_total", api="produce", error="corrupt_message") == 1
    )
    assert (
        sample(text, "headworks_broker_errors_total", api="heartbeat", error="unknown_member_id")
        == 1
    )
    assert sample(text, "headworks_broker_request_seconds_count", api="produce") == 6
    assert sample(text, "headworks_broker_request_seconds_bucket", api="produce", le="+Inf") == 6
    assert sample(text, "headworks_broker_request_seconds_count", api="fetch") == 1
    assert sample(text, "headworks_broker_flush_seconds_count") >= 1
    assert sample(text, "headworks_broker_sent_bytes_total") > 5 * len(data)
    assert sample(text, "headworks_broker_received_bytes_total") > 6 * len(data)
    assert sample(text, "headworks_broker_connections", principal="anonymous") == 1
    assert sample(text, "headworks_broker_recovery_cut_bytes_total") == 0
    assert sample(text, "headworks_broker_request_memory_limit_bytes") == 512 << 20
    assert sample(text, "process_resident_memory_bytes") > 1 << 20
    names = set(re.findall(r"^# TYPE (broker_\w+?)(?:_total)? ", text, re.MULTILINE))
    documented = (ROOT / "docs" / "broker.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}" not in documented} == set()


def test_the_page_is_guarded_as_the_broker_is(tmp_path: Path) -> None:
    files = Files.make(tmp_path / "files")
    files.access.write_text('[[grants]]\nto = ["alice"]\nroles = ["reader"]\n')
    options = [
        *files.user_options,
        *files.tls_options,
        *("--access", str(files.access), "--metrics", "127.0.0.1:0"),
    ]

    def status(*pair: str) -> int:
        token = base64.b64encode(":".join(pair).encode()).decode()
        headers = {"Authorization": f"Basic {token}"} if pair else {}
        pool = {"ca_certs": str(files.ca)}
        return page(process, headers=headers, pool=pool).status

    with start_broker(tmp_path / "data", *options) as process:
        assert status() == 401
        assert status("alice", "wrong") == 401
        assert status("bob", PASSWORDS["bob"]) == 403
        assert status("alice", PASSWORDS["alice"]) == 200


def test_a_scrape_that_is_slow_holds_nobody_up(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--metrics", "127.0.0.1:0") as process:
        found = re.search(r"http://(\S+)/metrics", process.words())
        assert found is not None

        def comes_first() -> bool:
            """Before the slow ones are sent away, if this process does not stand still."""
            with ExitStack() as stack:
                slow = [stack.enter_context(Wire(found.group(1))) for _ in range(6)]
                for wire in slow:
                    wire.socket.sendall(b"GET /metr")
                assert page(process).status == 200
                return all(wire.silent(0.001) for wire in slow)

        eventually(comes_first)
