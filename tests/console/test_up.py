"""`headworks up`: one command, one address, a page while the rest is still starting."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.console.fetch import Fetch


def free_addresses(count: int) -> list[str]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in listeners]
    for one in listeners:
        one.close()
    return found


def test_the_console_is_up_with_everything_and_goes_with_it(tmp_path: Path) -> None:
    broker, registry, console = free_addresses(3)
    places = ["--broker", broker, "--registry", registry, "--console", console]
    command = [sys.executable, "-P", "-m", "headworks.launch", "up", *places, "--format", "json"]
    up = subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        fetch = Fetch(f"http://{console}")
        _until_it_answers(fetch)
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
        assert up.wait(60) == 0
        up.communicate()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(console.rpartition(":")[2]))) != 0


def _until_it_answers(fetch: Fetch) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            assert fetch("/").status == 200
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
