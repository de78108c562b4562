"""The gate against git, in real repositories."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from headworks._ci.deploy import register
from headworks._ci.gate import check
from headworks._ci.lint import lint_catalog
from headworks._ci.report import text_report
from headworks.errors import UsageError
from headworks.registry_client import RegistryClient
from tests.ci.conftest import ID, Work, event
from tests.tools import needs

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")
MAIN = ["git:main"]


def rules(work: Work, **more: Any) -> list[tuple[str, str]]:
    return [(one.file, one.finding.rule) for one in check(SCHEMAS, MAIN, **more).findings]


def test_no_change_passes(work: Work) -> None:
    verdict = check(SCHEMAS, MAIN)
    assert verdict.verdict == "pass"
    (subject,) = verdict.subjects
    assert (subject.subject, subject.file) == ("trips-value", "schemas/trips.avsc")


def test_a_break_is_placed_at_its_lines(work: Work) -> None:
    work.write("trips.avsc", event(ID, {"name": "fare", "type": ["null", "double"]}))
    verdict = check(SCHEMAS, MAIN)
    assert verdict.verdict == "refused"
    (found,) = verdict.findings
    text = Path(found.file).read_text().splitlines()
    assert found.finding.rule == "HW001"
    assert '"fare"' in "\n".join(found.lines)
    assert text[found.region.line - 1 : found.region.end_line] == list(found.lines)
    assert found.against is not None
    assert found.against.startswith("git:main (commit ")


@pytest.mark.parametrize("missing", ["schemas", "schmeas", "schemas/trips.avsc"])
def test_what_is_not_there_does_not_pass(work: Work, missing: str) -> None:
    shutil.rmtree(work.schemas)
    with pytest.raises(UsageError, match=f"{missing} does not exist"):
        check(Path(missing), MAIN, home=SCHEMAS)
    with pytest.raises(UsageError, match=f"{missing} does not exist"):
        lint_catalog(Path(missing), home=SCHEMAS)
    with pytest.raises(UsageError, match=f"{missing} does not exist"):
        list(register(Path(missing), RegistryClient("http://127.0.0.1:1")))


def test_a_folder_without_a_schema_does_not_pass(work: Work) -> None:
    empty = work.root / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"no \.avsc file in"):
        check(empty, MAIN)
    with pytest.raises(UsageError, match=r"no \.avsc file in"):
        lint_catalog(empty)
    with pytest.raises(UsageError, match=r"no \.avsc file in"):
        list(register(empty, RegistryClient("http://127.0.0.1:1")))


def test_a_catalogue_whose_folder_was_renamed_keeps_its_history(work: Work) -> None:
    work.git("mv", "schemas", "events")
    folder = work.root / "events"
    (subject,) = check(folder, MAIN).subjects
    assert (subject.verdict, subject.changed) == ("pass", False)
    text = (folder / "trips.avsc").read_text()
    (folder / "trips.avsc").write_text(text.replace('"long"', '"string"'))
    before = check(folder, MAIN).findings
    work.commit()
    for found in (before, check(folder, MAIN).findings):
        assert [one.finding.rule for one in found] == ["HW002"]


def test_a_file_that_is_gone_is_missed_in_its_own_folder(work: Work) -> None:
    work.git("checkout", "-q", "main")
    work.write("governance.toml", "")
    work.write("one/gone.avsc", event(ID, topic="gone", name="Gone"))
    work.write("one/kept.avsc", event(ID, topic="kept", name="Kept"))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    (work.schemas / "one" / "gone.avsc").unlink()
    found = check(SCHEMAS / "one", MAIN).findings
    assert [(one.subject, one.finding.rule) for one in found] == [("gone-value", "HW302")]
    assert check(SCHEMAS / "trips.avsc", MAIN).verdict == "pass"


def test_uncommitted_and_committed_changes_are_seen_alike(work: Work) -> None:
    work.write("trips.avsc", event({"name": "id", "type": "string"}))
    before = rules(work)
    work.commit()
    assert rules(work) == before == [("schemas/trips.avsc", "HW002")]


def test_transitive_levels_know_the_history_of_the_file(work: Work) -> None:
    extra = {"name": "extra", "type": "int", "default": 0}
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, extra))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    required = {"name": "extra", "type": "int"}
    work.write("trips.avsc", event(ID, required))
    (found,) = check(SCHEMAS, MAIN).findings
    assert (found.finding.rule, found.finding.writer_version) == ("HW001", 1)
    work.write("governance.toml", '[default]\ncompatibility = "BACKWARD"\n')
    assert rules(work) == []


def test_only_versions_of_main_are_compared(work: Work) -> None:
    """Versions of the branch itself were never published."""
    work.write("trips.avsc", event(ID, {"name": "tried", "type": "int", "default": 0}))
    work.commit()
    work.write("trips.avsc", event(ID, {"name": "tried", "type": "string", "default": ""}))
    work.commit()
    assert rules(work) == []


def test_what_main_got_after_the_branch_does_not_count(work: Work) -> None:
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, {"name": "fare", "type": "int", "default": 0}))
    work.commit()
    work.git("checkout", "-q", "change")
    assert rules(work) == []


def test_new_subject_passes(work: Work) -> None:
    work.write("stops.avsc", event(ID, topic="stops", name="Stop"))
    verdict = check(SCHEMAS, MAIN)
    assert verdict.verdict == "pass"
    assert verdict.subjects[0].notes == ("new subject: not in git:main",)


@pytest.mark.parametrize("target", ["journeys.avsc", "deep/er/trips.avsc"])
def test_a_file_that_moves_keeps_its_history(work: Work, target: str) -> None:
    (work.schemas / target).parent.mkdir(parents=True, exist_ok=True)
    work.git("mv", "schemas/trips.avsc", f"schemas/{target}")
    moved = check(SCHEMAS, MAIN)
    assert moved.verdict == "pass"
    assert "the file was schemas/trips.avsc" in moved.subjects[0].notes[1]
    work.commit()
    work.write(target, event({"name": "id", "type": "string"}))
    assert rules(work) == [(f"schemas/{target}", "HW002")]


def test_history_follows_a_rename_on_main(work: Work) -> None:
    work.git("checkout", "-q", "main")
    work.git("mv", "schemas/trips.avsc", "schemas/journeys.avsc")
    work.commit()
    work.write("journeys.avsc", event(ID, {"name": "b", "type": "int", "default": 0}))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    work.write("journeys.avsc", event(ID, {"name": "b", "type": "int"}))
    (found,) = check(SCHEMAS, MAIN).findings
    assert found.finding.writer_version == 1


def test_a_deleted_subject_is_reported(work: Work) -> None:
    (work.schemas / "trips.avsc").unlink()
    verdict = check(SCHEMAS, MAIN)
    assert [one.finding.rule for one in verdict.findings] == ["HW302"]
    assert "--> schemas/trips.avsc:deleted\n" in text_report(verdict)
    work.write("governance.toml", '[subjects."trips-value"]\ncompatibility = "NONE"\n')
    assert check(SCHEMAS, MAIN).verdict == "pass"


def test_the_fix_for_a_deleted_file_restores_it(work: Work) -> None:
    file = work.schemas / "trips.avsc"
    text = file.read_text()
    file.unlink()
    work.commit()
    work.write("other.avsc", event(ID, topic="other", name="Other"))
    (found,) = check(SCHEMAS, MAIN).findings
    command = found.finding.fix.partition("restore the file: ")[2].partition(";")[0]
    subprocess.run(shlex.split(command), cwd=work.schemas, check=True)
    assert file.read_text() == text
    assert check(SCHEMAS, MAIN).verdict == "pass"


def test_a_broken_file_hides_nothing_else(work: Work) -> None:
    work.write("bad.avsc", '{\n  "type": "record",,\n}')
    work.write("trips.avsc", event({"name": "id", "type": "string"}))
    verdict = check(SCHEMAS, MAIN)
    assert [one.finding.rule for one in verdict.findings] == ["HW301", "HW002"]
    assert (verdict.findings[0].region.line, verdict.findings[0].region.column) == (2, 20)


def test_types_of_other_files_resolve_and_are_placed_there(work: Work) -> None:
    work.git("checkout", "-q", "main")
    leg = {"type": "record", "name": "Leg", "namespace": "acme", "fields": [ID]}
    work.write("types/leg.avsc", leg)
    work.write("rides.avsc", event({"name": "leg", "type": "acme.Leg"}, topic="rides", name="Ride"))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    assert check(SCHEMAS, MAIN).verdict == "pass"
    work.write("types/leg.avsc", {**leg, "fields": [{"name": "id", "type": "string"}]})
    verdict = check(SCHEMAS, MAIN)
    (found,) = verdict.findings
    assert (found.subject, found.file) == ("rides-value", "schemas/types/leg.avsc")
    assert found.finding.path == "leg.id"
    shared = next(one for one in verdict.subjects if one.file.endswith("leg.avsc"))
    assert shared.subject is None


def test_history_knows_the_changes_of_the_files_it_uses(work: Work) -> None:
    """A version of a schema is also one in which only a shared type changed."""
    work.git("checkout", "-q", "main")
    leg = {"type": "record", "name": "Leg", "namespace": "acme", "fields": [ID]}
    work.write("types/leg.avsc", leg)
    work.write("rides.avsc", event({"name": "leg", "type": "acme.Leg"}, topic="rides", name="Ride"))
    work.commit()
    stop = {"name": "stop", "type": "int", "default": 0}
    work.write("types/leg.avsc", {**leg, "fields": [ID, stop]})
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    work.write("types/leg.avsc", {**leg, "fields": [ID, {**stop, "type": "string", "default": ""}]})
    verdict = check(SCHEMAS, MAIN)
    (rides,) = [one for one in verdict.subjects if one.subject == "rides-value"]
    assert rides.notes[0].startswith("compared with 2 versions")
    assert [(one.finding.rule, one.finding.writer_version) for one in rides.findings] == [
        ("HW002", 2)
    ]


def test_a_waiver_lets_one_finding_pass_until_its_day(work: Work) -> None:
    work.write("trips.avsc", event({"name": "id", "type": "string"}))
    work.write(
        "governance.toml",
        '[default]\npolicy = "avro"\n'
        '[subjects."trips-value"]\nwaivers = [{ rule = "HW002", path = "id", '
        'reason = "no consumers yet", until = 2026-06-30 }]\n',
    )
    assert check(SCHEMAS, MAIN, today=date(2026, 6, 30)).verdict == "pass"
    (late,) = check(SCHEMAS, MAIN, today=date(2026, 7, 1)).findings
    assert late.waiver is None
    assert "= was waived until 2026-06-30: no consumers yet" in text_report(
        check(SCHEMAS, MAIN, today=date(2026, 7, 1))
    )


def test_one_file_can_be_checked_by_itself(work: Work) -> None:
    work.write("bad.avsc", "{")
    assert check(SCHEMAS / "trips.avsc", MAIN).verdict == "pass"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[default]\ncompatability = "FULL"\n', "compatability"),
        ('[default]\ncompatibility = "SIDEWAYS"\n', "SIDEWAYS"),
        ('[default]\nwaivers = [{ rule = "HW002" }]\n', "needs a reason"),
        ('[default]\nwaivers = [{ rule = "HW999", reason = "x" }]\n', "HW999"),
        ("[default", "not TOML"),
    ],
)
def test_wrong_governance_is_refused(work: Work, text: str, words: str) -> None:
    work.write("governance.toml", text)
    with pytest.raises(UsageError, match=words):
        check(SCHEMAS, MAIN)


def test_two_files_for_one_subject_are_refused(work: Work) -> None:
    work.write("again.avsc", event(ID))
    with pytest.raises(UsageError, match="both describe subject 'trips-value'"):
        check(SCHEMAS, MAIN)


@pytest.mark.parametrize(
    ("base", "words"),
    [("git:nowhere", "git knows no 'nowhere'"), ("svn:x", "is not a baseline")],
)
def test_unknown_bases_say_what_to_do(work: Work, base: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        check(SCHEMAS, [base])
    assert caught.value.fix


def test_a_shallow_clone_says_what_to_fetch(work: Work, tmp_path_factory: Any) -> None:
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, {"name": "b", "type": "int", "default": 0}))
    work.commit()
    clone = tmp_path_factory.mktemp("clone") / "work"
    command = ["git", "clone", "-q", "--depth", "1", f"file://{work.root}", str(clone)]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(UsageError, match="shallow") as caught:
        check(clone / "schemas", ["git:origin/main"])
    assert caught.value.fix is not None
    assert "--unshallow" in caught.value.fix


@needs("git")
def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "schemas").mkdir()
    with pytest.raises(UsageError, match="not in a git repository"):
        check(tmp_path / "schemas", MAIN)
