"""The house rules that a machine can check: who may import whom, and how a module begins."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A part may import the parts of later lines only; parts of one line do not know each other.
LAYERS = [
    {"cli"},
    {"console"},
    {"ci"},
    {"hadoop_loader", "consumer_sdk", "producer_sdk"},
    {"audit"},
    {"registry", "broker"},
    {"headworks"},
]
PARTS = {part: line for line, parts in enumerate(LAYERS) for part in parts}
# What a user's own process imports: it may meet the user's own `registry.py` or `broker/`.
IN_USERS_PROCESS = {"headworks", "producer_sdk", "consumer_sdk"}
OUR_OWN_NAMES = IN_USERS_PROCESS
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
LONGEST = 500


def modules() -> Iterator[Path]:
    for part in PARTS:
        yield from sorted((ROOT / part).rglob("*.py"))


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found = [(node.module, node.lineno)]
        else:
            continue
        for name, line in found:
            part = name.partition(".")[0]
            if part in PARTS:
                yield part, line


@pytest.mark.parametrize("part", sorted(PARTS))
def test_imports_point_one_way(part: str) -> None:
    wrong = []
    for path in sorted((ROOT / part).rglob("*.py")):
        for imported, line in imported_parts(path):
            if imported != part and PARTS[imported] <= PARTS[part]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {imported}")
    assert not wrong


def test_a_users_process_imports_no_generic_name() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for part in sorted(IN_USERS_PROCESS)
        for path in sorted((ROOT / part).rglob("*.py"))
        for imported, line in imported_parts(path)
        if imported not in OUR_OWN_NAMES
    ]
    assert not wrong


def test_every_module_says_what_it_is_for() -> None:
    mute = [
        str(path.relative_to(ROOT))
        for path in modules()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not mute


def test_no_module_has_a_vague_name() -> None:
    assert not [str(path) for path in modules() if path.stem.strip("_") in VAGUE]


def test_no_module_is_longer_than_one_idea() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in modules()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert not long


def test_the_parts_are_where_the_design_puts_them() -> None:
    expected = set(PARTS) | {"schemas", "tests", "docs"}
    assert not [name for name in sorted(expected) if not (ROOT / name).is_dir()]


def test_every_part_is_in_the_wheel() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) == {part for part in PARTS if (ROOT / part).is_dir()}
