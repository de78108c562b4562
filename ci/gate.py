"""The check: may these schemas be merged, and registered, where they are going?

    verdict = check(Path("schemas"), ["git:origin/main", "registry:http://127.0.0.1:8081"])

Every subject of the catalogue is held against every base that is given, at that base's level and
policy, by the function that the registry itself uses. A new subject passes; a file that moved is
followed; a subject that is gone is a finding; a file that is no schema is a finding, and hides
nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from ci.bases import Base, Past, open_base
from ci.catalogue import Catalogue, SchemaFile, read_folder, within
from ci.governance import Governance, Waiver, catalogue_root, read_governance
from ci.positions import Position, SourceMap
from ci.rules import CATALOGUE_RULES
from headworks.compatibility import Finding, check_level
from headworks.errors import SchemaError, UsageError

__all__ = ["PlacedFinding", "SubjectVerdict", "Verdict", "check", "place", "refusal"]


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding at its place in a file of the catalogue, and what it was held against."""

    finding: Finding
    subject: str | None
    file: str
    position: Position
    lines: tuple[str, ...] = ()
    against: str | None = None
    waiver: Waiver | None = None

    def as_dict(self) -> dict[str, object]:
        """The finding as JSON."""
        return {
            **self.finding.as_dict(),
            "subject": self.subject,
            "file": self.file,
            "line": self.position.line,
            "column": self.position.column,
            "end_line": self.position.end_line,
            "end_column": self.position.end_column,
            "against": self.against,
            "waived": None if self.waiver is None else self.waiver.reason,
        }


@dataclass(frozen=True, slots=True)
class SubjectVerdict:
    """What came of one file (or of a subject whose file is gone)."""

    subject: str | None
    file: str
    findings: tuple[PlacedFinding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether any finding stands that is not waived."""
        return any(one.waiver is None for one in self.findings)

    @property
    def verdict(self) -> str:
        """pass or refused."""
        return "refused" if self.refused else "pass"

    def as_dict(self) -> dict[str, object]:
        """The verdict as JSON."""
        return {
            "subject": self.subject,
            "file": self.file,
            "verdict": self.verdict,
            "notes": list(self.notes),
            "findings": [one.as_dict() for one in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of the whole catalogue."""

    subjects: tuple[SubjectVerdict, ...]
    against: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether any subject is refused."""
        return any(one.refused for one in self.subjects)

    @property
    def verdict(self) -> str:
        """pass or refused."""
        return "refused" if self.refused else "pass"

    @property
    def findings(self) -> tuple[PlacedFinding, ...]:
        """The findings of all subjects, in order."""
        return tuple(one for subject in self.subjects for one in subject.findings)

    def as_dict(self) -> dict[str, object]:
        """The verdict as JSON: what `--format json` prints."""
        return {
            "verdict": self.verdict,
            "against": list(self.against),
            "subjects": [one.as_dict() for one in self.subjects],
            "findings": [one.as_dict() for one in self.findings],
        }


def check(schemas: Path, against: Sequence[str], *, today: date | None = None) -> Verdict:
    """Hold the catalogue in `schemas` (a folder or one file) against every base.

    `against`: `git:REF` or `registry:URL`, one or more. Raises UsageError if a base or the
    catalogue itself cannot be read, UnreachableError if a registry does not answer.
    """
    if not against:
        raise UsageError(
            "there is nothing to check against",
            fix="give --against git:origin/main, or --against registry:URL, or both",
        )
    root = catalogue_root(schemas)
    governance = read_governance(root)
    bases = [open_base(text, root, governance) for text in against]
    whole = Catalogue(read_folder(root))
    whole.subjects()  # refuses a catalogue in which two files claim one subject
    day = today or datetime.now(tz=UTC).date()
    verdicts = [
        _of_file(one, whole, bases, governance, day)
        for one in whole.files()
        if within(one.path, schemas)
    ]
    if schemas.is_dir() and schemas.resolve() == root.resolve():
        verdicts += _deleted(whole, bases, governance)
    return Verdict(tuple(verdicts), tuple(base.name for base in bases))


def place(
    one: SchemaFile,
    finding: Finding,
    *,
    texts: Catalogue,
    against: str | None = None,
    waiver: Waiver | None = None,
) -> PlacedFinding:
    """Put a finding at its lines: in `one`, or in the file that defines the type it is about."""
    proposed = finding.reader_version is None
    pointer = finding.reader_pointer if proposed else finding.writer_pointer
    path, _, inside = pointer.rpartition("#")
    file = path if path in texts.texts else one.path
    source = SourceMap(texts.texts[file])
    position = (
        source.position(inside) if one.error is None else _place_of(one.error, source, inside)
    )
    last = min(position.end_line, position.line + 7)
    lines = tuple(source.line(number) for number in range(position.line, last + 1))
    plain = replace(
        finding,
        reader_pointer=finding.reader_pointer.removeprefix(f"{one.path}#"),
        writer_pointer=finding.writer_pointer.rpartition("#")[2]
        if proposed
        else finding.writer_pointer.removeprefix(f"{one.path}#"),
    )
    return PlacedFinding(plain, one.subject, file, position, lines, against, waiver)


def _place_of(error: SchemaError, source: SourceMap, pointer: str) -> Position:
    """Where an error stands: text that is no JSON has lines, but no pointers."""
    if error.rule == "json":
        try:
            json.loads(source.text)
        except json.JSONDecodeError as found:
            return Position(found.lineno, found.colno, found.lineno, found.colno + 1)
    return source.position(pointer)


def refusal(one: SchemaFile) -> Finding:
    """The finding of a file that could not be read."""
    assert one.error is not None
    return Finding(
        rule="HW301",
        kind=CATALOGUE_RULES["HW301"][0],
        message=one.error.reason[:1].upper() + one.error.reason[1:],
        fix=one.error.fix or "correct the schema",
        path="",
        reader_pointer=one.error.pointer,
        writer_pointer="",
    )


def _of_file(
    one: SchemaFile, whole: Catalogue, bases: Sequence[Base], governance: Governance, day: date
) -> SubjectVerdict:
    if one.error is not None:
        return SubjectVerdict(None, one.path, (place(one, refusal(one), texts=whole),))
    assert one.schema is not None
    if one.subject is None:
        note = "shared types: checked in every subject that uses them"
        return SubjectVerdict(None, one.path, (), (note,))
    found: list[PlacedFinding] = []
    notes: list[str] = []
    demand = governance.of(one.subject)
    for base in bases:
        past = base.past(one.subject)
        notes += _notes(one, base, past)
        if past is None:
            continue
        for finding in check_level(
            one.schema, past.versions, past.demand.level, past.demand.policy
        ):
            number = finding.writer_version or finding.reader_version
            label = past.label(number)
            against = base.name if label is None else f"{base.name} ({label})"
            waiver = demand.waiver(finding, day)
            found.append(place(one, finding, texts=whole, against=against, waiver=waiver))
    return SubjectVerdict(one.subject, one.path, tuple(found), tuple(notes))


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


def _deleted(
    whole: Catalogue, bases: Sequence[Base], governance: Governance
) -> Iterator[SubjectVerdict]:
    """Subjects of a git base that no file describes any more."""
    kept = {one.subject for one in whole.files()}
    # A file that cannot be read may be the one: its own finding says enough.
    broken = {Path(one.path).name for one in whole.files() if one.error is not None}
    for base in bases:
        for subject, path in base.subjects().items():
            if subject in kept or path is None or Path(path).name in broken:
                continue
            if (
                not governance.of(subject).level.backward
                and not governance.of(subject).level.forward
            ):
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
