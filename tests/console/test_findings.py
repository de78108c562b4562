"""The findings on the first page: who sees them, whose they are, and the urgent ones first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from headworks._audit.findings import KINDS, AuditFinding
from headworks._audit.results import Holes
from headworks._audit.thresholds import Thresholds
from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources.audits import AuditSnapshot
from headworks._console.sources.subjects import SubjectRow, SubjectsSnapshot
from headworks._console.views.checks import CheckLevel
from headworks._console.views.health import URGENT_KINDS, health_page
from headworks._console.views.paging import ListQuery

pytestmark = pytest.mark.unit

_OWNED = SubjectRow("mine-value", "mine", 1, 1, None, "Mine", 1, "ada", None, sensitive=False)


class _Only:
    """A reader who may see one topic."""

    def topic(self, name: str) -> bool:
        return name == "mine"

    group = subject = topic


def test_findings_are_shown_to_readers_of_their_topic() -> None:
    of = {"mine": "mine", "theirs": "theirs", "a host": None}
    seen = tuple(AuditFinding("unknown", key, "hadoop", topic, key) for key, topic in of.items())
    audit = AuditSnapshot(Thresholds(), {}, Holes(0, 0), seen)
    for seeing, shown in ((ALL_VISIBLE, [*of]), (_Only(), ["mine"])):
        page = health_page(audit, None, None, seeing, ListQuery(), tier="hadoop", now_ms=0)
        assert [one.text for one in page.troubles] == shown
    many = AuditSnapshot(Thresholds(), {}, Holes(0, 0), seen * 10)
    page = health_page(many, None, None, ALL_VISIBLE, ListQuery(), tier="hadoop", now_ms=0)
    assert (len(page.troubles), page.further) == (20, 10)


def test_urgent_findings_come_first_and_are_red() -> None:
    seen = tuple(AuditFinding(kind, kind, "hadoop", "mine", kind) for kind in sorted(KINDS)) * 2
    audit = AuditSnapshot(Thresholds(), {}, Holes(0, 0), seen)
    page = health_page(audit, None, None, ALL_VISIBLE, ListQuery(), tier="hadoop", now_ms=0)
    kinds = [one.kind for one in page.troubles]
    shown = [kind for kind in URGENT_KINDS if kind != "holes"]  # which are said above the heatmap
    assert kinds[: 2 * len(shown)] == [kind for kind in shown for _ in range(2)]
    assert page.further > 0
    for one in page.troubles:
        assert one.level is (CheckLevel.BAD if one.kind in shown else CheckLevel.WARN)


def test_the_urgent_findings_are_those_that_page_somebody(root: Path) -> None:
    rules = yaml.safe_load((root / "deploy" / "alerts" / "audit.yml").read_text())
    paging = {
        kind
        for rule in rules["groups"][0]["rules"]
        if rule["labels"]["severity"] == "page"
        for matched in re.findall(r'kind=~?"([^"]+)"', rule["expr"])
        for kind in matched.split("|")
    }
    assert paging | {"holes"} == {*URGENT_KINDS}


def test_a_finding_names_the_owner_of_its_topic() -> None:
    subjects = SubjectsSnapshot({_OWNED.subject: _OWNED})
    seen = tuple(AuditFinding("lost", str(one), "hadoop", one, "") for one in ("mine", "x", None))
    audit = AuditSnapshot(Thresholds(), {}, Holes(0, 0), seen)
    page = health_page(audit, subjects, None, ALL_VISIBLE, ListQuery(), tier="hadoop", now_ms=0)
    assert [one.owner for one in page.troubles] == ["ada", None, None]
