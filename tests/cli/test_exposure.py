"""No server of ours, and no page of metrics, is open to other machines unless its operator says so.

Every option that takes an address to listen on is tried with 0.0.0.0, as a user would.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer.main

from headworks._cli.main import command_line
from tests.cli.test_options import commands
from tests.command_line import run_command

pytestmark = pytest.mark.unit

EXPOSED = "0.0.0.0:9400"
INTERFACE = "192.0.2.1:9400"  # another than 0.0.0.0
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
_LISTENING_NAMES = ("--listen", "--metrics", "--serve")  # whatever their help says


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


@pytest.mark.parametrize("case", LISTENING, ids=" ".join)
def test_an_exposed_server_without_users_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str]
) -> None:
    """It ends before it listens, connects, or starts a process: a unit test can do none of them."""
    for name in [name for name in os.environ if "HEADWORKS" in name]:
        monkeypatch.delenv(name)
    done = run_command(*command_of(case), cwd=tmp_path)
    assert_refused(done.returncode, done.stderr, case[1])


def test_every_option_that_listens_is_tried() -> None:
    root: Any = typer.main.get_command(command_line())
    found = {
        (name.removeprefix("headworks "), parameter.opts[0])
        for name, command in commands(root, "headworks")
        for parameter in command.params
        if " on this HOST:PORT" in (parameter.help or "") or parameter.opts[0] in _LISTENING_NAMES
    }
    assert found == set(LISTENING)
