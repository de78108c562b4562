"""Documents that guide through the code name files that exist, and link to pages that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
GUIDES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    ROOT / "docs" / "glossary.md",
    ROOT / "docs" / "releasing.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]*)+)`")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
_NO_PATHS = {"./headworks-data", "dist/"}  # what a server and a build make


def named(text: str) -> set[str]:
    """The paths from the top of the repository that a text names in backticks."""
    return set(_PATH.findall(text)) - _NO_PATHS


def test_a_path_is_found_in_a_text() -> None:
    text = "`broker/log/partition.py`, `ci/`, `headworks up`, `s3a://bucket/x`, and/or"
    assert named(text) == {"broker/log/partition.py", "ci/"}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_path_that_a_guide_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = {path for path in named(text) if not (ROOT / path).exists()}
    missing |= {link for link in _LINK.findall(text) if not (page.parent / link).exists()}
    assert not missing


def test_every_program_that_works_names_its_tests() -> None:
    page = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
    table = page.partition("\n## Which programs work\n")[2]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")][2:]
    assert rows
    folders = (ROOT / "tests" / "interop", ROOT / "tests" / "broker")
    for program, _, _, tests in rows:
        names = re.findall(r"`(\w+\.py)`", tests)
        assert names, program
        assert all(any((folder / name).is_file() for folder in folders) for name in names), program


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = set(_LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
    pages = {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert pages <= index
