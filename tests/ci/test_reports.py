"""The forms of a verdict, and the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from ci.gate import check
from ci.machine import FORMATS, render
from ci.positions import SourceMap
from ci.rules import CATALOGUE_RULES, LINT_RULES
from cli.schema import schema_app
from headworks.compatibility import RULES
from headworks.service import Service
from tests.ci.conftest import ID, Work, event

SCHEMAS = Path("schemas")


@pytest.fixture
def verdict(work: Work) -> Any:
    work.write("trips.avsc", event(ID, {"name": "fare", "type": ["null", "double"]}))
    return check(SCHEMAS, ["git:main"])


def test_text_shows_lines_reader_data_and_fix(verdict: Any) -> None:
    text = render(verdict, "text")
    line = verdict.findings[0].position.line
    assert "error[HW001]: Consumers on the proposed schema cannot read data written with" in text
    assert f"--> schemas/trips.avsc:{line}:" in text
    assert f'{line + 2} |       "name": "fare",' in text
    assert '= fix: add "default": null to "fare"' in text
    assert text.endswith("refused: 1 finding in 1 of 1 schema file\n")


def test_json_carries_everything(verdict: Any) -> None:
    value = json.loads(render(verdict, "json"))
    assert value["verdict"] == "refused"
    assert value["findings"] == value["subjects"][0]["findings"]
    (found,) = value["findings"]
    assert found["rule"] == "HW001"
    assert found["reader_pointer"] == "/fields/1"
    assert (found["file"], found["subject"]) == ("schemas/trips.avsc", "trips-value")
    assert found["line"] > 1


def test_github_gitlab_junit_sarif_markdown(verdict: Any) -> None:
    line = verdict.findings[0].position.line
    assert f"::error file=schemas/trips.avsc,line={line}," in render(verdict, "github")
    (issue,) = json.loads(render(verdict, "gitlab"))
    assert issue["location"]["lines"]["begin"] == line
    assert re.fullmatch("[0-9a-f]{64}", issue["fingerprint"])
    suite = ElementTree.fromstring(render(verdict, "junit"))
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    run = json.loads(render(verdict, "sarif"))["runs"][0]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "HW001"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    assert "**HW001**" in render(verdict, "markdown")


def test_a_pass_has_every_form(work: Work) -> None:
    passed = check(SCHEMAS, ["git:main"])
    assert all(render(passed, form) for form in FORMATS)
    assert json.loads(render(passed, "gitlab")) == []


def run(*arguments: str) -> Any:
    return CliRunner().invoke(schema_app, list(arguments))


def test_check_exits_by_the_verdict(work: Work) -> None:
    assert run("check", "--against", "git:main").exit_code == 0
    work.write("trips.avsc", event({"name": "id", "type": "string"}))
    refused = run("check", "--against", "git:main", "--format", "json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["verdict"] == "refused"
    assert "nothing to check against" in str(run("check").exception)
    (work.root / "headworks.toml").write_text('[gate]\nagainst = ["git:main"]\n')
    assert run("check").exit_code == 1
    out = work.root / "report.sarif"
    again = run("check", "--format", "sarif", "--output", str(out))
    assert (again.exit_code, json.loads(out.read_text())["version"]) == (1, "2.1.0")


def test_register_list_show_diff(work: Work, registry: Service) -> None:
    work.write("trips.avsc", event(ID, topic="cli.trips"))
    url = ("--registry", registry.url)
    assert "give --all" in str(run("register", *url).exception)
    assert run("register", "--all", *url).exit_code == 0
    listed = json.loads(run("list", "--format", "json", *url).stdout)
    mine = next(row for row in listed if row["subject"] == "cli.trips-value")
    assert mine["compatibility"] == "BACKWARD_TRANSITIVE"
    shown = json.loads(run("show", "cli.trips-value", "--format", "json", *url).stdout)
    assert shown["schema"]["name"] == "Trip"
    work.write("trips.avsc", event(ID, {"name": "x", "type": "int"}, topic="cli.trips"))
    changed = run("diff", "cli.trips-value:1", "schemas/trips.avsc", *url)
    assert changed.stdout == "+ x: int\n"
    assert run("register", "schemas/trips.avsc", *url).exit_code == 1
    assert "no subject" in str(run("show", "cli.nothing-value", *url).exception)


def test_positions_survive_comments_escapes_and_nesting() -> None:
    text = '{\n  /* c */ "a~/b": [1, {"x": "}"}],\n  "y": true\n}\n'
    source = SourceMap(text)
    assert source.position("/a~0~1b/1/x").line == 2
    assert (source.position("/y").line, source.position("/y").column) == (3, 3)
    assert source.position("/a~0~1b/0").column == text.splitlines()[1].index("1") + 1
    assert source.position("/y/not/there") == source.position("/y")
    assert source.position("").end_line == 4
    deep = "[" * 50_000 + "]" * 50_000
    assert SourceMap(deep).position("/0" * 3).column == 4


def test_every_rule_is_documented(root: Path) -> None:
    text = (root / "docs/compatibility.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^### (HW\d+)", text, re.MULTILINE))
    assert headings == {*RULES, *CATALOGUE_RULES, *LINT_RULES}
