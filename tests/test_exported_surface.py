"""The public modules and their names are exactly those of docs/public_api.md."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
IMPORT_ROOTS = ("headworks", "producer_sdk", "consumer_sdk", "hadoop_loader")
ROW = re.compile(r"^\| `([\w.]+)` \|.*\| (`.+`) \|$", re.MULTILINE)


def documented() -> dict[str, list[str]]:
    """Return the names of each public module, as the page lists them."""
    page = (ROOT / "docs" / "public_api.md").read_text(encoding="utf-8")
    return {module: re.findall(r"`(\w+)`", names) for module, names in ROW.findall(page)}


def modules_without_an_underscore() -> set[str]:
    """Return every module that can be imported without naming a private part."""
    found = set()
    for root in IMPORT_ROOTS:
        for path in (ROOT / root).rglob("*.py"):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            if not any(part.startswith("_") for part in parts):
                found.add(".".join(parts))
    return found


def test_every_module_without_an_underscore_is_documented() -> None:
    assert modules_without_an_underscore() == set(documented())


@pytest.mark.parametrize("name", documented())
def test_a_public_module_exports_what_the_page_lists(name: str) -> None:
    module = importlib.import_module(name)
    assert list(module.__all__) == documented()[name]
    assert [each for each in module.__all__ if not hasattr(module, each)] == []
