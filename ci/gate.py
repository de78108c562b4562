"""The check: may these schemas be merged, and registered, where they are going?

    verdict = check(Path("schemas"), ["git:origin/main", "registry:http://127.0.0.1:8081"])

Every subject of the catalogue is held against every base that is given, at that base's level and
policy, by the function that the registry itself uses. A new subject passes; a file that moved is
followed; a subject that is gone is a finding; a file that is no schema is a finding, and hides
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from headworks._ci.baselines import Base, Past, open_base
from headworks._ci.catalog import Catalogue, SchemaFile, read_folder, within
from headworks._ci.consumers import Consumers
from headworks._ci.governance import (
    Governance,
    Waiver,
    catalogue_root,
    nothing_there,
    read_governance,
)
from headworks._ci.impact import impact_of
from headworks._ci.lint import lint_file
from headworks._ci.locations import place, refusal
from headworks._ci.rules import CATALOGUE_RULES
from headworks._ci.source_map import Position
from headworks._ci.verdict import Consumer, Impact, PlacedFinding, SubjectVerdict, Verdict
from headworks.compatibility import Finding, Level, check_level
from headworks.errors import UsageError
from headworks.schema import Record, Schema, governance_of, topic_of
from headworks.schema._canonical import canonical_text

__all__ = ["PROPOSED", "check", "check_text", "named_subject"]

# The file that a proposed schema stands for, where there is only its text.
PROPOSED = "proposed.avsc"


@dataclass(frozen=True, slots=True)
class _Question:
    """What every subject is asked: the catalogue, what it is held to and against, and the day."""

    whole: Catalogue
    governance: Governance
    bases: tuple[Base, ...]
    readers_of: Callable[[str], Sequence[Consumer]]
    waived: tuple[Waiver, ...]
    day: date


def check(
    schemas: Path | Sequence[Path],
    against: Sequence[str],
    *,
    today: date | None = None,
    home: Path | None = None,
    bootstrap: str | None = None,
    waive: Sequence[Waiver] = (),
) -> Verdict:
    """Hold the catalogue in `schemas` (folders or files of one) against every base.

    With a file, what takes types from it is checked as well.
    `against`: `git:REF` or `registry:URL`, one or more. `home` is the folder of the catalogue where
    no governance.toml says which it is. `bootstrap` is a broker whose consumer
    groups are named beside the changes. `waive` counts for every subject, beside the waivers of
    governance.toml. Raises UsageError if a base or the catalogue itself cannot be read,
    UnreachableError if a registry, or the broker, does not answer.
    """
    if not against:
        raise UsageError(
            "there is nothing to check against",
            fix="give --against git:origin/main, or --against registry:URL, or both",
        )
    paths = [schemas] if isinstance(schemas, Path) else list(schemas)
    root = catalogue_root(*paths, home=home)
    governance = read_governance(root)
    bases = tuple(open_base(text, root, governance) for text in against)
    whole = Catalogue(read_folder(root))
    whole.subjects()  # refuses a catalogue in which two files claim one subject
    day = today or datetime.now(tz=UTC).date()
    consumers = Consumers(governance, bootstrap)
    question = _Question(whole, governance, bases, consumers.of, tuple(waive), day)
    verdicts = [_of_file(one, question) for one in whole.files() if whole.touches(one.path, paths)]
    verdicts += _deleted(question, paths)
    if not verdicts:
        raise nothing_there(paths)
    return Verdict(tuple(verdicts), tuple(base.name for base in bases))


def check_text(
    text: str,
    base: Base,
    *,
    governance: Governance,
    readers_of: Callable[[str], Sequence[Consumer]],
    subject: str | None = None,
    beside: Mapping[str, str] | None = None,
    today: date | None = None,
) -> tuple[SubjectVerdict, SubjectVerdict]:
    """The verdict on a schema that is no file yet, and what lint says of it; nothing is written.

    It is held against `subject` (None: the one that it names itself). `beside` are texts, by any
    names, whose types it may use.
    """
    whole = Catalogue({**(beside or {}), PROPOSED: text})
    one = whole.file(PROPOSED)
    if subject is not None and one.schema is not None:
        one = replace(one, subject=subject)
    day = today or datetime.now(tz=UTC).date()
    question = _Question(whole, governance, (base,), readers_of, (), day)
    return _of_file(one, question), lint_file(one, whole, governance, day)


def named_subject(text: str, beside: Mapping[str, str]) -> str | None:
    """The subject that a schema that is no file yet is for, by its own words."""
    return Catalogue({**beside, PROPOSED: text}).file(PROPOSED).subject


def _of_file(one: SchemaFile, question: _Question) -> SubjectVerdict:
    if one.error is not None:
        return SubjectVerdict(None, one.path, (place(one, refusal(one), texts=question.whole),))
    assert one.schema is not None
    if one.subject is None:
        note = "shared types: checked in every subject that uses them"
        return SubjectVerdict(None, one.path, (), (note,))
    found: list[PlacedFinding] = []
    notes: list[str] = []
    pasts = [(base, base.past(one.subject)) for base in question.bases]
    for base, past in pasts:
        notes += _notes(one, base, past)
        for finding, against in _findings(one, base, past):
            found.append(_placed(one, finding, against, question))
    text = canonical_text(one.schema)
    histories = [
        [version.schema for version in past.versions] for _, past in pasts if past is not None
    ]
    changed = not any(canonical_text(history[-1]) == text for history in histories if history)
    impact = _impact(one.schema, one.subject, histories, question) if changed else None
    return SubjectVerdict(one.subject, one.path, tuple(found), tuple(notes), impact, changed)


def _findings(one: SchemaFile, base: Base, past: Past | None) -> Iterator[tuple[Finding, str]]:
    """The findings against one base, each with what it was held against."""
    assert one.schema is not None
    assert one.subject is not None
    found = []
    if past is not None:
        if canonical_text(one.schema) in past.registered:
            return
        demand = past.demand
        try:
            found = check_level(one.schema, past.versions, demand.level, demand.policy)
        except UsageError as error:
            raise UsageError(f"{one.path}: {error.message}", fix=error.fix) from None
        for finding in found:
            number = finding.writer_version or finding.reader_version
            label = past.label(number)
            yield finding, base.name if label is None else f"{base.name} ({label})"
    own = None if found else base.refusal(one.subject, one.schema)
    if own is not None:
        fix = "the registry's own settings decide this: its mode, its limits, its level"
        kind = CATALOGUE_RULES["HW303"][0]
        yield Finding("HW303", kind, own, fix, "", f"{one.path}#", ""), base.name


def _placed(one: SchemaFile, finding: Finding, against: str, question: _Question) -> PlacedFinding:
    assert one.subject is not None
    waivers = (*question.waived, *question.governance.of(one.subject).waivers)
    covering = [waiver for waiver in waivers if waiver.covers(finding, one.subject)]
    waiver = next((each for each in covering if each.counts_on(question.day)), None)
    placed = place(one, finding, texts=question.whole, against=against, waiver=waiver)
    if waiver is None and covering:
        return replace(placed, expired=covering[0])
    return placed


def _impact(
    schema: Schema, subject: str, histories: Sequence[Sequence[Schema]], question: _Question
) -> Impact | None:
    """What the change leads to; the longest history knows the table best."""
    if not isinstance(schema, Record):
        return None
    topic = topic_of(subject) or governance_of(schema).topic
    history = max(histories, key=len, default=())
    return impact_of(topic, schema, history, question.readers_of(topic))


def _notes(one: SchemaFile, base: Base, past: Past | None) -> Iterator[str]:
    if past is None:
        yield f"new subject: not in {base.name}"
        return
    count = len(past.versions)
    held = f"{past.demand.level}, policy {past.demand.policy}"
    yield f"held against {count} version{'s' * (count != 1)} of {base.name} ({held})"
    if past.path is not None and Path(past.path).name != Path(one.path).name:
        yield f"renamed: the file was {past.path}"
    elif past.path is not None and not Path(one.path).resolve().as_posix().endswith(past.path):
        yield f"moved: the file was {past.path}"


def _deleted(question: _Question, paths: Sequence[Path]) -> Iterator[SubjectVerdict]:
    """Subjects that had a file in `paths` in a git base, and that no file describes any more."""
    whole, governance = question.whole, question.governance
    kept = {one.subject for one in whole.files()}
    # A file that cannot be read may be the one: its own finding says enough.
    broken = {Path(one.path).name for one in whole.files() if one.error is not None}
    for base in question.bases:
        for subject, path in base.subjects().items():
            if subject in kept or path is None or Path(path).name in broken:
                continue
            if base.home is None or not within(str(base.home / path), paths):
                continue
            if governance.of(subject).level is Level.NONE:
                note = f"deleted: {path}, level NONE"
                yield SubjectVerdict(subject, path, (), (note,))
                continue
            yield _gone(subject, path, base)


def _gone(subject: str, path: str, base: Base) -> SubjectVerdict:
    message = f"Subject {subject} has no file any more ({path} in {base.name}): its producers can "
    message += "no longer be checked, its consumers and its table stay"
    fix = "restore the file; if the topic is really gone, set the subject's compatibility to NONE "
    fix += "in governance.toml"
    kind = CATALOGUE_RULES["HW302"][0]
    finding = Finding("HW302", kind, message, fix, "", "", "")
    placed = PlacedFinding(finding, subject, path, Position(1, 1, 1, 1), (), base.name)
    return SubjectVerdict(subject, path, (placed,))
