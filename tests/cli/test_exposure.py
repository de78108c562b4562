"""No server of ours, and no page of metrics, is open to other machines unless its operator says so.

Every option that takes an address to listen on is tried with 0.0.0.0, as a user would.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from headworks._cli.main import command_line
from tests.cli.test_options import commands
from tests.command_line import run_command

pytestmark = pytest.mark.unit

EXPOSED = "0.0.0.0:0"
INTERFACE = "192.0.2.1:0"  # for a broker that would tell its clients the address
LISTENING = {
    ("broker start", "--listen"): ["--advertise", "127.0.0.1:9092"],
    ("broker start", "--metrics"): ["--listen", "127.0.0.1:0"],
    ("registry start", "--listen"): [],
    ("console start", "--listen"): [],
    ("mirror", "--metrics"): ["--from", "127.0.0.1:1", "--to", "127.0.0.1:2", "--topics", "t"],
    ("audit run", "--metrics"): [],
    ("load run", "--metrics"): [],
    ("load run", "--serve"): [],
    ("up", "--broker"): ["--registry", "127.0.0.1:0", "--console", "127.0.0.1:0"],
    ("up", "--registry"): ["--broker", "127.0.0.1:0", "--console", "127.0.0.1:0"],
    ("up", "--console"): ["--broker", "127.0.0.1:0", "--registry", "127.0.0.1:0"],
    ("up", "--metrics"): [
        *("--broker", "127.0.0.1:0", "--registry", "127.0.0.1:0", "--console", "127.0.0.1:0"),
    ],
}
_STARTS_OTHERS = [case for case in LISTENING if case[0] == "up"]
_LISTENING_NAMES = ("--listen", "--metrics", "--serve")  # whatever their help says
Running = dict[tuple[str, str], "subprocess.Popen[str]"]


def command_of(case: tuple[str, str]) -> list[str]:
    """The command that listens where other machines reach it."""
    name, option = case
    address = INTERFACE if option == "--broker" else EXPOSED
    return [*name.split(), *LISTENING[case], option, address]


def assert_refused(code: int, said: str, option: str) -> None:
    assert code == 2, said
    address = "192.0.2.1" if option == "--broker" else "0.0.0.0"
    assert f"other machines can reach {address}" in said
    assert "fix: " in said
    assert "127.0.0.1" in said


@pytest.mark.parametrize(
    "case", [case for case in LISTENING if case not in _STARTS_OTHERS], ids=" ".join
)
def test_an_exposed_server_without_users_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str]
) -> None:
    """It ends before it listens, connects, or starts a process: a unit test can do none of them."""
    for name in [name for name in os.environ if "HEADWORKS" in name]:
        monkeypatch.delenv(name)
    done = run_command(*command_of(case), cwd=tmp_path)
    assert_refused(done.returncode, done.stderr, case[1])


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Those that start servers as processes, at the same time, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("exposure")
    clean = {name: value for name, value in os.environ.items() if "HEADWORKS" not in name}
    running: Running = {}
    try:
        for number, case in enumerate(_STARTS_OTHERS):
            running[case] = subprocess.Popen(
                [sys.executable, "-m", "headworks._cli", *command_of(case)],
                cwd=_new(folder / str(number)),
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        yield running
    finally:
        for one in running.values():
            one.kill()
            one.communicate()


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.e2e
@pytest.mark.parametrize("case", _STARTS_OTHERS, ids=" ".join)
def test_an_exposed_server_of_up_does_not_start(started: Running, case: tuple[str, str]) -> None:
    _, said = started[case].communicate(timeout=120)
    assert_refused(started[case].returncode, said, case[1])


def test_every_option_that_listens_is_tried() -> None:
    root: Any = typer.main.get_command(command_line())
    found = {
        (name.removeprefix("headworks "), parameter.opts[0])
        for name, command in commands(root, "headworks")
        for parameter in command.params
        if " on this HOST:PORT" in (parameter.help or "") or parameter.opts[0] in _LISTENING_NAMES
    }
    assert found == set(LISTENING)
