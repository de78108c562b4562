"""The house rules that a machine can check: who may import whom, and how a module begins."""

from __future__ import annotations

import ast
import tomllib
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
    {"broker", "mirror", "registry"},
    {"headworks"},
]
PARTS = {part: line for line, parts in enumerate(LAYERS) for part in parts}
# The four names that a wheel puts at the top of site-packages. Every other part is imported as
# `headworks._<part>`, a link to the folder of that name (docs/decisions/import-names.md).
IMPORT_ROOTS = {"headworks", "producer_sdk", "consumer_sdk", "hadoop_loader"}
LINKED = set(PARTS) - IMPORT_ROOTS
# What a user's own process imports.
IN_USERS_PROCESS = {"headworks", "producer_sdk", "consumer_sdk"}
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
LONGEST = 500


def modules() -> Iterator[Path]:
    for part in PARTS:
        yield from files_of(part)


def files_of(part: str) -> list[Path]:
    """The modules of a part, each by the path that git knows: not through the links."""
    links = tuple(f"{ROOT}/headworks/_{linked}/" for linked in LINKED)
    return sorted(p for p in (ROOT / part).rglob("*.py") if not str(p).startswith(links))


def part_of(name: str) -> str:
    """The part that a module belongs to, by its import name."""
    root, _, rest = name.partition(".")
    child = rest.partition(".")[0].removeprefix("_")
    return child if root == "headworks" and child in LINKED and rest.startswith("_") else root


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found = [(node.module, node.lineno)]
        else:
            continue
        for name, line in found:
            part = part_of(name)
            if part in PARTS:
                yield part, line


@pytest.mark.parametrize("part", sorted(PARTS))
def test_imports_point_one_way(part: str) -> None:
    wrong = []
    for path in files_of(part):
        for imported, line in imported_parts(path):
            if imported != part and PARTS[imported] <= PARTS[part]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {imported}")
    assert not wrong


def test_a_users_process_imports_no_server() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for part in sorted(IN_USERS_PROCESS)
        for path in files_of(part)
        for imported, line in imported_parts(path)
        if imported not in IN_USERS_PROCESS
    ]
    assert not wrong


def test_a_part_has_one_import_name() -> None:
    """`import broker` works in a checkout, and would load a second copy of the module."""
    wrong = []
    for folder in (*PARTS, "tests", "bench"):
        for path in files_of(folder):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = [
                alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names
            ]
            names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
            wrong += [
                f"{path.relative_to(ROOT)}: {x}" for x in names if x.partition(".")[0] in LINKED
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) == IMPORT_ROOTS
    links = {path.name: path for path in (ROOT / "headworks").iterdir() if path.is_symlink()}
    assert {name: str(path.readlink()) for name, path in links.items()} == {
        f"_{part}": f"../{part}" for part in LINKED
    }
