"""Commands find their brokers in ZooKeeper: each command with `--bootstrap` can."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headworks._cli.main import command_line
from headworks._cli.stack.stack import running_stack
from headworks._server import child_process
from tests.console.fetch import Fetch

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("noun", ["load", "audit", "console", "group"])
def test_who_takes_brokers_takes_zookeeper(noun: str) -> None:
    every = get_command(command_line()).commands[noun].commands  # type: ignore[attr-defined]
    found = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in every.items()
    }
    taking = {name: options for name, options in found.items() if "--bootstrap" in options}
    assert taking
    assert [name for name, options in taking.items() if "--zookeeper" not in options] == []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headworks._cli", *arguments, "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_brokers_of_an_ensemble_are_found(tmp_path: Path) -> None:
    with running_stack(tmp_path / "stack", zookeeper="embedded") as stack:
        assert stack.zookeeper is not None
        there = ("--zookeeper", stack.zookeeper, "--registry", stack.registry.url)
        asked = run("audit", "status", *there, "--store", f"sqlite:///{tmp_path / 'audit.db'}")
        assert asked.returncode == 0, asked.stderr
        assert json.loads(asked.stdout)["rows"] == []
        start = ["console", "start", "--listen", "127.0.0.1:0", *there]
        with child_process.start(start) as console:
            page = Fetch(console.url)
            page.until("/topics.json", lambda _: was_read(broker(page)))


def was_read(source: dict[str, Any]) -> bool:
    return source["age_seconds"] is not None and source["problem"] is None


def broker(page: Fetch) -> dict[str, Any]:
    (found,) = (one for one in page("/topics.json").json["sources"] if one["name"] == "broker")
    return dict(found)


def test_what_was_loaded_can_be_said_while_zookeeper_is_away(tmp_path: Path) -> None:
    (tmp_path / "_headworks" / "commits").mkdir(parents=True)
    asked = run("load", "status", "--zookeeper", "127.0.0.1:1", "--warehouse", str(tmp_path))
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout)
    assert found["topics"] == []
    assert "127.0.0.1:1" in found["broker_error"]
