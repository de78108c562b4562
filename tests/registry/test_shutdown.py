"""Graceful shutdown: open requests are answered, new ones refused, and the exit code is 0."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from headworks._server.http_server import DRAIN_SECONDS, bind, serve_app
from tests.registry.conftest import start_registry
from tests.registry.test_metrics import Scrape
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e

BODY = json.dumps({"schema": '"long"'}).encode()
HEAD = (
    b"POST /subjects/slow/versions HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
)
# A registry that waits for what is under way however long a busy machine takes.
PATIENT = """
from headworks._cli import main
from headworks._server import http_server
http_server.DRAIN_SECONDS = 600
main.run()
"""


def connect(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def is_refused(address: str) -> bool:
    try:
        connect(address).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it was in the queue when the listening ended
        return False
    return False


def begun(address: str, caller: socket.socket) -> None:
    """Send the beginning of a request, and wait until the registry has seen it."""
    caller.sendall(HEAD + BODY[:5])
    until(lambda: Scrape(f"http://{address}").value("requests_in_flight") == 2)  # it and this


def receive_all(caller: socket.socket) -> bytes:
    received = b""
    while chunk := caller.recv(65536):
        received += chunk
    return received


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    command = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store, "--format", "json"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PATIENT, *command], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["listen"]
        finally:
            process.kill()


@pytest.mark.parametrize("signals", [1, 2])
def test_a_slow_request_is_answered(
    patient: tuple[subprocess.Popen[str], str], tmp_path: Path, signals: int
) -> None:
    process, address = patient
    with connect(address) as idle, connect(address) as caller:
        begun(address, caller)
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            until(lambda: is_refused(address))
        assert idle.recv(1) == b"", "a connection without a request is closed"
        caller.sendall(BODY[5:])
        answer = receive_all(caller)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"id":1' in answer
        assert process.wait(PATIENCE) == 0
    with closing(sqlite3.connect(tmp_path / "registry.db")) as store:
        assert store.execute("SELECT subject FROM versions").fetchall() == [("slow",)]


def test_a_request_that_never_ends_does_not_keep_it(tmp_path: Path) -> None:
    with start_registry(tmp_path) as running, connect(running.address) as caller:
        begun(running.address, caller)
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE) == 0
        assert time.monotonic() - began >= DRAIN_SECONDS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_it_serves_ends_it_too(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def raised(self: uvicorn.Config) -> Callable[[], asyncio.AbstractEventLoop]:
        signal.raise_signal(number)  # the server's own handlers come after this
        return asyncio.new_event_loop

    monkeypatch.setattr(uvicorn.Config, "get_loop_factory", raised)
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    listening = bind("127.0.0.1:0")
    try:
        serve_app(listening, Starlette(), lambda _address: None)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert listening.fileno() == -1, "it has ended, and listens no more"
