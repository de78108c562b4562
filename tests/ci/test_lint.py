"""Lint: each rule finds what it is about, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headworks._ci.lint import lint_catalog
from headworks._ci.rules import LINT_RULES
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
