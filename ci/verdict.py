"""What the gate answers, as frozen values: findings at their places, and what a change leads to.

Only `report` and `machine` make text of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headworks._ci.governance import Waiver
from headworks._ci.source_map import Region
from headworks.compatibility import Finding

__all__ = ["DownstreamConsumer", "Impact", "LocatedFinding", "SubjectVerdict", "Verdict"]


@dataclass(frozen=True, slots=True)
class DownstreamConsumer:
    """Somebody who reads a topic: a name, and how we know (`governance.toml`, a broker)."""

    name: str
    known_from: str


@dataclass(frozen=True, slots=True)
class Impact:
    """What a change does downstream, once it is registered and loaded.

    `ddl` are the statements for the table over the topic's files; `note` says why there are none
    where a change has none, or what they do not say.
    """

    table: str
    ddl: tuple[str, ...] = ()
    note: str | None = None
    owner: str | None = None
    consumers: tuple[DownstreamConsumer, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The impact as JSON."""
        return {
            **asdict(self),
            "ddl": list(self.ddl),
            "consumers": [asdict(c) for c in self.consumers],
        }


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding at its place in a file of the catalogue, and what it was held against."""

    finding: Finding
    subject: str | None
    file: str
    region: Region
    lines: tuple[str, ...] = ()
    against: str | None = None
    waiver: Waiver | None = None
    # A waiver that covered the finding until its last day, which is over.
    expired: Waiver | None = None
    # What to underline: the name of the field or type, where the finding is about all of it.
    mark: Region | None = None

    def as_dict(self) -> dict[str, object]:
        """The finding as JSON."""
        return {
            **self.finding.as_dict(),
            "subject": self.subject,
            "file": self.file,
            "line": self.region.line,
            "column": self.region.column,
            "end_line": self.region.end_line,
            "end_column": self.region.end_column,
            "against": self.against,
            "waived": None if self.waiver is None else self.waiver.reason,
            "expired": None if self.expired is None else self.expired.until.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class SubjectVerdict:
    """What came of one file (or of a subject whose file is gone)."""

    subject: str | None
    file: str
    findings: tuple[LocatedFinding, ...] = ()
    notes: tuple[str, ...] = ()
    impact: Impact | None = None
    changed: bool = True

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
            "changed": self.changed,
            "notes": list(self.notes),
            "impact": None if self.impact is None else self.impact.as_dict(),
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
    def findings(self) -> tuple[LocatedFinding, ...]:
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
