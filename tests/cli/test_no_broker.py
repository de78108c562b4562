"""Why no broker answers: each cause has a reason and a fix of its own, and none takes long."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headworks._cli import broker_address, no_broker, topic, topic_changes
from headworks._cli.broker_address import topics_metadata
from headworks._cli.main import command_line
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from tests.waiting import within_some_time

pytestmark = pytest.mark.e2e


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def listener(*, closes: bool) -> Iterator[str]:
    """A server that ends every connection, or accepts them and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.close()

        if closes:
            threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def reason(address: str) -> tuple[str, str, float]:
    began = time.monotonic()
    with pytest.raises(UnreachableError) as caught:
        topics_metadata(address)
    return caught.value.message, caught.value.fix or "", time.monotonic() - began


def reason_with(words: str, address: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The reason and its fix, from a server that may take long to say so on a busy machine."""
    found = "", ""

    def check(seconds: float) -> None:
        nonlocal found
        monkeypatch.setattr(broker_address, "_TIMEOUT_SECONDS", seconds)
        monkeypatch.setattr(no_broker, "_PROBE_SECONDS", 2 * seconds)
        message, fix, _ = reason(address)
        found = message, fix
        assert words in message

    within_some_time(check, 1.0, 5.0, 25.0)
    return found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_address, "_STARTING_SECONDS", 0.5)
    monkeypatch.setattr(broker_address, "_TIMEOUT_SECONDS", 1.0)


def test_a_closed_port_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    message, fix = reason_with("refused", "127.0.0.1:1", monkeypatch)
    assert message == "no broker answers at 127.0.0.1:1: 127.0.0.1:1: Connection refused"
    assert "headworks up" in fix


def test_an_unknown_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Failed to resolve 'no-such-host.invalid:9092'"
    message, fix = reason_with(words, "no-such-host.invalid:9092", monkeypatch)
    assert "after 0ms" not in message
    assert "host name" in fix


def test_an_unknown_host_beside_a_closed_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "127.0.0.1:1,no-such-host.invalid:9092"
    message, _ = reason_with(": Failed to resolve 'no-such-host.invalid", address, monkeypatch)
    assert "no-such-host.invalid" in message.partition(": ")[2]


def test_the_port_of_a_web_server_is_recognized(
    registry: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server() as address:
        for one in (address, registry.address):
            _, fix = reason_with("a web server answers there", one, monkeypatch)
            assert "9092" in fix


def test_another_protocol_and_a_hung_server_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    with listener(closes=True) as address:
        reason_with("does not speak Kafka's protocol", address, monkeypatch)
    with listener(closes=False) as address:
        assert "nothing answers" in reason(address)[0]


def test_an_url_is_no_address() -> None:
    message, fix, _ = reason("http://127.0.0.1:8081")
    assert "is not an address" in message
    assert "HOST:PORT" in fix


def test_wrong_credentials_are_not_a_missing_broker(
    broker: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_USERNAME", "ada")
    monkeypatch.setenv("HEADWORKS_PASSWORD", "secret")
    _, fix = reason_with("SASL", broker.address, monkeypatch)
    assert "password" in fix


def test_nothing_that_listens_is_reported_within_the_time_that_a_broker_starts_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_address, "_TIMEOUT_SECONDS", 60.0)
    assert reason("127.0.0.1:1")[2] < 30


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("audit status --bootstrap 127.0.0.1:1", "--bootstrap"),
        ("audit explain t 2026-01-01T00:00Z --bootstrap 127.0.0.1:1", "--bootstrap"),
        ("mirror --from 127.0.0.1:1 --to 127.0.0.1:2 --topics x", "--from"),
    ],
)
def test_a_command_names_the_reason_and_its_own_option(
    line: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_DATA_DIR", str(tmp_path))

    def check(seconds: float) -> None:
        monkeypatch.setattr(broker_address, "_TIMEOUT_SECONDS", seconds)
        done = CliRunner().invoke(command_line(), line.split())
        assert isinstance(done.exception, UnreachableError), done.output
        assert done.exception.message.startswith("no broker answers at 127.0.0.1:1: ")
        assert "Connection refused" in done.exception.message
        assert option in (done.exception.fix or "")

    within_some_time(check, 1.0, 5.0, 25.0)


def test_settings_that_nobody_tells_are_not_said_to_be_none(
    broker: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["--bootstrap", broker.address]
    assert CliRunner().invoke(command_line(), ["topic", "create", "untold", *asked]).exit_code == 0
    gone = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 2})
    monkeypatch.setattr(topic, "admin_client", lambda _: gone)
    monkeypatch.setattr(topic, "_TIMEOUT_SECONDS", 0.5)
    shown = ["topic", "describe", "untold", "--format", "json", *asked]
    done = CliRunner().invoke(command_line(), shown)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["configs"] is None
    assert "the settings of untold are not told: " in done.stderr
    assert "does not tell whether anything is damaged: " in done.stderr


def test_a_broker_that_goes_away_before_a_change_has_not_refused_it(
    broker: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = AdminClient(
        {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000, "log_level": 2}
    )
    monkeypatch.setattr(topic_changes, "admin_client", lambda _: gone)
    line = f"topic create never-created --bootstrap {broker.address}"
    done = CliRunner().invoke(command_line(), line.split())
    assert isinstance(done.exception, UnreachableError), done.output
    assert "did not answer (" in done.exception.message
    assert "topic list" in (done.exception.fix or "")
