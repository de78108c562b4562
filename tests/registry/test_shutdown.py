"""A graceful end: what is under way is answered, what comes later refused, the exit code 0."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from headworks import service
from tests.registry.conftest import start_registry

BODY = json.dumps({"schema": '"long"'}).encode()
HEAD = (
    b"POST /subjects/slow/versions HTTP/1.1\r\nHost: x\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
)


def connect(running: service.Service) -> socket.socket:
    host, _, port = running.address.partition(":")
    return socket.create_connection((host, int(port)), 10)


def receive_all(caller: socket.socket) -> bytes:
    received = b""
    while chunk := caller.recv(65536):
        received += chunk
    return received


@pytest.mark.parametrize("signals", [1, 2])
def test_a_slow_request_is_answered(tmp_path: Path, signals: int) -> None:
    with start_registry(tmp_path) as running:
        idle = connect(running)
        caller = connect(running)
        caller.sendall(HEAD + BODY[:5])
        time.sleep(0.2)
        for _ in range(signals):
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        with pytest.raises(ConnectionRefusedError):
            connect(running)
        assert idle.recv(1) == b"", "a connection without a request is closed"
        caller.sendall(BODY[5:])
        answer = receive_all(caller)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"id":1' in answer
        assert running.process.wait(10) == 0
        for one in (idle, caller):
            one.close()
    with closing(sqlite3.connect(tmp_path / "registry.db")) as store:
        assert store.execute("SELECT subject FROM versions").fetchall() == [("slow",)]


def test_a_request_that_never_ends_does_not_keep_it(tmp_path: Path) -> None:
    with start_registry(tmp_path) as running:
        caller = connect(running)
        caller.sendall(HEAD + BODY[:5])
        time.sleep(0.2)
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(15) == 0
        assert 3 < time.monotonic() - began < 10
        caller.close()
