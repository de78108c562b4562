"""A change that a lax policy lets pass is a warning of the subject's default policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from typer.testing import CliRunner

from headworks._ci.formats import FORMATS, render
from headworks._ci.gate import check
from headworks._ci.verdict import Verdict
from headworks._cli.schema import schema_app
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")


def _time(unit: str) -> dict[str, Any]:
    time = {"type": "long", "logicalType": f"timestamp-{unit}"}
    return {"name": "at", "type": time, "default": 0}


def _price(scale: int) -> dict[str, Any]:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}
    return {"name": "price", "type": decimal, "default": "\0"}


@pytest.fixture
def changed(work: Work) -> Work:
    """Millis became micros, and the scale of a price changed; both are Avro's own."""
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, _time("millis"), _price(2)))
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    work.write("trips.avsc", event(ID, _time("micros"), _price(4)))
    return work


def _checked() -> Verdict:
    return check(SCHEMAS, ["git:main"])


def test_without_a_choice_corruption_is_refused(changed: Work) -> None:
    (changed.schemas / "governance.toml").unlink()
    verdict = _checked()
    assert verdict.refused
    rules = {(one.finding.rule, one.finding.path) for one in verdict.findings}
    assert {("HW105", "at"), ("HW104", "price")} <= rules
    assert verdict.warnings == ()


def test_under_a_lax_policy_it_is_a_warning(changed: Work) -> None:
    verdict = _checked()
    assert verdict.verdict == "pass"
    assert verdict.findings == ()
    rules = {(one.finding.rule, one.finding.path) for one in verdict.warnings}
    assert {("HW105", "at"), ("HW104", "price")} <= rules
    changed.write("governance.toml", '[default]\npolicy = "strict"\n')
    refused = _checked()
    assert {one.finding.rule for one in refused.findings} == {"HW104", "HW105"}
    assert refused.warnings == ()  # the table cannot follow either, at the same fields


@pytest.mark.parametrize("form", list(FORMATS))
def test_every_format_has_the_warnings(changed: Work, form: str) -> None:
    text = render(_checked(), form)
    for rule in ("HW104", "HW105"):
        assert rule in text
    assert "strict" in text
    result = CliRunner().invoke(schema_app, ["check", "--against", "git:main", "--format", form])
    assert result.exit_code == 0
    assert "HW105" in result.output


def test_tools_read_them_as_warnings(changed: Work) -> None:
    verdict = _checked()
    count = len(verdict.warnings)
    assert render(verdict, "text").endswith(
        f"pass: 1 schema file checked, 1 changed, {count} warnings\n"
    )
    assert render(verdict, "github").count("::warning file=schemas/trips.avsc,line=") == count
    assert "::error" not in render(verdict, "github")
    value = json.loads(render(verdict, "json"))
    assert value["findings"] == []
    assert {one["severity"] for one in value["warnings"]} == {"warning"}
    assert value["subjects"][0]["warnings"] == value["warnings"]
    assert {one["severity"] for one in json.loads(render(verdict, "gitlab"))} == {"minor"}
    suite = ElementTree.fromstring(render(verdict, "junit"))
    assert suite.get("failures") == "0"
    assert "warning: schemas/trips.avsc:" in (suite.findtext("testcase/system-out") or "")
    sarif = json.loads(render(verdict, "sarif"))
    schema = json.loads(Path(__file__).with_name("sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft7Validator(schema).validate(sarif)
    assert {one["level"] for one in sarif["runs"][0]["results"]} == {"warning"}
    assert "⚠️ **HW105**" in render(verdict, "markdown")


def test_an_unchanged_schema_is_not_warned_of_again(work: Work) -> None:
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, _time("millis")))
    work.commit()
    work.write("trips.avsc", event(ID, _time("micros")))
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    assert _checked().warnings == ()
