"""The time that a user's tests wait for the broker and the registry of the pytest plugin.

Rules: the setting is a user's. A folder holds one test file, and its own pytest runs it. The
clock runs from the moment in which the first test requests the fixture until it has it.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bench.frame import Bench
from headworks.errors import HeadworksError

_TEST = """
import pathlib
import time

import pytest


@pytest.fixture(scope="session")
def began():
    return time.perf_counter()


def test_it_is_up(began, headworks_stack):
    pathlib.Path("seconds").write_text(str(time.perf_counter() - began))
"""


def fixture_start(bench: Bench) -> float:
    """Seconds until `headworks_stack` is there."""
    folder = bench.folder / "users-tests"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test_up.py").write_text(_TEST, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )
    if done.returncode:
        raise HeadworksError(f"the fixture did not start: {done.stdout}{done.stderr}")
    return float((folder / "seconds").read_text(encoding="utf-8"))
