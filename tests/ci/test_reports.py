"""The forms of a verdict, and the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from typer.testing import CliRunner

from headworks._audit_counting import AUDIT_TOPIC
from headworks._ci.formats import FORMATS, render
from headworks._ci.gate import check
from headworks._ci.report import Style, text_report
from headworks._ci.rules import CATALOG_RULES, LINT_RULES
from headworks._cli.schema import schema_app
from headworks._server.child_process import Service
from headworks.compatibility import RULES
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")


@pytest.fixture
def verdict(work: Work) -> Any:
    work.write("trips.avsc", event(ID, {"name": "fare", "type": ["null", "double"]}))
    return check(SCHEMAS, ["git:main"])


def test_text_shows_lines_reader_data_and_fix(verdict: Any) -> None:
    text = render(verdict, "text")
    line = verdict.findings[0].region.line
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
    line = verdict.findings[0].region.line
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


SARIF_SCHEMA = Path(__file__).with_name("sarif-schema-2.1.0.json")


@pytest.fixture
def awkward(work: Work) -> Any:
    """Findings of every kind at once: waived, of a broken file, of one that is gone, odd names."""
    work.git("checkout", "-q", "main")
    work.write("gone.avsc", event(ID, topic="gone", name="Gone"))
    odd = {"name": "größe", "type": "int", "doc": 'a|b `c` ```d``` ]]> %0A :: "e" <f>&'}
    work.write("with space.avsc", event(ID, odd, topic="odd", name="Odd"))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    (work.schemas / "gone.avsc").unlink()
    work.write("bad.avsc", '{"type": "record",,\n}')
    work.write("with space.avsc", event(ID, {**odd, "type": "string"}, topic="odd", name="Odd"))
    work.write("trips.avsc", event({"name": "id", "type": "string"}))
    work.write(
        "governance.toml",
        '[default]\npolicy = "avro"\n'
        '[subjects."trips-value"]\nwaivers = [{ rule = "HW002", reason = "agreed", '
        "until = 2999-01-01 }]\n",
    )
    found = check(SCHEMAS, ["git:main"])
    assert {one.finding.rule for one in found.findings} == {"HW301", "HW302", "HW002"}
    return found


def test_sarif_is_valid_by_its_schema(awkward: Any, work: Work) -> None:
    schema = json.loads(SARIF_SCHEMA.read_text(encoding="utf-8"))
    checker = jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())
    log = json.loads(render(awkward, "sarif"))
    assert [error.message for error in checker.iter_errors(log)] == []
    results = log["runs"][0]["results"]
    assert len({one["partialFingerprints"]["headworks/v1"] for one in results}) == len(results)
    waived = [one for one in results if "suppressions" in one]
    assert [one["suppressions"][0]["justification"] for one in waived] == ["agreed"]
    uris = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results}
    assert "schemas/with%20space.avsc" in uris
    passed = json.loads(render(check(SCHEMAS / "trips.avsc", ["git:HEAD"]), "sarif"))
    assert checker.is_valid(passed)
    passed["runs"][0]["results"] = [{"ruleId": "HW001"}]
    assert not checker.is_valid(passed), "the schema itself would let anything pass"


def test_junit_counts_what_it_holds(awkward: Any) -> None:
    suite = ElementTree.fromstring(render(awkward, "junit"))
    cases = suite.findall("testcase")
    assert suite.tag == "testsuite"
    assert int(suite.get("tests", "")) == len(cases)
    failures = [case for case in cases if case.find("failure") is not None]
    assert int(suite.get("failures", "")) == len(failures) == 3
    assert all(case.get("name") and case.get("classname") for case in cases)
    assert all(case.find("failure").get("message") for case in failures)  # type: ignore[union-attr]


def test_gitlab_issues_have_what_gitlab_asks_for(awkward: Any) -> None:
    issues = json.loads(render(awkward, "gitlab"))
    assert len({one["fingerprint"] for one in issues}) == len(issues) == 4
    for one in issues:
        assert set(one) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert one["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert 1 <= one["location"]["lines"]["begin"] <= one["location"]["lines"]["end"]


def test_github_annotations_are_one_line_each_and_escaped(awkward: Any) -> None:
    lines = render(awkward, "github").splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert len(commands) == len(awkward.findings) == len(lines) - 1
    for command in commands:
        match = re.fullmatch(r"::(error|notice) ([^:]*)::(.*)", command)
        assert match
        keys = [pair.partition("=")[0] for pair in match[2].split(",")]
        assert keys[:4] == ["file", "line", "endLine", "title"]
    assert sum(line.startswith("::notice") for line in commands) == 1


def test_markdown_keeps_its_fences(awkward: Any, work: Work) -> None:
    assert "Waived until 2999-01-01: agreed" in render(awkward, "markdown")
    work.write("trips.avsc", event(ID, {"name": "x", "doc": "```", "type": "int"}))
    text = render(check(SCHEMAS, ["git:main"]), "markdown")
    assert text.count("````") == 4, "around the lines, and around the DDL with its comment"


def test_one_fault_is_reported_once_for_many_versions(work: Work) -> None:
    def breaking() -> Any:
        work.write("trips.avsc", event({"name": "id", "type": "string"}))
        verdict = check(SCHEMAS, ["git:main"])
        work.git("checkout", "-q", "--", ".")
        return verdict

    def another_version(name: str) -> None:
        work.git("checkout", "-q", "main")
        work.write("trips.avsc", event(ID, {"name": name, "type": "int", "default": 0}))
        work.commit()
        work.git("checkout", "-q", "-B", "later")

    another_version("a")
    before = json.loads(render(breaking(), "gitlab"))
    another_version("b")
    verdict = breaking()
    told = [one for one in verdict.findings if one.finding.rule == "HW002"]
    assert len(told) == len(json.loads(render(verdict, "json"))["findings"]) == 3
    (issue,) = json.loads(render(verdict, "gitlab"))
    assert issue["description"].startswith(f"{told[0].finding.message}; the same against 2 more.")
    assert [one["fingerprint"] for one in before] == [issue["fingerprint"]]
    (result,) = json.loads(render(verdict, "sarif"))["runs"][0]["results"]
    assert result["message"]["text"] == issue["description"]
    annotations = render(verdict, "github").splitlines()
    assert [line.startswith("::error") for line in annotations] == [True, False]
    assert render(verdict, "junit").count("the same against 2 more") == 2
    assert annotations[1] == "refused: 1 finding in 1 of 1 schema file"


def test_rules_that_one_edit_satisfies_share_an_excerpt(work: Work) -> None:
    """The terminal still shows the end: the refused subjects."""
    work.git("checkout", "-q", "main")
    work.write("governance.toml", '[default]\npolicy = "warehouse"\n')
    for name in ("alpha", "omega"):
        work.write(f"{name}.avsc", event(ID, topic=name, name=name.title()))
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    work.write("alpha.avsc", event({"name": "id", "type": "int"}, topic="alpha", name="Alpha"))
    more = {"name": "more", "type": "int", "default": 0}
    work.write("omega.avsc", event(ID, more, topic="omega", name="Omega"))
    found = check(SCHEMAS, ["git:main"])
    text = render(found, "text")
    assert [one.finding.rule for one in found.findings] == ["HW002", "HW201"]
    assert text.count("--> schemas/alpha.avsc") == 1
    assert text.count("= fix: ") == 1
    heads = [line.partition(":")[0] for line in text.splitlines() if line.startswith("error[")]
    assert heads == ["error[HW002]", "error[HW201]"]
    assert text.index("pass  omega-value") < text.index("refused  alpha-value")


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


def test_reports_are_written_beside_the_answer(work: Work) -> None:
    out = [f"{form}={work.root / form}" for form in FORMATS]
    flags = [flag for report in out for flag in ("--report", report)]
    assert run("check", "--against", "git:main", *flags).exit_code == 0
    assert all((work.root / form).read_text() for form in FORMATS)
    wrong = run("check", "--against", "git:main", "--report", "html=x")
    assert "is not FORMAT=FILE" in str(wrong.exception)
    nowhere = run("check", "--against", "git:main", "--report", "json=no/such/folder/x")
    assert "cannot write the report" in str(nowhere.exception)


def test_waivers_on_the_command_line(work: Work) -> None:
    work.write("trips.avsc", event({"name": "id", "type": "string"}))
    asked = ("check", "--against", "git:main", "--waive")
    passed = run(*asked, "HW002:trips-value", "--reason", "agreed")
    assert passed.exit_code == 0
    assert "waived[HW002]" in passed.stdout
    assert "= waived, this once: agreed" in passed.stdout
    assert run(*asked, "all", "--reason", "agreed").exit_code == 0
    assert run(*asked, "HW002:other-value", "--reason", "agreed").exit_code == 1
    assert "needs a reason" in str(run(*asked, "HW002").exception)
    assert "no rule of the gate" in str(run(*asked, "HW999", "--reason", "x").exception)


def test_settings_of_the_gate(work: Work) -> None:
    file = work.root / "headworks.toml"
    file.write_text('[gate]\nagainst = "git:main"\n')
    assert "takes a list `against`" in str(run("check").exception)
    file.write_text('[gate]\nbase = ["git:main"]\n')
    assert "takes a list `against`" in str(run("check").exception)


def test_colours_and_width_only_for_a_terminal(verdict: Any) -> None:
    plain = text_report(verdict)
    assert "\x1b" not in plain
    dressed = text_report(verdict, Style(colours=True, width=80))
    bare = re.sub(r"\x1b\[[0-9;]*m", "", dressed)
    assert "\x1b[1;31merror[HW001]\x1b[0m" in dressed
    assert max(map(len, bare.splitlines())) <= 80
    assert " ".join(bare.split()) == " ".join(plain.split())


def test_the_underline_is_below_the_reported_text(work: Work) -> None:
    field = {"name": "größe_日本", "type": "int", "doc": "A field."}
    text = json.dumps(event(ID, field), indent="\t", ensure_ascii=False)
    work.write("trips.avsc", text)
    lines = render(check(SCHEMAS, ["git:main"]), "text").splitlines()
    at = next(i for i, line in enumerate(lines) if '"name": "größe_日本"' in line)
    marks = lines[at + 1]
    assert "^" in marks
    assert marks.index("^") == lines[at].index('"größe')
    assert marks.count("^") == len('"größe_日本"') + 2, "two characters take two cells each"


@pytest.mark.parametrize("width", [None, 80])
def test_a_schema_on_one_line_is_cut_around_the_fault(work: Work, width: int | None) -> None:
    fields = [{"name": f"field_{n}", "type": "string", "doc": "D."} for n in range(20)]
    fields[15]["type"] = "strin"
    work.write("trips.avsc", json.dumps(event(*fields)))
    lines = text_report(check(SCHEMAS, ["git:main"]), Style(width=width)).splitlines()
    at = next(i for i, line in enumerate(lines) if "^" in line)
    assert '"strin"' in lines[at - 1]
    assert lines[at - 1].count("...") == 2
    assert lines[at].index("^") == lines[at - 1].index('"type": "strin"')
    assert max(map(len, lines[at - 1 : at + 1])) <= (width or 160)


def test_register_list_show_diff(work: Work, registry: Service) -> None:
    work.write("trips.avsc", event(ID, topic="cli.trips"))
    url = ("--registry", registry.url)
    assert "give --all" in str(run("register", *url).exception)
    assert "--bundled registers other" in str(run("register", "trips.avsc", "--bundled").exception)
    for _ in range(2):  # a unit runs it at each start
        assert run("register", "--bundled", *url).exit_code == 0
    assert run("register", "--all", *url).exit_code == 0
    listed = json.loads(run("list", "--format", "json", *url).stdout)
    assert f"{AUDIT_TOPIC}-value" in {row["subject"] for row in listed}
    mine = next(row for row in listed if row["subject"] == "cli.trips-value")
    assert mine["compatibility"] == "BACKWARD_TRANSITIVE"
    shown = json.loads(run("show", "cli.trips-value", "--format", "json", *url).stdout)
    assert shown["schema"]["name"] == "Trip"
    work.write("trips.avsc", event(ID, {"name": "x", "type": "int"}, topic="cli.trips"))
    changed = run("diff", "cli.trips-value:1", "schemas/trips.avsc", *url)
    assert changed.stdout == "+ x: int\n"
    assert run("register", "schemas/trips.avsc", *url).exit_code == 1
    assert "no subject" in str(run("show", "cli.nothing-value", *url).exception)


def test_every_rule_is_documented(root: Path) -> None:
    text = (root / "docs/compatibility.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^### (HW\d+)", text, re.MULTILINE))
    assert headings == {*RULES, *CATALOG_RULES, *LINT_RULES}
