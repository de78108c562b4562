"""The README is true: every `sh` block of its tutorial runs, in order, in one empty folder.

The block that starts `headworks up` runs in the background, on free ports; the rest follow as a
reader would type them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headworks._cli.stack.ports import free_ports

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent.parent
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
    return {
        **os.environ,
        "PATH": f"{os.environ.get('HEADWORKS_TEST_BIN') or Path(sys.executable).parent}{os.pathsep}"
        f"{os.environ['PATH']}",
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


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_tutorial_runs(tmp_path: Path, reader: dict[str, str]) -> None:
    first, *blocks = tutorial()
    assert first.strip() == "headworks up"
    up = subprocess.Popen(
        ["headworks", "up"],
        cwd=tmp_path,
        env=reader,
        stderr=subprocess.PIPE,
        text=True,
        executable=shutil.which("headworks", path=reader["PATH"]),
    )
    try:
        assert up.stderr is not None
        while "Ctrl-C" not in (line := up.stderr.readline()):
            assert line, "headworks up ended"
        outputs = [run_block(block, tmp_path, reader) for block in blocks]
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
        up.communicate()
    everything = "\n".join(outputs)
    for promised in promises():
        assert promised in everything, promised


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
