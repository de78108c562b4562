"""The level and the policy of each subject: `governance.toml` beside the schemas.

    [default]
    compatibility = "BACKWARD_TRANSITIVE"
    policy = "warehouse"

    [subjects."payments-value"]
    compatibility = "FULL_TRANSITIVE"
    consumers = ["fraud-detector", "the dashboards of the finance team"]
    waivers = [
      { rule = "HW205", path = "amount", reason = "agreed with the lake team", until = 2026-12-31 },
    ]

    [subjects."orders-key"]
    file = "keys/order_key.avsc"

    [usage]
    unused_days = 30
    evidence_days = 30

By `file`, any subject has its schema: keys, and the names of Confluent's RecordNameStrategy and
TopicRecordNameStrategy. A file that no table names has the subject that it names itself.

Rules: an unknown key is refused, so that a typo has no silent effect. A waiver needs a reason and a
last day, after which it has no effect.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import cast

from headworks._ci.rules import CATALOG_RULES, LINT_RULES
from headworks._toml_text import read_toml
from headworks.compatibility import RULES, Finding, Level, Policy
from headworks.errors import UsageError

FILE_NAME = "governance.toml"
_WHAT_TO_NAME = "name a folder of .avsc files, or a file"


@dataclass(frozen=True, slots=True)
class Waiver:
    """Permission to break one rule, at one field or anywhere in the subject, until a day."""

    rule: str  # its id; "all" is every rule (only on the command line)
    reason: str
    until: date  # the last day
    path: str | None = None  # of the field; None: any
    subject: str | None = None  # None: any

    def covers(self, finding: Finding, subject: str | None) -> bool:
        """Return whether the waiver covers that finding."""
        same = self.rule in ("all", finding.rule) and self.path in (None, finding.path)
        return same and self.subject in (None, subject)

    @property
    def term(self) -> str:
        """Its duration in words."""
        return "waived, this once" if self.until == date.max else f"waived until {self.until}"

    def counts_on(self, day: date) -> bool:
        """Return whether the waiver is valid on that day."""
        return day <= self.until


@dataclass(frozen=True, slots=True)
class SubjectGovernance:
    """The rules for new versions of one subject."""

    level: Level
    policy: Policy
    waivers: tuple[Waiver, ...] = ()
    consumers: tuple[str, ...] = ()

    def waiver(self, finding: Finding, today: date) -> Waiver | None:
        """Return the waiver that covers the finding today, or None."""
        found = (one for one in self.waivers if one.covers(finding, None) and one.counts_on(today))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class GovernanceTable:
    """One table of the file; policy None: that of `Policy.default_of` for each subject."""

    level: Level = Level.BACKWARD_TRANSITIVE
    policy: Policy | None = None
    waivers: tuple[Waiver, ...] = ()
    consumers: tuple[str, ...] = ()
    file: str | None = None  # of the subject's schema, below the root of the catalog


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """The evidence by which a removal passes: days unused, and days in which all was counted.

    Uses must be counted for `unused_days` at least, however few `evidence_days` are.
    """

    unused_days: int = 30
    evidence_days: int = 30


@dataclass(frozen=True, slots=True)
class GovernanceFile:
    """The governance of a catalog; without a file, the defaults of `GovernanceTable`."""

    default: GovernanceTable = GovernanceTable()
    subjects: Mapping[str, GovernanceTable] = field(default_factory=dict)
    evidence: EvidenceRule = EvidenceRule()

    def of(self, subject: str) -> SubjectGovernance:
        """Return the governance of `subject`."""
        table = self.subjects.get(subject, self.default)
        policy = table.policy or Policy.default_of(subject)
        return SubjectGovernance(table.level, policy, table.waivers, table.consumers)

    def has_file(self, subject: str) -> bool:
        """Return whether a table maps the subject to a file."""
        return subject in self.subjects and self.subjects[subject].file is not None

    def mapped(self, root: str) -> dict[str, str]:
        """Return the subjects of mapped files by path, for the catalog in the folder `root`."""
        return {
            (Path(root) / table.file).as_posix(): subject
            for subject, table in self.subjects.items()
            if table.file is not None
        }


def one_time_waivers(texts: Sequence[str], reason: str) -> list[Waiver]:
    """Return waivers for one run: each text is RULE, RULE:SUBJECT, or `all`."""
    if texts and not reason.strip():
        raise UsageError("a waiver needs a reason", fix='add --reason "why this may pass"')
    waivers = []
    for text in texts:
        rule, _, subject = text.partition(":")
        if rule != "all" and rule not in RULES and rule not in CATALOG_RULES:
            raise UsageError(
                f"{text!r} waives {rule!r}, which is no rule of the gate",
                fix="use RULE, RULE:SUBJECT or all: --waive HW205:trips-value",
            )
        waivers.append(Waiver(rule, reason.strip(), date.max, subject=subject or None))
    return waivers


def catalog_root(*schemas: Path, home: Path | None = None) -> Path:
    """Return the folder of the catalog that contains `schemas`, folders or files.

    It is the nearest folder above the first one with a `governance.toml`, inside the repository.
    Without such a folder it is `home`, if `home` contains all of `schemas`. Otherwise it is the
    first folder itself, or the nearest one that contains all the files.

    Raises UsageError if one of them is missing or outside, because a gate must not pass what it
    cannot find.
    """
    for path in schemas:
        if not path.exists():
            raise UsageError(f"{path} does not exist", fix=_WHAT_TO_NAME)
    first = schemas[0]
    start = first if first.is_dir() else first.parent
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return _holding(folder, schemas)
        if (folder / ".git").exists():
            break
    if home is not None and home.is_dir() and _holds(home, schemas):
        return home
    while len(schemas) > 1 and not _holds(start, schemas) and start != start.parent:
        start = start.parent
    return _holding(start, schemas)


def no_schema_files(schemas: Iterable[Path]) -> UsageError:
    """Return the error for a check without any schema, which would otherwise pass."""
    return UsageError(
        f"there is no .avsc file in {', '.join(map(str, schemas))}", fix=_WHAT_TO_NAME
    )


def _holding(root: Path, schemas: Sequence[Path]) -> Path:
    if not _holds(root, schemas):
        raise UsageError(
            f"not all of {', '.join(map(str, schemas))} are in the catalog {root}",
            fix="check one catalog at a time",
        )
    return root


def _holds(root: Path, schemas: Sequence[Path]) -> bool:
    inside = root.resolve()
    return all(inside in (path.resolve(), *path.resolve().parents) for path in schemas)


def read_governance(root: Path) -> GovernanceFile:
    """Read `governance.toml` in the root of a catalog."""
    path = root / FILE_NAME
    content = read_toml(path)
    if content is None:
        return GovernanceFile()
    _only(path, "", content, "default", "subjects", "usage")
    default = _demand(path, "[default]", content.get("default", {}), GovernanceTable())
    tables = _table(path, "[subjects]", content.get("subjects", {}))
    subjects = {
        name: _subject_table(path, f'[subjects."{name}"]', value, default)
        for name, value in tables.items()
    }
    _check_files(path, subjects)
    return GovernanceFile(default, subjects, _evidence(path, content.get("usage", {})))


def _evidence(path: Path, value: object) -> EvidenceRule:
    table = _table(path, "[usage]", value)
    _only(path, "[usage]", table, "unused_days", "evidence_days")
    rule = replace(EvidenceRule(), **cast(dict[str, int], table))
    for days in (rule.unused_days, rule.evidence_days):
        if type(days) is not int or days < 1:
            raise UsageError(
                f"{path}: {days!r} in [usage] is not a number of days", fix="give 1 or more"
            )
    return rule


def _subject_table(
    path: Path, where: str, value: object, default: GovernanceTable
) -> GovernanceTable:
    table = dict(_table(path, where, value))
    file = table.pop("file", None)
    inside = isinstance(file, str) and file.endswith(".avsc") and ".." not in file.split("/")
    if file is not None and (not inside or str(file).startswith("/")):
        raise UsageError(
            f"{path}: file in {where} is not an .avsc file below {path.parent}",
            fix='name it from there: file = "keys/order_key.avsc"',
        )
    demand = _demand(path, where, table, default)
    return replace(demand, file=None if file is None else posixpath.normpath(str(file)))


def _check_files(path: Path, subjects: Mapping[str, GovernanceTable]) -> None:
    """Raise UsageError if a mapped file is missing, or has two subjects."""
    owners: dict[str, str] = {}
    for subject, table in subjects.items():
        if table.file is None:
            continue
        if not (path.parent / table.file).is_file():
            raise UsageError(
                f"{path}: the file {table.file} of subject {subject} does not exist",
                fix=f'correct `file` in [subjects."{subject}"]',
            )
        other = owners.setdefault(table.file, subject)
        if other != subject:
            raise UsageError(
                f"{path}: {other} and {subject} both have the file {table.file}",
                fix="give each subject a file of its own",
            )


def _demand(path: Path, where: str, value: object, base: GovernanceTable) -> GovernanceTable:
    table = _table(path, where, value)
    _only(path, where, table, "compatibility", "policy", "waivers", "consumers")
    waivers = table.get("waivers", [])
    if not isinstance(waivers, list):
        raise UsageError(f"{path}: waivers in {where} must be a list")
    consumers = table.get("consumers", [])
    if not isinstance(consumers, list) or not all(isinstance(one, str) for one in consumers):
        raise UsageError(f"{path}: consumers in {where} must be a list of names")
    try:
        return GovernanceTable(
            Level.read(str(table.get("compatibility", base.level))),
            Policy.read(str(table["policy"])) if "policy" in table else base.policy,
            base.waivers + tuple(_waiver(path, where, waiver) for waiver in waivers),
            base.consumers + tuple(consumers),
        )
    except UsageError as error:
        raise UsageError(f"{path}: {where}: {error.message}", fix=error.fix) from None


def _waiver(path: Path, where: str, value: object) -> Waiver:
    table = _table(path, f"a waiver of {where}", value)
    _only(path, f"a waiver of {where}", table, "rule", "path", "reason", "until")
    rule, reason, until = table.get("rule"), table.get("reason"), table.get("until")
    field_path = table.get("path")
    if rule not in RULES and rule not in LINT_RULES:
        raise UsageError(f"a waiver names {rule!r}, which is no rule of compatibility or lint")
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"the waiver of {rule} needs a reason")
    if type(until) is not date:
        raise UsageError(f"the waiver of {rule} needs a last day: until = 2026-12-31")
    if not (field_path is None or isinstance(field_path, str)):
        raise UsageError(f"the path of the waiver of {rule} must be a string")
    return Waiver(str(rule), reason, until, field_path)


def _table(path: Path, where: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {where} must be a table")
    return cast(dict[str, object], value)


def _only(path: Path, where: str, table: Mapping[str, object], *known: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(
                f"{path}: {where or 'the file'} sets {key!r}, which means nothing",
                fix=f"use {', '.join(known)}",
            )
