"""The README is true: every `sh` block of its tutorial runs, in order, in one empty folder.

The blocks that start `headworks up` and the loader run in the background, on free ports. The rest
follow as a reader would type them, who waits until the loader has printed what is queried.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest

from headworks._cli.stack.ports import free_ports
from tests.waiting import until

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent.parent
LOADED = re.compile(r"^orders +orders +\d+ +(\d+)", re.MULTILINE)  # the rows of one load
ORDERS = 3  # of each run of order.py
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    start = text.index(f"## {title}\n")
    end = text.find("\n## ", start + 1)
    return text[start : end if end != -1 else None]


def tutorial() -> list[str]:
    text = section((ROOT / "README.md").read_text(encoding="utf-8"), "Tutorial")
    return [body for language, body in FENCE.findall(text) if language == "sh"]


@pytest.fixture
def reader(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who follows the README, with ports of their own."""
    shutil.copytree(ROOT / "schemas", tmp_path / "schemas")
    broker, registry, console = (f"127.0.0.1:{port}" for port in free_ports(3))
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {
        **buffered,
        "PATH": f"{os.environ.get('HEADWORKS_TEST_BIN') or Path(sys.executable).parent}{os.pathsep}"
        f"{os.environ['PATH']}",
        "XDG_STATE_HOME": str(
            tmp_path / "state"
        ),  # what other producers left is not published here
        "HEADWORKS_BOOTSTRAP": broker,
        "HEADWORKS_REGISTRY": f"http://{registry}",
        "HEADWORKS_CONSOLE": f"http://{console}",
    }


def shell(command: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        check=False,
        timeout=600,
    )


@contextmanager
def background(command: str, folder: Path, env: dict[str, str], said: Path) -> Iterator[None]:
    """Run a program of the tutorial that keeps running; Ctrl-C ends it well."""
    program, *arguments = command.split()
    with said.open("w") as out:
        running = subprocess.Popen(
            [program, *arguments],
            cwd=folder,
            env=env,
            stdout=out,
            stderr=out,
            executable=shutil.which(program, path=env["PATH"]),
        )
    try:
        yield
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 0, said.read_text()


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_tutorial_runs(tmp_path: Path, reader: dict[str, str]) -> None:
    first, *blocks = tutorial()
    (loader,) = (block for block in blocks if block.startswith("headworks load run --every"))
    (hive,) = (f"127.0.0.1:{port}" for port in free_ports(1))
    of_up, of_loader = tmp_path / "up.txt", tmp_path / "loader.txt"
    outputs = [""]
    assert first.strip() == "headworks up"
    with ExitStack() as stack:
        stack.enter_context(background(first, tmp_path, reader, of_up))
        assert_what_runs_where(block_of(of_up), tmp_path, reader)
        queries = 0
        for block in blocks:
            command = block.replace("127.0.0.1:10000", hive)
            if block is loader:
                stack.enter_context(background(command, tmp_path, reader, of_loader))
                continue
            if "headworks sql" in block:
                queries += 1
                until(partial(has_loaded, of_loader, queries * ORDERS), 120)
            outputs.append(run_block(command, tmp_path, reader))
    assert queries == 2
    everything = "\n".join(outputs)
    for promised in promises():
        assert promised in everything, promised


def has_loaded(of_loader: Path, rows: int) -> bool:
    return sum(int(loaded) for loaded in LOADED.findall(of_loader.read_text())) >= rows


def block_of(of_up: Path) -> dict[str, str]:
    """The lines that `headworks up` prints when everything runs, by their first word."""
    until(lambda: "Ctrl-C" in of_up.read_text(), 120)
    lines = of_up.read_text().splitlines(keepends=True)
    words = [line.split(maxsplit=1) for line in lines if not line.startswith(" ")]
    first = [name for name, *_ in words].index("console")
    return {name: text.strip() for name, text in words[first:]}


def assert_what_runs_where(block: dict[str, str], folder: Path, reader: dict[str, str]) -> None:
    """Addresses, metrics that answer, data, and a command that works in any folder."""
    assert list(block) == ["console", "broker", "registry", "metrics", "data", "try", "stop"]
    assert block["console"] == reader["HEADWORKS_CONSOLE"]
    assert block["broker"] == reader["HEADWORKS_BOOTSTRAP"]
    assert block["registry"] == reader["HEADWORKS_REGISTRY"]
    pages = re.findall(r"(\S+) \((\w+)\)", block["metrics"])
    assert [name for _, name in pages] == ["broker", "audit", "registry"]
    for url, name in pages:
        with urlopen(url, timeout=60) as answer:
            assert answer.status == 200, name
    data = folder / "headworks-data"
    assert block["data"].split() == ["headworks-data", "(logs", "in", "headworks-data/logs)"]
    assert (data / "logs").is_dir()
    elsewhere = {k: v for k, v in reader.items() if not k.startswith("HEADWORKS_")}
    tried = shell(block["try"], Path("/"), elsewhere)
    assert tried.returncode == 0, tried.stderr


def run_block(block: str, folder: Path, env: dict[str, str]) -> str:
    done = shell(block, folder, env)
    expected = 1 if "# refused" in block else 0
    assert done.returncode == expected, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def promises() -> list[str]:
    """The lines that the tutorial shows as output, in `text` blocks, without their dots."""
    text = section((ROOT / "README.md").read_text(encoding="utf-8"), "Tutorial")
    return [
        line.strip()
        for language, body in FENCE.findall(text)
        if language == "text"
        for line in body.splitlines()
        if line.strip() and not line.strip().startswith("...")
    ]


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in readme
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.name))
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert not [link for link in links if not (document.parent / link).exists()]


def test_every_command_is_documented() -> None:
    from typer.main import get_command

    from headworks._cli.main import command_line

    everything = "\n".join(path.read_text(encoding="utf-8") for path in documents())
    commands = [
        path
        for name, command in get_command(command_line()).commands.items()  # type: ignore[attr-defined]
        for path in [f"{name} {sub}" for sub in getattr(command, "commands", {})] or [name]
    ]
    assert not [path for path in commands if f"headworks {path}" not in everything]
