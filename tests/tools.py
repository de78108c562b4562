"""Programs that some tests need, and that neither `make demo` nor `make test` asks for.

Rules:

- A test names what it needs: `@needs("kcat")`, or `require("chromium")` in a fixture. If the tool
  is missing, the test is skipped with a reason that names the tool and how to install it.
- The last lines of a run count these skips by tool.
- With HEADWORKS_ALL_TOOLS=1 a missing tool is a failure, so that CI cannot lose a test silently.
- With HEADWORKS_SKIPPED=FILE the ids of the skipped tests are written to FILE, one on a line. When
  the tools are present, `pytest @FILE` runs these tests alone.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import NoReturn

import pytest

from headworks import _native

_REASON = re.compile(r"needs ([\w-]+), which is missing \(")


@dataclass(frozen=True, slots=True)
class Tool:
    """How to find a tool, and how to get it on Debian."""

    find: Callable[[], object]
    get: str


def _on_path(*programs: str) -> Callable[[], object]:
    return lambda: all(map(which, programs))


def postgresql() -> Path | None:
    """The folder of PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = which("initdb")
    return found[-1].parent if found else (on_path and Path(on_path).resolve().parent) or None


def chromium() -> str | None:
    """The browser's program."""
    return which("chromium") or which("chromium-browser")


def _compiler() -> bool:
    return which("gcc") is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()


def _librdkafka() -> bool:
    return which("gcc") is not None and Path("/usr/include/librdkafka/rdkafka.h").exists()


TOOLS = {
    "chromium": Tool(chromium, "apt-get install chromium"),
    "extensions": Tool(lambda: _native.COMPILED, "install gcc, then python hatch_build.py"),
    "gcc": Tool(_compiler, "apt-get install gcc libc6-dev python3-dev"),
    "git": Tool(_on_path("git"), "apt-get install git"),
    "javac": Tool(_on_path("java", "javac"), "apt-get install openjdk-17-jdk-headless"),
    "kcat": Tool(_on_path("kcat"), "apt-get install kcat"),
    "librdkafka-dev": Tool(_librdkafka, "apt-get install gcc librdkafka-dev"),
    "mount": Tool(lambda: which("mount") and os.geteuid() == 0, "run as root"),
    "postgresql": Tool(
        lambda: postgresql() and which("setpriv"), "apt-get install postgresql util-linux"
    ),
    "prometheus": Tool(_on_path("prometheus"), "apt-get install prometheus"),
    "promtool": Tool(_on_path("promtool"), "apt-get install prometheus"),
    "systemd": Tool(_on_path("systemd-analyze"), "apt-get install systemd"),
}


def needs(tool: str) -> pytest.MarkDecorator:
    """Return the marker of a test, a parameter, or a module that needs this tool."""
    assert tool in TOOLS, tool
    return pytest.mark.needs(tool)


def require(tool: str) -> None:
    """End the calling test, or fixture, unless the tool is present."""
    if not TOOLS[tool].find():
        miss(tool)


def miss(tool: str) -> NoReturn:
    """Skip the calling test for want of a tool, or let it fail if all must be present."""
    reason = f"needs {tool}, which is missing ({TOOLS[tool].get})"
    if os.environ.get("HEADWORKS_ALL_TOOLS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class ToolGuard:
    """Skips the tests that carry the marker `needs`, and counts all skips for want of a tool."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}  # node id: tool

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for mark in item.iter_markers("needs"):
            require(mark.args[0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            found = _REASON.search(report.longrepr[2])
            if found is not None:
                self._skipped[report.nodeid] = found[1]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts = Counter(self._skipped.values())
        if counts:
            text = ", ".join(f"{tool} {count}" for tool, count in sorted(counts.items()))
            terminalreporter.write_line(f"skipped for want of a tool: {text}")
        path = os.environ.get("HEADWORKS_SKIPPED")
        if path and not hasattr(terminalreporter.config, "workerinput"):  # one process has all
            Path(path).write_text("".join(f"{name}\n" for name in self._skipped), encoding="utf-8")
