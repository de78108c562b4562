"""A server that was forked is the process that a new interpreter would have become."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headworks._server import child_process
from headworks.errors import UsageError
from tests import command_line
from tests.command_line import run_process
from tests.kinds import UnitTestError, UnitTestGuard
from tests.preloaded import ForkedProcess, Preloaded
from tests.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are adopted"),
]


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    found = Preloaded()
    yield found
    found.close()


def start(*options: str, env: dict[str, str] | None = None) -> child_process.Service:
    return child_process.start(["broker", "start", "--listen", "127.0.0.1:0", *options], env=env)


def facts(pid: int) -> dict[str, object]:
    """The state that a process has from the one that started it."""
    folder = Path(f"/proc/{pid}")
    environment = dict(
        entry.split(b"=", 1) for entry in (folder / "environ").read_bytes().split(b"\0") if entry
    )
    stat = (folder / "stat").read_text().rsplit(") ", 1)[1].split()
    return {
        "parent": int(stat[1]),
        "session": int(stat[3]) == pid,
        "folder": os.readlink(folder / "cwd"),
        # Files come and go. A pipe or a socket too many would keep another process waiting.
        "pipes": sorted(
            kind
            for one in (folder / "fd").iterdir()
            if (kind := os.readlink(one).partition(":")[0]) in {"pipe", "socket"}
        ),
        "limits": (folder / "limits").read_text(),
        # SigQ counts the signals of all processes of the user.
        "signals": [
            line
            for line in (folder / "status").read_text().split("\n")
            if line.startswith("Sig") and not line.startswith("SigQ")
        ],
        "path": environment.get(b"PATH"),
    }


def test_a_server_is_the_child_that_a_new_interpreter_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with start("--data-dir", "forked") as forked:
        assert isinstance(forked.process, ForkedProcess)
        seen = facts(forked.process.pid)
        assert forked.stop() == 0
    monkeypatch.setattr(child_process, "subprocess", subprocess)
    with start("--data-dir", "new") as new:
        assert not isinstance(new.process, ForkedProcess)
        assert seen == facts(new.process.pid)
    assert seen["parent"] == os.getpid()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["forked", "new"]


def test_its_environment_decides(tmp_path: Path) -> None:
    with start(env={"HEADWORKS_DATA_DIR": str(tmp_path)}):
        assert (tmp_path / "broker").is_dir()
    assert "HEADWORKS_DATA_DIR" not in os.environ


def test_a_changed_interpreter_is_a_new_one(tmp_path: Path) -> None:
    with start("--data-dir", str(tmp_path), env={"PYTHONPATH": str(tmp_path)}) as running:
        assert not isinstance(running.process, ForkedProcess)


def test_its_output_goes_where_it_is_sent(preloaded: Preloaded, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.soak.faults", str(tmp_path), "broker", "start"]
    with (tmp_path / "log").open("ab") as log:
        process = preloaded.popen(
            [*command, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parent.parent,
            env=dict(os.environ),
        )
    with process:
        try:
            until(lambda: "broker serving on" in (tmp_path / "log").read_text())
        finally:
            process.terminate()
    assert process.returncode == 0
    assert isinstance(process, ForkedProcess)
    assert process.stdout is None


def test_killed_and_refused_ones_end_with_their_codes(tmp_path: Path) -> None:
    with start("--data-dir", str(tmp_path)) as running:
        with pytest.raises(UsageError, match="in use"):
            start("--data-dir", str(tmp_path))
        running.kill()
        assert running.process.returncode == -9
    assert not Path(f"/proc/{running.process.pid}").exists()


def test_a_client_is_forked_too_and_reads_and_writes_as_a_new_interpreter_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = (
        "produce",
        "orders",
        "--bootstrap",
        "127.0.0.1:1",
        "--registry",
        "http://127.0.0.1:1",
    )
    seen = [run_process(*words, stdin="{}\n") for words in (command, ("consume", "--help"))]
    monkeypatch.setattr(command_line, "subprocess", subprocess)
    again = [run_process(*words, stdin="{}\n") for words in (command, ("consume", "--help"))]
    for forked, new in zip(seen, again, strict=True):
        assert (forked.returncode, forked.stdout) == (new.returncode, new.stdout)
        assert forked.stderr == new.stderr
    assert (seen[0].returncode, seen[1].returncode) == (3, 0)
    assert "127.0.0.1:1" in seen[0].stderr
    assert "Usage:" in seen[1].stdout


def test_its_parent_is_again_no_parent_of_orphans(tmp_path: Path) -> None:
    with start("--data-dir", str(tmp_path)):
        done = subprocess.run(
            ["sh", "-c", "(sh -c 'echo $PPID; sleep 0.2; echo $PPID' & sleep 0.1)"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert str(os.getpid()) not in done.stdout.split()


def test_a_unit_test_that_starts_one_fails(preloaded: Preloaded, tmp_path: Path) -> None:
    guard = UnitTestGuard()

    class Item:
        def iter_markers(self) -> list[pytest.Mark]:
            return [pytest.mark.unit.mark]

    command: Any = [sys.executable, "-P", "-m", "headworks._cli", "broker", "start"]
    protocol: Any = guard.pytest_runtest_protocol(Item())  # type: ignore[arg-type]
    environment = dict(os.environ)
    with (tmp_path / "log").open("ab") as log:
        next(protocol)
        try:
            with pytest.raises(UnitTestError):
                preloaded.popen(command, env=environment, stdout=subprocess.PIPE, stderr=log)
        finally:
            with pytest.raises(StopIteration):
                protocol.send(None)
