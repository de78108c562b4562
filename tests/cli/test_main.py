"""The command line as a whole: it starts light, and errors become exit codes and advice."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import run_command

pytestmark = pytest.mark.e2e

HEAVY = [
    "confluent_kafka",
    "fastapi",
    "fastavro",
    "kio",
    "numba",
    "pandas",
    "pyarrow",
    "pyhive",
    "pyspark",
    "sqlalchemy",
    "uvicorn",
]


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nimport cli.main\ncli.main.command_line()\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stderr.strip() == "[]"


def test_a_console_without_an_audit_store_does_not_import_sqlalchemy() -> None:
    asked = "import sys, headworks._console.app.server; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


@pytest.mark.parametrize(
    "command",
    ["up", "demo", "schema", "gen", "broker", "registry", "load", "sql", "audit", "config"],
)
def test_every_command_has_help(tmp_path: Path, command: str) -> None:
    done = run_command(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage: headworks" in done.stdout


def test_config_show_says_where_each_value_came_from(tmp_path: Path) -> None:
    (tmp_path / "headworks.toml").write_text('registry = "http://r:1"\n', encoding="utf-8")
    done = run_command(
        "config", "show", "--format", "json", cwd=tmp_path, env={"HEADWORKS_BOOTSTRAP": "b:1"}
    )
    shown = json.loads(done.stdout)
    assert shown["bootstrap"] == {"value": "b:1", "source": "$HEADWORKS_BOOTSTRAP"}
    assert shown["registry"] == {"value": "http://r:1", "source": "headworks.toml"}
    assert shown["schemas"]["source"] == "default"


def test_a_bad_settings_file_is_a_usage_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "headworks.toml").write_text('bootstrp = "b:1"\n', encoding="utf-8")
    done = run_command("config", "show", cwd=tmp_path)
    assert done.returncode == 2
    assert "'bootstrp', which is not a setting" in done.stderr
    assert "fix: use one of bootstrap" in done.stderr
    assert done.stdout == ""


def test_an_argument_that_is_not_utf_8_is_a_usage_error(tmp_path: Path) -> None:
    done = run_command("schema", "show", os.fsdecode(b"caf\xe9"), cwd=tmp_path)
    assert done.returncode == 2
    assert "the argument 'caf\\udce9' is not UTF-8" in done.stderr
    assert run_command("schema", "list", "--registry", "http://é:x", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("path", ["a" * 300, "a_file/below", "circle"])
@pytest.mark.parametrize(
    "command",
    [
        ("schema", "lint"),
        ("log", "dump"),
        ("gen",),
        ("load", "status", "--warehouse"),
    ],
)
def test_a_path_that_cannot_be_is_a_usage_error(
    tmp_path: Path, path: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "a_file").touch()
    (tmp_path / "circle").symlink_to("circle")
    done = run_command(*command, path, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert path in done.stderr
    assert "fix: " in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "status"),
        ("schema", "list"),
        ("consume", "flights", "--max", "1"),
        ("topic", "create", "flights"),
    ],
)
def test_a_service_that_does_not_answer_is_exit_3(tmp_path: Path, command: tuple[str, ...]) -> None:
    """In a process: the client of a broker that is away would live on in this one."""
    nowhere = {"HEADWORKS_BOOTSTRAP": "127.0.0.1:1", "HEADWORKS_REGISTRY": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headworks._cli", *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **nowhere},
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert "headworks up" in done.stderr


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("crc32c", "broker start", "server"),
        ("uvicorn", "registry start", "server"),
        ("uvicorn", "up", "server"),
        ("prometheus_client", "load run", "hadoop"),
    ],
)
def test_what_is_not_installed_is_named_with_the_extra_that_brings_it(
    tmp_path: Path, missing: str, command: str, extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"sys.argv = ['headworks', *{command.split()!r}]\n"
        "from headworks._cli.main import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    said = f"error: `headworks {command.split()[0]}` needs {missing}, which is not installed\n"
    assert done.stderr.startswith(said)
    assert f"pip install 'headworks[{extra}]'" in done.stderr


@pytest.mark.parametrize("module", ["headworks", "headworks._cli"])
def test_the_version_is_that_of_the_package(tmp_path: Path, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"headworks {importlib.metadata.version('headworks')}\n"


def test_h_is_help_at_every_level(tmp_path: Path) -> None:
    for command in ([], ["schema"], ["schema", "check"]):
        assert run_command(*command, "-h", cwd=tmp_path).stdout == (
            run_command(*command, "--help", cwd=tmp_path).stdout
        )
