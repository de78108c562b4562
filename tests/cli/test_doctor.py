"""`headworks doctor`: a finding that is not fine names its fix, and a problem is exit code 1."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headworks._cli.doctor.diagnosis import Severity
from headworks._cli.doctor.installation import extra_diagnosis, installation, missing_packages
from headworks._cli.doctor.machine import (
    clock_diagnosis,
    disk_diagnosis,
    machine,
    memory_diagnosis,
    open_files_diagnosis,
    state_diagnosis,
)
from headworks._server.child_process import Service

pytestmark = pytest.mark.unit

GIB = 1 << 30
REQUIREMENTS = (
    "typer>=0.29",
    "fastapi>=0.165; extra == 'server'",
    "pyjwt[crypto]>=2.15; extra == 'server'",
    'boto3>=1.36; extra == "s3"',
)


def doctor(folder: Path, **env: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Its exit code, its findings by subject, and its words on stderr."""
    nowhere = {
        "HEADWORKS_BOOTSTRAP": "127.0.0.1:1",
        "HEADWORKS_REGISTRY": "http://127.0.0.1:1",
        "HEADWORKS_CONSOLE": "http://127.0.0.1:1",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headworks._cli", "doctor", "--format", "json"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **nowhere, **env},
        check=False,
    )
    return done.returncode, {one["subject"]: one for one in json.loads(done.stdout)}, done.stderr


@pytest.mark.e2e
def test_running_servers_answer_and_missing_ones_are_no_problem(
    broker: Service, registry: Service, tmp_path: Path
) -> None:
    code, found, _ = doctor(
        tmp_path, HEADWORKS_BOOTSTRAP=broker.address, HEADWORKS_REGISTRY=registry.url
    )
    assert code == 0
    assert "1 brokers" in found[f"broker {broker.address}"]["text"]
    assert "subjects" in found[f"registry {registry.address}"]["text"]
    console = found["console 127.0.0.1:1"]
    assert (console["severity"], "headworks up" in console["fix"]) == ("note", True)
    assert not list(tmp_path.iterdir())


@pytest.mark.e2e
def test_a_server_at_the_wrong_port_is_a_problem(registry: Service, tmp_path: Path) -> None:
    code, found, said = doctor(
        tmp_path, HEADWORKS_BOOTSTRAP=registry.address, HEADWORKS_CONSOLE=registry.url
    )
    assert code == 1
    assert "2 of" in said
    for name in ("broker", "console"):
        one = found[f"{name} {registry.address}"]
        assert one["severity"] == "problem"
        assert "another program answers there" in one["text"]


@pytest.mark.e2e
def test_each_registry_of_a_list_is_asked(registry: Service, tmp_path: Path) -> None:
    _, found, _ = doctor(tmp_path, HEADWORKS_REGISTRY=f"{registry.url},http://127.0.0.1:1")
    assert "subjects" in found[f"registry {registry.address}"]["text"]
    assert found["registry 127.0.0.1:1"]["severity"] == "note"


@pytest.mark.e2e
def test_an_address_that_is_none_is_a_problem(tmp_path: Path) -> None:
    code, found, _ = doctor(tmp_path, HEADWORKS_BOOTSTRAP="broker")
    assert (code, found["broker broker"]["severity"]) == (1, "problem")


@pytest.mark.e2e
def test_settings_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "headworks.toml").write_text("bootstrap = \n", encoding="utf-8")
    code, found, _ = doctor(tmp_path)
    assert code == 1
    assert "headworks.toml is not TOML" in found["settings"]["text"]


@pytest.mark.e2e
def test_what_is_installed_here_is_found() -> None:
    found = {one.subject: one for one in installation()}
    assert found["headworks"].severity is Severity.OK
    assert found["extra server"].severity is Severity.OK


def test_an_extra_that_is_missing_is_named_with_the_command_that_installs_it() -> None:
    installed = {"typer": "1", "fastapi": "1"}
    assert missing_packages("server", REQUIREMENTS, installed.get) == ["pyjwt"]
    part = extra_diagnosis("server", "servers", REQUIREMENTS, installed.get)
    assert (part.severity, "pyjwt" in part.text) == (Severity.PROBLEM, True)
    none = extra_diagnosis("s3", "a warehouse in S3", REQUIREMENTS, installed.get)
    assert (none.severity, none.fix) == (Severity.NOTE, "pip install 'headworks[s3]'")


def test_a_disk_that_is_full_or_no_folder_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert disk_diagnosis(tmp_path / "a" / "b").severity is not Severity.PROBLEM
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    assert disk_diagnosis(tmp_path / "file").severity is Severity.PROBLEM

    def free(size: int) -> None:
        usage = type("Usage", (), {"free": size})
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    free(GIB // 2)
    assert disk_diagnosis(tmp_path).severity is Severity.PROBLEM
    free(5 * GIB)
    assert disk_diagnosis(tmp_path).severity is Severity.NOTE
    free(50 * GIB)
    assert disk_diagnosis(tmp_path).severity is Severity.OK


def test_a_home_that_cannot_be_written_is_noted(tmp_path: Path) -> None:
    assert state_diagnosis(tmp_path / "state").severity is Severity.OK
    (tmp_path / "file").touch()
    found = state_diagnosis(tmp_path / "file" / "state")
    assert (found.severity, "XDG_STATE_HOME" in (found.fix or "")) == (Severity.NOTE, True)


def test_limits_of_memory_and_of_open_files() -> None:
    assert memory_diagnosis(GIB).severity is Severity.NOTE
    assert memory_diagnosis(8 * GIB).severity is Severity.OK
    assert open_files_diagnosis(256, 512).severity is Severity.PROBLEM
    assert open_files_diagnosis(1024, 4096).severity is Severity.NOTE
    assert open_files_diagnosis(1024, 1 << 20).severity is Severity.OK
    assert open_files_diagnosis(1024, resource.RLIM_INFINITY).severity is Severity.OK


def test_a_clock_that_is_wrong_or_differs_from_the_disk_is_a_problem() -> None:
    now = time.time() + 40 * 365 * 86_400  # whatever the year is here
    assert clock_diagnosis(1000.0, None, synchronized=True).severity is Severity.PROBLEM
    assert clock_diagnosis(now, now - 5, synchronized=True).severity is Severity.PROBLEM
    assert clock_diagnosis(now, now, synchronized=False).severity is Severity.NOTE
    assert clock_diagnosis(now, now + 0.5, synchronized=True).severity is Severity.OK
    assert clock_diagnosis(now, None, synchronized=None).severity is Severity.OK


def test_every_finding_about_this_machine_that_is_not_fine_has_a_fix(tmp_path: Path) -> None:
    for found in machine(tmp_path / "data"):
        assert (found.fix is None) == (found.severity is Severity.OK), found


@pytest.mark.e2e
def test_a_port_of_another_program_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, found, _ = doctor(tmp_path, HEADWORKS_BOOTSTRAP=address)
    one = found[f"broker {address}"]
    assert (code, one["severity"]) == (1, "problem")
    assert "nothing answers" in one["text"]
