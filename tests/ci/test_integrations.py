"""The ways into other people's CI, run as they would be there: in clones of a bare repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.contract

BROKEN = event({"name": "id", "type": "string"})


@pytest.fixture
def origin(work: Work, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository with `main` and the branch `change`, which breaks a reader."""
    bare = tmp_path_factory.mktemp("origin") / "events.git"
    work.write("trips.avsc", BROKEN)
    work.commit()
    work.git("clone", "-q", "--bare", ".", str(bare))
    subprocess.run(["git", "-C", str(bare), "symbolic-ref", "HEAD", "refs/heads/main"], check=True)
    return bare


def clone(origin: Path, folder: Path, branch: str, *options: str) -> Work:
    command = ["git", "clone", "-q", "--branch", branch, *options, f"file://{origin}", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    one = Work(folder)
    one.git("config", "user.email", "someone@example.org")
    one.git("config", "user.name", "Someone")
    return one


def shell(script: str, folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", *options, "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
    )


# pre-commit


def hook(root: Path, name: str) -> dict[str, Any]:
    hooks = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return next(one for one in hooks if one["id"] == name)


def run_hook(root: Path, name: str, work: Work, *files: str) -> subprocess.CompletedProcess[str]:
    """As pre-commit does: the entry, its arguments, and the files that match."""
    one = hook(root, name)
    matching = [file for file in files if re.search(one["files"], file)]
    command = [*one["entry"].split(), *one.get("args", []), *matching]
    command[0] = str(Path(sys.executable).parent / command[0])
    return subprocess.run(command, cwd=work.root, capture_output=True, text=True, check=False)


def test_the_pre_commit_hook_checks_the_files_of_the_commit(
    root: Path, origin: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = clone(origin, tmp_path_factory.mktemp("clone") / "work", "main")
    work.write("stops.avsc", event(ID, topic="stops", name="Stop"))
    work.write("trips.avsc", BROKEN)
    name = "headworks-schema-check"
    assert run_hook(root, name, work, "schemas/stops.avsc", "README.md").returncode == 0
    both = run_hook(root, name, work, "schemas/stops.avsc", "schemas/trips.avsc")
    assert both.returncode == 1
    assert "error[HW002]" in both.stdout
    assert "in 1 of 2 schema files" in both.stdout


def test_the_hook_checks_what_uses_a_shared_type(
    root: Path, origin: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = clone(origin, tmp_path_factory.mktemp("clone") / "work", "main")
    leg = {"type": "record", "name": "Leg", "namespace": "acme", "fields": [ID]}
    work.write("types/leg.avsc", leg)
    work.write("rides.avsc", event({"name": "leg", "type": "acme.Leg"}, topic="rides", name="Ride"))
    work.commit()
    work.git("push", "-q", "origin", "main")
    work.write("types/leg.avsc", {**leg, "fields": [{"name": "id", "type": "string"}]})
    done = run_hook(root, "headworks-schema-check", work, "schemas/types/leg.avsc")
    assert done.returncode == 1
    assert "rides-value" in done.stdout
    assert "--> schemas/types/leg.avsc:" in done.stdout


def test_the_lint_hook(root: Path, work: Work) -> None:
    work.write("bad.avsc", {"type": "record", "name": "bad", "fields": []})
    done = run_hook(root, "headworks-schema-lint", work, "schemas/bad.avsc")
    assert done.returncode == 1
    assert "HW402" in done.stdout
    assert "trips" not in done.stdout


def test_hooks_name_commands_that_exist(root: Path) -> None:
    hooks = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {one["id"] for one in hooks} == {"headworks-schema-check", "headworks-schema-lint"}
    assert all(one["language"] == "python" for one in hooks)


# GitHub


def run_action(root: Path, folder: Path, **given: str) -> tuple[int, str, str, str]:
    """The action's check step, as the runner would run it: exit code, log, summary, outputs."""
    action = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    step = next(one for one in action["runs"]["steps"] if one.get("id") == "check")
    assert "${{" not in step["run"], "input belongs in env: a script must not be made of it"
    inputs = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
    inputs |= {name: value for name, value in given.items() if name in inputs}
    env = {name: evaluated(text, inputs, given) for name, text in step["env"].items()}
    summary, output = folder.parent / "summary.md", folder.parent / "output"
    summary.write_text("")
    output.write_text("")
    env |= {
        "GITHUB_BASE_REF": given.get("base_ref", ""),
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_ACTIONS": "true",
    }
    done = shell(step["run"], folder, "-eo", "pipefail", **env)
    return done.returncode, done.stdout + done.stderr, summary.read_text(), output.read_text()


def evaluated(text: str, inputs: dict[str, str], given: dict[str, str]) -> str:
    """The few expressions that the action uses."""
    expression = text.removeprefix("${{").removesuffix("}}").strip()
    if expression.startswith("inputs.") and " " not in expression:
        return inputs[expression.removeprefix("inputs.")]
    if expression == "github.event.before":
        return given.get("before", "")
    if expression == "github.event.repository.default_branch":
        return "main"
    assert "contains(github.event.pull_request.labels.*.name" in expression
    label = inputs["override-label"]
    return str(label != "" and label in given.get("labels", "").split(",")).lower()


def test_the_github_action_annotates_and_summarises(
    root: Path, origin: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = clone(origin, tmp_path_factory.mktemp("runner") / "work", "change")
    code, log, summary, output = run_action(root, work.root, base_ref="main", sarif="found.sarif")
    assert code == 1
    assert "::error file=schemas/trips.avsc,line=" in log
    assert "**HW002**" in summary
    assert output == "verdict=refused\n"
    found = json.loads((work.root / "found.sarif").read_text())
    assert found["runs"][0]["results"][0]["ruleId"] == "HW002"


def test_the_github_action_passes_compatible_and_labelled_changes(
    root: Path, origin: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = clone(origin, tmp_path_factory.mktemp("runner") / "work", "change")
    more = {"base_ref": "main", "override-label": "schema-break-agreed"}
    code, _, summary, output = run_action(root, work.root, **more, labels="docs")
    assert (code, output) == (1, "verdict=refused\n")
    code, log, summary, output = run_action(root, work.root, **more, labels="schema-break-agreed")
    assert (code, output) == (0, "verdict=pass\n")
    assert "::notice file=schemas/trips.avsc" in log
    assert "Waived, this once: the pull request has the label schema-break-agreed" in summary
    before = work.git("rev-parse", "HEAD~1")
    assert run_action(root, work.root, before=before)[0] == 1, "a push has no base branch"
    assert run_action(root, work.root, against="git:nowhere")[3] == "verdict=error\n"
    nobody = "http://127.0.0.1:9"  # who uses what is asked there, and nobody answers
    assert run_action(root, work.root, before=before, usage=nobody)[3] == "verdict=error\n"
    assert run_action(root, work.root, before=before, usage="none")[0] == 1
    for without in ("0" * 40, ""):  # the first push of a branch; an event that is no push
        code, log, _, _ = run_action(root, work.root, before=without)
        assert (code, "::error file=schemas/trips.avsc" in log) == (1, True)


def test_the_github_action_says_what_a_shallow_checkout_lacks(
    root: Path, origin: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = clone(origin, tmp_path_factory.mktemp("runner") / "work", "change", "--depth", "1")
    code, log, _, output = run_action(root, work.root, base_ref="main")
    assert (code, output) == (2, "verdict=error\n")
    assert "fetch-depth: 0" in log


def test_the_action_installs_itself_by_default(root: Path) -> None:
    action = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    install = action["runs"]["steps"][0]
    assert install["if"] == "inputs.install != ''"
    assert "pip install" in install["run"]
    assert action["inputs"]["install"]["default"] == "${{ github.action_path }}"


# GitLab


def test_the_gitlab_example(
    root: Path, origin: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = (root / "docs/examples/gitlab-ci.yml").read_text(encoding="utf-8")
    job = yaml.safe_load(text)["schema-check"]
    assert job["variables"]["GIT_DEPTH"] == "0"
    work = clone(origin, tmp_path_factory.mktemp("runner") / "work", "change")
    work.git("update-ref", "-d", "refs/remotes/origin/main")
    script = "\n".join(job["script"])
    done = shell(script, work.root, "-eo", "pipefail", CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main")
    assert done.returncode == 1, done.stderr
    reports = job["artifacts"]["reports"]
    (issue,) = json.loads((work.root / reports["codequality"]).read_text())
    assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert issue["severity"] in {"info", "minor", "major", "critical", "blocker"}
    assert issue["location"]["path"] == "schemas/trips.avsc"
    suite = ElementTree.parse(work.root / reports["junit"]).getroot()
    assert suite.find("testcase/failure") is not None
