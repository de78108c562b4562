"""No compiled decoder reads beyond its buffer: the page behind it may not be read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import needs

pytestmark = [pytest.mark.contract, needs("extensions")]


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.headworks.decoding.guard_pages", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_byte_is_read_beyond_a_buffer(root: Path) -> None:
    done = run(root, "17", "40")
    assert done.returncode == 0, done.stderr


def test_reading_beyond_a_buffer_ends_the_process(root: Path) -> None:
    assert run(root, "beyond").returncode == -signal.SIGSEGV
