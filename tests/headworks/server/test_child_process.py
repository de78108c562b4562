"""A child service: it serves, it stops, it dies with its parent, it says why it could not start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headworks._server import child_process
from headworks.errors import UsageError

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers start as users start them, and not as in other tests (tests/preloaded.py)."""
    monkeypatch.setattr(child_process, "subprocess", subprocess)


def start_registry(folder: Path, listen: str = "127.0.0.1:0") -> child_process.Service:
    return child_process.start(
        ["registry", "start", "--listen", listen, "--store", f"sqlite:///{folder / 'r.db'}"]
    )


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except OSError:
        return False
    return True


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    with start_registry(tmp_path) as running:
        assert answers(running.address)
        assert running.stop() == 0
    assert not answers(running.address)


def test_a_taken_port_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match=address):
            start_registry(tmp_path, address)


def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from headworks._server import child_process\n"
            "s = child_process.start(['registry', 'start', '--listen', '127.0.0.1:0', '--store', "
            f"'sqlite:///{tmp_path / 'r.db'}'])\n"
            "print(s.address, s.process.pid, flush=True); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        address, pid = parent.stdout.readline().split()
        assert answers(address)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_its_words_can_be_read_while_it_writes_on(tmp_path: Path) -> None:
    """Reading does not move the place at which the service, which shares the file, goes on."""
    listen = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with child_process.start(["broker", "start", *listen]) as running:
        host, _, port = running.address.partition(":")
        for count in (1, 2, 3):
            with socket.create_connection((host, int(port)), 60) as nonsense:
                nonsense.sendall(b"\0\0\0\x01")
                assert nonsense.recv(1) == b""
            assert running.words().count("a request of 1 bytes") == count
