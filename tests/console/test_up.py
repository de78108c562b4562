"""`headworks up`: one command, one address, a page while the rest is still starting."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headworks._cli.stack.ports import free_ports
from tests.console.fetch import Fetch
from tests.waiting import until

pytestmark = pytest.mark.e2e


def test_the_console_is_up_with_everything_and_goes_with_it(tmp_path: Path) -> None:
    broker, registry, console = (f"127.0.0.1:{port}" for port in free_ports(3))
    places = ["--broker", broker, "--registry", registry, "--console", console]
    command = [sys.executable, "-P", "-m", "headworks._cli", "up", *places, "--format", "json"]
    up = subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        fetch = Fetch(f"http://{console}")
        until(lambda: _answers(fetch), 120)
        known = fetch.until("/topics.json", lambda data: data["known"])
        fetch.until("/schemas.json", lambda data: data["rows"])
        assert known["part"]["page"] == 1
        assert up.stdout is not None
        lines = iter(up.stdout.readline, "}\n")
        said = json.loads("".join(lines) + "}")
        assert said["console"] == f"http://{console}"
        assert said["broker"] == broker
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
        up.communicate()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(console.rpartition(":")[2]))) != 0


def _answers(fetch: Fetch) -> bool:
    try:
        return fetch("/").status == 200
    except OSError:
        return False
