"""The gate knows who uses what: a removal passes if nobody does, and else it names who breaks."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headworks._audit.usage import SubjectUsage, VersionUsage, VersionUser
from headworks._ci.formats import FORMATS, render
from headworks._ci.gate import check
from headworks._ci.usage import DAY_MS, AskUsage
from headworks._ci.verdict import Verdict
from headworks.errors import UsageError
from headworks.schema import parse
from headworks.schema._canonical import fingerprint
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")
FULL = '[subjects."trips-value"]\ncompatibility = "FULL_TRANSITIVE"\npolicy = "strict"\n'
CITY = {"name": "city", "type": "string"}
NOW = time.time_ns() // 1_000_000


OLD = fingerprint(parse(json.dumps(event(ID, CITY))))


def ago(days: float) -> int:
    return NOW - int(days * DAY_MS)


def user(tier: str, days: float, *, application: str = "app") -> VersionUser:
    return VersionUser(tier, application, ("host-1",), "trips", 9, ago(days))


# Everything was counted for 90 days, and only version 2 was used in the last 60.
UNUSED = SubjectUsage(
    "trips-value",
    ("trips",),
    ago(90),
    NOW,
    (
        VersionUsage(2, 12, "", (user("producer", 0),), (user("hadoop", 0),), "new"),
        VersionUsage(1, 11, "", (user("producer", 60),), (user("consumer:billing", 60),), OLD),
    ),
    unknown_readers=(),
)


def with_reader(days: float) -> SubjectUsage:
    first = replace(UNUSED.versions[1], read_by=(user("consumer:billing", days),))
    return replace(UNUSED, versions=(UNUSED.versions[0], first))


def other_version() -> SubjectUsage:
    """Somebody registered a version that is in no commit, and reads with it."""
    third = VersionUsage(3, 13, "", (), (user("consumer:own", 1),), "not in git")
    return replace(UNUSED, versions=(third, *UNUSED.versions))


@pytest.fixture
def removal(work: Work) -> Work:
    """The readers of version 1 need `city`; the change removes it."""
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, CITY))
    work.write("governance.toml", FULL)
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    work.write("trips.avsc", event(ID))
    return work


def judged(usage: SubjectUsage | None) -> Verdict:
    ask: AskUsage = lambda subject: usage if subject == "trips-value" else None  # noqa: E731
    return check(SCHEMAS, ["git:main"], usage=ask)


def test_a_removal_that_nobody_uses_passes_with_its_evidence(removal: Work) -> None:
    assert check(SCHEMAS, ["git:main"]).refused
    assert judged(None).refused
    verdict = judged(UNUSED)
    assert verdict.verdict == "pass"
    unused = [one for one in verdict.findings if one.severity == "unused"]
    assert {one.finding.rule for one in unused} == {"HW001"}
    for form in FORMATS:
        text = render(verdict, form)
        if form != "json":
            assert "nobody uses it: every use was counted from" in text, form
    found = json.loads(render(verdict, "json"))["findings"][0]
    assert found["severity"] == "unused"
    assert found["usage"]["allows"] is True
    assert found["usage"]["breaks"]


def test_a_refusal_names_who_breaks_and_when_they_last_read(removal: Work) -> None:
    verdict = judged(with_reader(2))
    assert verdict.refused
    for form in FORMATS:
        text = render(verdict, form)
        assert "group billing (app)" in text, form
        assert "host-1" in text, form
        assert "last at 20" in text, form


BLOCKED = {
    "another version": (other_version(), "version 3, which was not compared"),
    "a user": (with_reader(29.9), "uses version 1"),
    "an unknown reader": (replace(UNUSED, unknown_readers=("legacy",)), "legacy"),
    "no broker": (replace(UNUSED, unknown_readers=None), "no broker was asked"),
    "dicts": (replace(UNUSED, dict_readers=(user("consumer:probe", 1),)), "reads dicts"),
    "not registered": (replace(UNUSED, unregistered_readers=(user("consumer:p", 1),)), "not reg"),
    "not counted": (replace(UNUSED, uncounted=(user("consumer:old", 1),)), "does not count"),
    "nothing counted": (replace(UNUSED, since=None), "nobody has counted"),
    "young evidence": (replace(UNUSED, since=ago(29.9)), "29 days only, and 30"),
    "old evidence": (replace(UNUSED, as_of=ago(1)), "headworks audit run"),
}


@pytest.mark.parametrize("why", BLOCKED)
def test_what_is_not_known_never_passes(removal: Work, why: str) -> None:
    usage, told = BLOCKED[why]
    verdict = judged(usage)
    assert verdict.refused
    assert told in render(verdict, "text")


def test_an_old_use_of_what_blocks_is_over(removal: Work) -> None:
    usage = replace(
        UNUSED,
        dict_readers=(user("consumer:probe", 31),),
        uncounted=(user("consumer:old", 80),),
        unregistered_readers=(user("consumer:own", 45),),
    )
    assert judged(usage).verdict == "pass"


def test_data_that_was_written_stays(removal: Work) -> None:
    """A new reader that cannot read old data is refused, whoever uses the old version."""
    removal.write("trips.avsc", event(ID, CITY, {"name": "zip", "type": "string"}))
    verdict = judged(UNUSED)
    assert verdict.refused
    assert {one.usage for one in verdict.findings if one.finding.reader_version is None} == {None}


def test_the_days_are_a_setting(removal: Work) -> None:
    removal.write("governance.toml", FULL + "[usage]\nunused_days = 61\n")
    assert judged(UNUSED).refused
    removal.write("governance.toml", FULL + "[usage]\nunused_days = 7\nevidence_days = 91\n")
    assert judged(UNUSED).refused
    # Nobody knows who used it before the counts began.
    removal.write("governance.toml", FULL + "[usage]\nunused_days = 59\nevidence_days = 1\n")
    assert "58 days only, and 59" in render(judged(replace(UNUSED, since=ago(58.5))), "text")
    assert judged(UNUSED).verdict == "pass"
    removal.write("governance.toml", FULL + "[usage]\nunused_days = 7\nevidence_days = 7\n")
    assert judged(replace(with_reader(8), since=ago(8))).verdict == "pass"
    for wrong in ("unused_days = 0", 'evidence_days = "30"', "days = 3"):
        removal.write("governance.toml", FULL + f"[usage]\n{wrong}\n")
        with pytest.raises(UsageError, match="usage"):
            judged(UNUSED)


def test_a_deleted_schema_passes_if_nobody_writes_or_reads_it(removal: Work) -> None:
    (removal.schemas / "trips.avsc").unlink()
    removal.write("other.avsc", event(ID, topic="other", name="Other"))
    assert judged(UNUSED).refused  # version 2 is in use
    gone = replace(UNUSED, versions=(UNUSED.versions[1],))
    verdict = judged(gone)
    assert [one.finding.rule for one in verdict.findings] == ["HW302"]
    assert verdict.verdict == "pass"
