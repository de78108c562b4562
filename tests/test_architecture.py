"""The house rules that a machine can check: who may import whom, and how a module begins."""

from __future__ import annotations

import ast
import gc
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

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
# A user's tests may start our servers; nothing else that users import needs `headworks._server`.
STARTS_SERVERS = {"producer_sdk/pytest_plugin.py"}
# The rooms of a part, by the same rule as the parts.
ROOMS = {
    "headworks": [
        {"_audit_counting"},
        {"groups", "registry_client"},
        {"_kafka", "codec", "compatibility"},
        {"_decoding"},
        {"_choice", "_server", "_settings", "_wire", "_zookeeper", "schema"},
        {"_toml_text"},
        {"_atomic_file", "_bundled_schemas", "_hive_types", "_native", "_subject", "errors"},
        {"_host_port", "_in_thread", "_stop_event", "_system_calls", "_version_lines"},
    ],
    "hadoop_loader": [
        {"_warehouse"},
        {"_spark"},
        {"_config", "_operations"},
        {"_iceberg"},
        {"_commit"},
        {"_tasks"},
        {"_decode"},
        {"_fetch", "_tables"},
        {"_java_source", "_storage"},
    ],
    "headworks._broker": [
        {"server"},
        {"handlers"},
        {"transactions"},
        {"topics"},
        {"coordination"},
        {"groups", "log", "open_file_limit", "repeated_failure"},
    ],
    "headworks._registry": [
        {"server"},
        {"service"},
        {"operations"},
        {"metrics", "security", "store"},
        {"worker_pools"},
        {"fast_reads", "model", "shared_revision"},
    ],
    "headworks._console": [{"app"}, {"views"}, {"sources"}, {"masking"}],
}
# Packages of `headworks` that belong together even where one part alone needs a module of them:
# Kafka's wire protocol (docs/decisions/connection-states.md), and what `headworks group` does.
WHOLE_PACKAGES = ("headworks._kafka", "headworks.groups")
# The one place that makes consumers of librdkafka: it turns the check of CRCs on.
MAKES_CONSUMERS = "headworks/_kafka/clients.py"
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
# The classes that hold state: a comment at each attribute says what it is.
STATE = {
    "broker/groups/consumer_group.py": "ConsumerGroup",
    "broker/groups/coordinator.py": "GroupCoordinator",
    "broker/groups/group.py": "ClassicGroup",
    "broker/log/partition.py": "PartitionLog",
    "broker/log/segment.py": "LogSegment",
    "broker/server/connection.py": "Connection",
    "broker/topics/partition.py": "HostedPartition",
    "hadoop_loader/_commit/commit_log.py": "CommitLog",
    "hadoop_loader/_commit/roll_forward.py": "RollForward",
    "hadoop_loader/_commit/transaction.py": "Transaction",
    "headworks/_kafka/protocol/connection_state.py": "ConnectionState",
    "headworks/_zookeeper/lease.py": "Lease",
}
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60


def modules() -> Iterator[Path]:
    for part in PARTS:
        yield from files_of(part)


def files_of(part: str) -> list[Path]:
    """The modules of a part, each by the path that git knows: not through the links."""
    links = tuple(f"{ROOT}/headworks/_{linked}/" for linked in LINKED)
    found = (p for p in (ROOT / part).rglob("*.py") if not p.is_symlink())
    return sorted(p for p in found if not str(p).startswith(links))


@pytest.fixture(scope="module", autouse=True)
def no_search_for_garbage() -> Iterator[None]:
    """Python would visit the kept trees while it parses, which costs more than the parsing."""
    gc.disable()
    yield
    gc.enable()


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def part_of(name: str) -> str:
    """The part that a module belongs to, by its import name."""
    root, _, rest = name.partition(".")
    child = rest.partition(".")[0].removeprefix("_")
    return child if root == "headworks" and child in LINKED and rest.startswith("_") else root


def import_name(path: Path) -> str:
    """The dotted name of a module: `broker/log/segment.py` is `headworks._broker.log.segment`."""
    names = list(path.relative_to(ROOT).with_suffix("").parts)
    if names[-1] == "__init__":
        names.pop()
    return ".".join(["headworks", "_" + names[0], *names[1:]] if names[0] in LINKED else names)


@cache
def module_names() -> frozenset[str]:
    return frozenset(map(import_name, modules()))


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """The modules of ours that a module imports, anywhere in it, each with the line.

    A string counts as well if it is the name of a module: `importlib.import_module` and the table
    of commands take it. What `python -m` runs is another process, and does not count.
    """
    found = []
    tree = syntax_tree(path)
    other_processes = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            for flag, value in pairwise(node.elts):
                if isinstance(flag, ast.Constant) and flag.value == "-m":
                    other_processes.add(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in module_names() else node.module for name in whole]
        elif node in other_processes:
            continue
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            names = [node.value.partition(":")[0]]
        else:
            continue
        found += [(name, node.lineno) for name in names if name in module_names()]
    return tuple(found)


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    for name, line in imports(path):
        yield part_of(name), line


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


def test_what_users_import_does_not_need_the_room_of_the_servers() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for part in sorted(IN_USERS_PROCESS)
        for path in files_of(part)
        for name, line in imports(path)
        if name.startswith("headworks._server")
        and not path.is_relative_to(ROOT / "headworks" / "_server")
        and str(path.relative_to(ROOT)) not in STARTS_SERVERS
    ]
    assert not wrong


@pytest.mark.parametrize("part", sorted(ROOMS))
def test_imports_between_rooms_point_one_way(part: str) -> None:
    floors = {room: floor for floor, rooms in enumerate(ROOMS[part]) for room in rooms}
    wrong = []
    for path in modules():
        name = import_name(path)
        room = room_of(name, part)
        if room is None or (part == "headworks" and part_of(name) != part):
            continue
        assert room in floors, f"{name} is in no room of {part}"
        for imported, line in imports(path):
            other = room_of(imported, part)
            if other is None or other == room or part_of(imported) != part_of(name):
                continue
            if floors[other] <= floors[room]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {imported}")
    assert not wrong


def room_of(name: str, part: str) -> str | None:
    inner = name.removeprefix(f"{part}.")
    return None if inner == name else inner.partition(".")[0]


def test_headworks_holds_nothing_that_one_part_alone_needs() -> None:
    importers: dict[str, set[str]] = {}
    for path in modules():
        for name, _ in imports(path):
            importers.setdefault(name, set()).add(import_name(path))
    lonely = {
        name: parts
        for name, importing in importers.items()
        if part_of(name) == "headworks" and not name.startswith(WHOLE_PACKAGES)
        if len(parts := {part_of(other) for other in importing}) == 1 and parts != {"headworks"}
    }
    assert not lonely


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {import_name(path): {name for name, _ in imports(path)} for path in modules()}
    try:
        TopologicalSorter({name: there - {name} for name, there in graph.items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.seconds
def test_a_part_has_one_import_name() -> None:
    """`import broker` works in a checkout, and would load a second copy of the module."""
    wrong = []
    for folder in (*PARTS, "tests", "bench"):
        for path in files_of(folder):
            names = [
                name
                for node in ast.walk(syntax_tree(path))
                if isinstance(node, (ast.Import, ast.ImportFrom))
                for name in (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                )
            ]
            wrong += [
                f"{path.relative_to(ROOT)}: {x}" for x in names if x.partition(".")[0] in LINKED
            ]
    assert not wrong


def test_every_module_says_what_it_is_for() -> None:
    mute = [
        str(path.relative_to(ROOT))
        for path in modules()
        if not ast.get_docstring(syntax_tree(path))
    ]
    assert not mute


def test_no_module_has_a_vague_name() -> None:
    assert not [str(path) for path in modules() if path.stem.strip("_") in VAGUE]


def test_no_module_is_longer_than_one_idea() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in modules()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_MODULE
    }
    assert not long


def test_every_function_fits_a_screen() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in modules()
        if not path.read_text(encoding="utf-8").startswith("# Generated by")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    }
    assert not long


@pytest.mark.parametrize(("path", "name"), STATE.items())
def test_every_attribute_of_a_class_that_holds_state_has_a_comment(path: str, name: str) -> None:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    found = set()
    for node in ast.walk(syntax_tree(ROOT / path)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            start = next((n for n in node.body if getattr(n, "name", "") == "__init__"), node)
            found = {n for n in ast.walk(start) if isinstance(n, ast.Assign | ast.AnnAssign)}
    mute = []
    for node in found:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        is_field = isinstance(node, ast.AnnAssign) and node.col_offset == 4
        if is_field or (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"):
            around = (lines[node.lineno - 2].strip(), lines[(node.end_lineno or 0) - 1])
            if not around[0].startswith("#") and "  # " not in around[1]:
                mute.append(ast.unparse(target))
    assert found
    assert not mute


def test_a_public_class_name_is_defined_once() -> None:
    """The exceptions are public, or the word of two fields: Avro's record and Kafka's."""
    found: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name for name, places in found.items() if len(places) > 1} == {"Policy", "Record"}


def test_the_parts_are_where_the_design_puts_them() -> None:
    expected = set(PARTS) | {"schemas", "tests", "docs"}
    assert not [name for name in sorted(expected) if not (ROOT / name).is_dir()]


def test_every_part_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) == IMPORT_ROOTS
    links = {path.name: path for path in (ROOT / "headworks").iterdir() if path.is_symlink()}
    assert {name: str(path.readlink()) for name, path in links.items()} == {
        **{f"_{part}": f"../{part}" for part in LINKED},
        "__main__.py": "../cli/__main__.py",
    }


def test_every_consumer_is_made_where_crcs_are_checked() -> None:
    kinds = {"Consumer", "DeserializingConsumer"}
    found = []
    for path in modules():
        name = str(path.relative_to(ROOT))
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "confluent_kafka":
                names = {alias.name for alias in node.names}
                found += [f"{name}:{node.lineno}"] if kinds & names else []
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                f"confluent_kafka.{kind}" for kind in kinds
            }:
                found.append(f"{name}:{node.lineno}")
    assert [place for place in found if not place.startswith(MAKES_CONSUMERS)] == []
