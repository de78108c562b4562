"""A test that needs a missing tool is skipped by name, counted, and can be run alone later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

CONFTEST = """
from tests.tools import ToolGuard

def pytest_configure(config):
    config.pluginmanager.register(ToolGuard())
    config.addinivalue_line("markers", "needs(tool): skipped without it")
"""
TESTS = """
import pytest
from tests.tools import needs, require

@pytest.fixture(scope="module")
def browser():
    require("chromium")

@needs("kcat")
def test_one(): pass

def test_two(browser): pass

def test_three(browser): pass

@pytest.mark.parametrize("n", [pytest.param("a b", marks=needs("kcat")), "c"])
def test_four(n): pass
"""


def run(root: Path, folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *("-p", "xdist", "-p", "no:cacheprovider", "--rootdir", "."),
            *arguments,
        ],
        cwd=folder,
        env={
            "PATH": "/nonexistent",
            "PYTHONPATH": str(root),
            "HOME": str(folder),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they are no part of this, and import much
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_skips_are_counted_by_tool_and_listed_for_a_later_run(root: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_a.py").write_text(TESTS)
    skipped = tmp_path / "skipped"
    for workers in ("2", "0"):
        skipped.unlink(missing_ok=True)
        done = run(root, tmp_path, "-rs", "-n", workers, HEADWORKS_SKIPPED=str(skipped))
        assert done.returncode == 0, done.stdout
        assert "skipped for want of a tool: chromium 2, kcat 2" in done.stdout
        assert "needs kcat, which is missing (apt-get install kcat)" in done.stdout
        names = ["test_one", "test_two", "test_three", "test_four[a b]"]
        assert sorted(skipped.read_text().splitlines()) == sorted(f"test_a.py::{n}" for n in names)
    for tool in ("kcat", "chromium"):
        (tmp_path / tool).symlink_to("/bin/true")
    present = {"PATH": str(tmp_path), "HEADWORKS_ALL_TOOLS": "1"}
    assert "4 passed" in run(root, tmp_path, f"@{skipped}", **present).stdout
    (tmp_path / "kcat").unlink()
    again = run(root, tmp_path, f"@{skipped}", **present)
    assert again.returncode == 1
    assert "2 passed" in again.stdout
    assert "needs kcat" in again.stdout
