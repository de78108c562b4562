"""Generated code for each feature of Avro, kept readable under tests/golden."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headworks.errors import SchemaError, UsageError
from producer_sdk._generator import generate, stale, write
from producer_sdk._generator.package import events
from tests.command_line import run_command

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parent.parent / "golden"
AGAIN = "headworks gen tests/golden/schemas --out tests/golden/generated"


def test_golden_files_are_what_the_generator_writes() -> None:
    assert stale(generate([GOLDEN / "schemas"]), GOLDEN / "generated") == [], f"run `{AGAIN}`"


@pytest.mark.parametrize(
    ("module", "where"),
    [
        ("headworks_audit.py", "headworks/_audit_counting/event.py"),
        ("headworks_operations.py", "producer_sdk/operations/_event.py"),
    ],
)
def test_our_own_events_are_what_the_generator_writes(root: Path, module: str, where: str) -> None:
    assert generate([root / "schemas"])[module] == (root / where).read_text(encoding="utf-8")


@pytest.mark.contract
def test_generated_code_is_strictly_typed() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir"]
    done = subprocess.run(
        [*command, "/dev/null", *map(str, (GOLDEN / "generated").glob("*.py"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.contract
def test_generated_code_is_clean_in_a_project_that_is_strict(tmp_path: Path) -> None:
    write(generate([GOLDEN / "schemas"]), tmp_path / "events")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.contract
def test_generated_code_is_formatted(tmp_path: Path) -> None:
    for path in (GOLDEN / "generated").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        # The mark keeps formatters of other settings away; here it would hide what is wrong.
        unmarked = "".join(line for line in text.splitlines(True) if line != "# fmt: off\n")
        assert path.name == "__init__.py" or unmarked != text
        (tmp_path / path.name).write_text(unmarked, encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "100"]
    done = subprocess.run(
        [*command, "--diff", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_order_of_files_does_not_matter() -> None:
    files = sorted((GOLDEN / "schemas").glob("*.avsc"))
    assert generate(files) == generate(files[::-1]) == generate([GOLDEN / "schemas"])


def test_a_file_that_uses_another_keeps_a_whole_schema() -> None:
    text = generate([GOLDEN / "schemas"])["golden_shared.py"]
    assert '"name":"Address","namespace":"golden.shared.types"' in text


def test_writing_replaces_only_what_was_generated(tmp_path: Path) -> None:
    files = generate([GOLDEN / "schemas" / "docs.avsc"])
    assert [path.name for path in write(files, tmp_path)] == ["__init__.py", "golden_docs.py"]
    assert write(files, tmp_path) == []
    (tmp_path / "own.py").write_text("mine = 1\n")
    others = generate([GOLDEN / "schemas" / "recursion.avsc"])
    assert [path.name for path in write(others, tmp_path)] == [
        "golden_docs.py",
        "golden_recursion.py",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "__init__.py",
        "golden_recursion.py",
        "own.py",
    ]
    (tmp_path / "golden_docs.py").write_text("mine = 1\n")
    with pytest.raises(UsageError, match="not generated"):
        write(files, tmp_path)


def test_one_type_defined_in_two_ways_names_both_files(tmp_path: Path) -> None:
    for name, kind in [("one", "int"), ("two", "long")]:
        field = f'{{"name": "x", "type": "{kind}"}}'
        text = f'{{"type": "record", "name": "a.Same", "fields": [{field}]}}'
        (tmp_path / f"{name}.avsc").write_text(text)
    with pytest.raises(UsageError, match=r"a\.Same is defined differently in .*one.* and .*two"):
        generate([tmp_path])


def test_two_unions_of_one_topic_name_both_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        record = f'{{"type": "record", "name": "{name}", "headworks": {{"topic": "t"}}'
        (tmp_path / f"{name}.avsc").write_text(f'[{record}, "fields": []}}]')
    with pytest.raises(UsageError, match=r"one.*two\.avsc both hold the events of topic 't'"):
        generate([tmp_path])


def test_the_lock_has_a_union_once(tmp_path: Path) -> None:
    union = (GOLDEN / "schemas" / "union_at_the_top.avsc").read_text()
    (tmp_path / "all.avsc").write_text(union)
    (tmp_path / "alone.avsc").write_text(json.dumps(json.loads(union)[1]))
    assert [subject for subject, _, _ in events([tmp_path])] == ["accounts-value"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('["null", {"type": "record", "name": "A", "fields": []}]', "has records only"),
        (
            '[{"type": "record", "name": "A", "fields": []},'
            ' {"type": "record", "name": "B", "fields": []}]',
            "these name a, b",
        ),
        ('{"type": "record", "name": "A", "fields": [{"name": "b", "type": "B"}]}', "'B' is not"),
        ('{"type": "array", "items": "int"}', "must define a record"),
        ('{"type": "record", "name": "A"', "not JSON"),
        (
            '{"type": "record", "name": "A", "headworks": {"key": ["b"]}, "fields": '
            '[{"name": "b", "type": {"type": "array", "items": "int"}}]}',
            "not a plain value",
        ),
    ],
)
def test_a_bad_schema_is_an_error_that_names_the_file(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "bad.avsc").write_text(text)
    with pytest.raises(SchemaError, match=rf"bad\.avsc: .*{reason}"):
        generate([tmp_path])


@pytest.mark.e2e
def test_gen_writes_into_the_folder_where_it_runs(tmp_path: Path) -> None:
    for name, code in (("events", 0), ("my-events", 2)):
        (tmp_path / name).mkdir()
        done = run_command("gen", str(GOLDEN / "schemas"), "--out", ".", cwd=tmp_path / name)
        assert done.returncode == code, done.stderr
    assert "'my-events' cannot be the name of a Python package" in done.stderr
    assert (tmp_path / "events" / "golden_docs.py").is_file()


@pytest.mark.e2e
def test_gen_check_names_the_stale_files(tmp_path: Path) -> None:
    def gen(*more: str) -> subprocess.CompletedProcess[str]:
        places = (str(GOLDEN / "schemas"), "--out", str(tmp_path / "events"))
        return run_command("gen", *places, *more)

    assert gen("--check").returncode == 1
    assert gen().returncode == 0
    assert gen("--check").returncode == 0
    (tmp_path / "events" / "golden_docs.py").write_text("# edited by hand\n")
    done = gen("--check")
    assert done.returncode == 1
    assert "golden_docs.py" in done.stderr
