"""The history of schema files that the gate reads from git: merges, renames, copies, deletions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headworks._ci import repository
from headworks._ci.file_history import FileHistories
from headworks._ci.gate import check
from headworks._ci.repository import Repository
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")
MAIN = ["git:main"]
A = {"name": "a", "type": "int", "default": 0}
B = {"name": "b", "type": "int", "default": 0}
REQUIRED_A = {"name": "a", "type": "int"}


@pytest.fixture
def main(work: Work) -> Work:
    """The repository, on its branch `main`."""
    work.git("checkout", "-q", "main")
    return work


def branch(work: Work) -> None:
    work.git("checkout", "-q", "-b", "later")


def compared(subject: str = "trips-value") -> str:
    """The note that says with how many versions a subject was compared."""
    verdicts = check(SCHEMAS, MAIN).subjects
    return next(one.notes[0] for one in verdicts if one.subject == subject)


def against(work: Work, *fields: Any) -> list[tuple[str, int | None]]:
    """The rules that these fields of trips break, with the version."""
    work.write("trips.avsc", event(*fields))
    found = check(SCHEMAS, MAIN).findings
    return [(one.finding.rule, one.finding.writer_version) for one in found]


def both_sides(work: Work) -> None:
    """Commit the field `a` on one branch and `b` on another; HEAD is on main, with `a`."""
    work.git("checkout", "-q", "-b", "side")
    work.write("trips.avsc", event(ID, B))
    work.commit()
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, A))
    work.commit()


def test_a_merge_that_resolves_a_conflict_makes_a_version(main: Work) -> None:
    both_sides(main)
    with pytest.raises(subprocess.CalledProcessError):
        main.git("merge", "-q", "side")
    string = {"name": "c", "type": "string", "default": ""}
    main.write("trips.avsc", event(ID, A, B, string))  # only the merge has `c`
    main.commit()
    branch(main)
    assert compared().startswith("compared with 4 versions")
    assert not check(SCHEMAS, MAIN).subjects[0].changed
    assert against(main, ID, A, B, {**string, "type": "int", "default": 0}) == [("HW002", 4)]


def test_the_last_version_is_that_of_main_if_a_merge_discards_a_change(main: Work) -> None:
    main.write("governance.toml", '[default]\npolicy = "avro"\ncompatibility = "BACKWARD"\n')
    main.commit()
    both_sides(main)
    main.git("merge", "-q", "-s", "ours", "side")
    branch(main)
    assert not check(SCHEMAS, MAIN).subjects[0].changed
    # Compatible with the version of the side branch, and not with that of main.
    assert [rule for rule, _ in against(main, ID, {**A, "type": "string", "default": ""})] == [
        "HW002"
    ]


def test_a_copy_whose_original_goes_later_continues_it(main: Work) -> None:
    main.write("trips.avsc", event(ID, A))
    main.commit()
    text = (main.schemas / "trips.avsc").read_text()
    main.write("journeys.avsc", text.replace("A trip.", "A journey."))
    main.git("add", "-A")
    main.git("commit", "-q", "-m", "copy")
    main.git("rm", "-q", "schemas/trips.avsc")
    main.commit()
    branch(main)
    assert compared().startswith("compared with 3 versions")


def test_a_file_that_comes_back_elsewhere_keeps_its_history(main: Work) -> None:
    main.write("trips.avsc", event(ID, A))
    main.commit()
    main.git("rm", "-q", "schemas/trips.avsc")
    main.commit()
    main.write("back/trips.avsc", event(ID))
    main.commit()
    branch(main)
    main.write("back/trips.avsc", event(ID, {**A, "type": "string", "default": ""}))
    (found,) = check(SCHEMAS, MAIN).findings
    assert (found.finding.rule, found.finding.writer_version) == ("HW002", 2)


def test_a_file_that_comes_back_keeps_its_history(main: Work) -> None:
    main.git("rm", "-q", "schemas/trips.avsc")
    main.commit()
    main.write("trips.avsc", event(ID, A))
    main.commit()
    branch(main)
    assert compared().startswith("compared with 2 versions")


def test_a_copy_is_not_the_original(main: Work) -> None:
    """The copy is another subject, whose history begins with it."""
    main.write("rides.avsc", event(ID, topic="rides", name="Ride"))
    main.commit()
    branch(main)
    assert compared("rides-value").startswith("compared with 1 version ")


def test_a_file_of_another_extension_is_followed(main: Work) -> None:
    main.write("rides.json", event(ID, A, topic="rides", name="Ride"))
    main.commit()
    main.write("rides.json", event(ID, topic="rides", name="Ride"))
    main.commit()
    main.git("mv", "schemas/rides.json", "schemas/rides.avsc")
    main.commit()
    branch(main)
    assert compared("rides-value").startswith("compared with 2 versions")


def test_a_type_of_another_file_is_followed_when_that_file_moves(main: Work) -> None:
    leg = {"type": "record", "name": "Leg", "namespace": "acme", "fields": [ID]}
    main.write("leg.avsc", leg)
    main.write("rides.avsc", event({"name": "leg", "type": "acme.Leg"}, topic="rides", name="Ride"))
    main.commit()
    main.write("leg.avsc", {**leg, "fields": [ID, A]})
    main.commit()
    (main.schemas / "types").mkdir()
    main.git("mv", "schemas/leg.avsc", "schemas/types/leg.avsc")
    main.commit()
    branch(main)
    assert compared("rides-value").startswith("compared with 2 versions")


def test_a_type_that_an_old_version_used_is_found(main: Work) -> None:
    leg = {"type": "record", "name": "Leg", "namespace": "acme", "fields": [ID]}
    main.write("types/leg.avsc", leg)
    uses = {"name": "leg", "type": ["null", "acme.Leg"], "default": None}
    main.write("rides/rides.avsc", event(ID, uses, topic="rides", name="Ride"))
    main.commit()
    main.git("rm", "-q", "schemas/types/leg.avsc")
    main.write("rides/rides.avsc", event(ID, topic="rides", name="Ride"))
    main.commit()
    branch(main)
    assert compared("rides-value").startswith("compared with 2 versions")


@pytest.mark.parametrize("base", [".", "schemas"])
def test_places_are_named_alike_wherever_the_gate_runs(
    main: Work, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward check names the place in the old version, which has no file of its own."""
    main.write("governance.toml", '[default]\npolicy = "avro"\ncompatibility = "FORWARD"\n')
    main.commit()
    branch(main)
    main.write("trips.avsc", event({"name": "id", "type": "string"}))
    monkeypatch.chdir(main.root / base)
    (found,) = check(Path("schemas" if base == "." else "."), MAIN).findings
    places = (found.finding.reader_pointer, found.finding.writer_pointer)
    assert places == ("/fields/0/type", "/fields/0/type")


def test_any_number_of_files_costs_the_same_git_processes(
    main: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    original = repository._started

    def counting(command: Any) -> Any:
        started.append(next(one for one in command[5:] if not one.startswith(("-", "log."))))
        return original(command)

    monkeypatch.setattr(repository, "_started", counting)
    branch(main)
    check(SCHEMAS, MAIN)
    few, started[:] = list(started), []
    main.git("checkout", "-q", "main")
    for i in range(20):
        main.write(f"more_{i}.avsc", event(ID, topic=f"more-{i}", name=f"More{i}"))
        main.commit()
        main.write(f"more_{i}.avsc", event(ID, A, topic=f"more-{i}", name=f"More{i}"))
        main.commit()
    main.git("checkout", "-q", "-B", "later")
    verdict = check(SCHEMAS, MAIN)
    assert all("compared with" in one.notes[0] for one in verdict.subjects)
    assert sorted(started) == sorted(few)  # some of them run at the same time
    assert started.count("log") == started.count("cat-file") == 1


def test_a_path_with_a_line_end_is_read(main: Work) -> None:
    main.write("od\nd/trips é.avsc", event(ID, topic="odd", name="Odd"))
    main.commit()
    branch(main)
    assert compared("odd-value").startswith("compared with 1 version ")


def test_a_history_that_git_cannot_give_is_no_empty_one(main: Work) -> None:
    with pytest.raises(Exception, match="git cannot read the history"):
        FileHistories(Repository(main.root), "nowhere")


def test_the_history_of_a_file_is_a_chain_of_paths(main: Work) -> None:
    main.git("mv", "schemas/trips.avsc", "schemas/journeys.avsc")
    commit = main.commit()
    history = FileHistories(Repository(main.root), commit)
    found = history.of("schemas/journeys.avsc")
    assert [(one.path, one.source) for one in found] == [
        ("schemas/journeys.avsc", "schemas/trips.avsc"),
        ("schemas/trips.avsc", None),
    ]
    text = next(Repository(main.root).objects.texts([found[0].blob]))
    assert json.loads(text or "")["name"] == "Trip"
    assert history.of("schemas/never.avsc") == []
