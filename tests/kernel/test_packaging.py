"""What a user installs: the wheel holds the code, the catalogue and the demo's data, no tests."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def names(root: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(root)], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_it_holds_what_the_commands_need(names: set[str]) -> None:
    assert {
        "headworks/catalogue/headworks/audit.avsc",
        "headworks/catalogue/nyc/flights.avsc",
        "headworks/catalogue/governance.toml",
        "cli/demo/changes/flights-v2.avsc",
        "headworks/py.typed",
    } <= names


def test_it_holds_no_tests(names: set[str]) -> None:
    assert not [name for name in names if name.startswith(("tests/", "bench/", "docs/"))]


def test_the_lock_file_names_no_host_and_pins_everything(root: Path) -> None:
    lines = (root / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert pins
    assert not [line for line in pins if "==" not in line]
    assert not [line for line in lines if "://" in line]
