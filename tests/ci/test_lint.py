"""Lint: each rule finds what it is about, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headworks._ci.formats import render
from headworks._ci.lint import lint_catalog
from headworks._ci.rules import LINT_RULES
from headworks._ci.source_map import Region
from headworks._ci.verdict import LocatedFinding, Verdict
from headworks.compatibility import Finding
from tests.ci.conftest import Work

pytestmark = pytest.mark.e2e

GOOD: dict[str, Any] = {
    "type": "record",
    "name": "Trip",
    "namespace": "acme",
    "doc": "A trip.",
    "headworks": {"topic": "trips", "event_time": "at"},
    "fields": [
        {
            "name": "at",
            "doc": "When it began.",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
        },
        {
            "name": "state",
            "doc": "How it ended.",
            "type": {
                "type": "enum",
                "name": "State",
                "doc": "An end.",
                "symbols": ["DONE", "CANCELLED"],
            },
        },
    ],
}


def with_field(**field: Any) -> dict[str, Any]:
    return {**GOOD, "fields": [*GOOD["fields"], {"doc": "A field.", **field}]}


def inner(name: str, *fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "doc": "Inside.", "fields": list(fields)}


SELF = {"name": "again", "doc": "Itself.", "type": "Loop"}
CASES: list[tuple[str, Any, set[str]]] = [
    ("good", GOOD, set()),
    ("no doc", with_field(name="x", type="int", doc=""), {"HW401"}),
    ("record without doc", {**GOOD, "doc": None}, {"HW401"}),
    ("camel field", with_field(name="departureTime", type="int"), {"HW402"}),
    ("nullable", with_field(name="x", type=["null", "int"]), {"HW403"}),
    ("null last", with_field(name="x", type=["int", "null"], default=None), {"HW404"}),
    ("null last, other default", with_field(name="x", type=["int", "null"], default=1), set()),
    ("no namespace", {**GOOD, "namespace": ""}, {"HW405"}),
    ("no event time", {**GOOD, "headworks": {"topic": "trips"}}, {"HW406"}),
    ("reserved", with_field(name="order", type="int"), {"HW407"}),
    ("case", with_field(name="AT", type="int"), {"HW402", "HW408"}),
    ("empty", {**GOOD, "headworks": {}, "fields": []}, {"HW406", "HW409"}),
    ("no value", with_field(name="x", type=inner("Loop", SELF)), {"HW410"}),
]


@pytest.mark.parametrize(
    ("schema", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_each_rule(work: Work, schema: Any, expected: set[str]) -> None:
    work.write("trips.avsc", schema)
    verdict = lint_catalog(Path("schemas"))
    assert {one.finding.rule for one in verdict.findings} == expected
    assert verdict.refused == bool(expected)


def test_columns_are_asked_for_under_policy_warehouse(work: Work) -> None:
    recursive = with_field(name="x", type=["null", inner("Loop", {
        **SELF, "type": ["null", "Loop"], "default": None})], default=None)  # fmt: skip
    work.write("trips.avsc", recursive)
    assert lint_catalog(Path("schemas")).verdict == "pass"
    work.write("governance.toml", '[default]\npolicy = "warehouse"\n')
    assert [one.finding.rule for one in lint_catalog(Path("schemas")).findings] == ["HW411"]


def test_text_is_a_line_a_finding_and_a_line_a_rule(work: Work) -> None:
    fields = [{"name": f"Leg{n}", "type": "string"} for n in range(8)]
    schema = {**GOOD, "name": "trip", "fields": [*GOOD["fields"], *fields]}
    work.write("trips.avsc", json.dumps(schema))
    lines = render(lint_catalog(Path("schemas")), "text").splitlines()
    column = json.dumps(schema).index('{"name": "Leg0"') + 1
    assert len(lines) == 17 + 1 + 2 + 1 + 1
    place, further = f"schemas/trips.avsc:1:{column}:", f"schemas/trips.avsc:1:{column + 1}:"
    assert lines[1:3] == [
        f"{place} error[HW401]: The field 'Leg0' has no doc",
        f"{further} error[HW402]: The field 'Leg0' is not lower_snake",
    ]
    assert lines[-5:] == [
        "",
        'HW401: every record, field, and enum has a doc; fix: add "doc"',
        "HW402: types UpperCamel, fields lower_snake, enum symbols UPPER_SNAKE; fix: rename it",
        "",
        "refused: 17 findings in 1 of 1 schema file",
    ]


def test_fixes_that_differ_are_on_the_lines_of_their_findings(work: Work) -> None:
    work.write("trips.avsc", with_field(name="at_all", type="int"))
    work.write("governance.toml", '[default]\npolicy = "warehouse"\n')
    verdict = lint_catalog(Path("schemas"))
    assert render(verdict, "text") == "pass: 1 schema file checked\n"
    found = [
        LocatedFinding(
            Finding("HW408", "CASE_DUPLICATE", "Two names", fix, "", "", ""),
            "trips-value",
            "schemas/trips.avsc",
            Region(line, 5, line, 9),
        )
        for line, fix in ((3, "rename this"), (4, "rename that"))
    ]
    (subject,) = verdict.subjects
    text = render(Verdict((replace(subject, findings=tuple(found)),)), "text")
    assert text.splitlines() == [
        "schemas/trips.avsc:3:5: error[HW408]: Two names; fix: rename this",
        "schemas/trips.avsc:4:5: error[HW408]: Two names; fix: rename that",
        "",
        "HW408: no two fields differ in case only",
        "",
        "refused: 2 findings in 1 of 1 schema file",
    ]


def test_a_file_that_is_no_schema_is_shown_with_its_lines(work: Work) -> None:
    work.write("bad.avsc", '{"type": "record",,\n}')
    work.write("trips.avsc", with_field(name="legCount", type="int"))
    text = render(lint_catalog(Path("schemas")), "text")
    assert "--> schemas/bad.avsc:1:19" in text
    assert "schemas/trips.avsc:" in text
    assert text.endswith("refused: 2 findings in 2 of 2 schema files\n")


def test_a_waived_finding_says_why_on_its_line(work: Work) -> None:
    work.write("trips.avsc", with_field(name="legCount", type="int"))
    work.write(
        "governance.toml",
        '[subjects."trips-value"]\nwaivers = ['
        '{ rule = "HW402", reason = "an old name", until = 2999-01-01 }]\n',
    )
    text = render(lint_catalog(Path("schemas")), "text")
    assert "waived[HW402]: The field 'legCount' is not lower_snake; waived until 2999" in text
    assert "-01-01: an old name\n" in text
    assert text.endswith("pass: 1 schema file checked, 1 waived\n")


def test_a_member_that_is_written_twice(work: Work) -> None:
    text = json.dumps(GOOD, indent=2)
    twice = text.replace('"doc": "When it began.",', '"doc": "First.",\n"doc": "Second.",')
    work.write("trips.avsc", twice)
    (found,) = lint_catalog(Path("schemas")).findings
    assert found.finding.rule == "HW412"
    assert found.lines == ('"doc": "Second.",',)


def test_every_rule_has_a_case() -> None:
    assert {rule for case in CASES for rule in case[2]} | {"HW411", "HW412"} == set(LINT_RULES)


def test_the_projects_own_catalogue_is_clean(root: Path) -> None:
    assert lint_catalog(root / "schemas").findings == ()
