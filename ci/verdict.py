"""The results of the gate, as frozen values: located findings, and the impact of a change.

Rule: only `report` and `formats` turn them into text.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headworks._ci.governance import Waiver
from headworks._ci.source_map import Region
from headworks.compatibility import Finding

__all__ = ["DownstreamConsumer", "Impact", "LocatedFinding", "SubjectVerdict", "Verdict"]


@dataclass(frozen=True, slots=True)
class DownstreamConsumer:
    """A consumer of a topic: its name, and the source of it (`governance.toml`, a broker)."""

    name: str
    known_from: str


@dataclass(frozen=True, slots=True)
class Impact:
    """The impact of a change downstream, once it is registered and loaded."""

    table: str
    ddl: tuple[str, ...] = ()  # statements for the table over the topic's files
    note: str | None = None  # why there are none, or what they leave out
    owner: str | None = None
    consumers: tuple[DownstreamConsumer, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the impact as JSON."""
        return {
            **asdict(self),
            "ddl": list(self.ddl),
            "consumers": [asdict(c) for c in self.consumers],
        }


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding with its region in a file of the catalog, and the compared version."""

    finding: Finding
    subject: str | None
    file: str
    region: Region
    lines: tuple[str, ...] = ()
    against: str | None = None
    waiver: Waiver | None = None
    # A waiver that covered the finding and has expired.
    expired: Waiver | None = None
    # The region to underline: the name, if the finding is about a whole field or type.
    mark: Region | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the finding as JSON."""
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
    """The verdict on one file, or on a subject whose file was deleted."""

    subject: str | None
    file: str
    findings: tuple[LocatedFinding, ...] = ()
    notes: tuple[str, ...] = ()
    impact: Impact | None = None
    changed: bool = True

    @property
    def refused(self) -> bool:
        """Whether there is a finding that is not waived."""
        return any(one.waiver is None for one in self.findings)

    @property
    def verdict(self) -> str:
        """pass or refused."""
        return "refused" if self.refused else "pass"

    def as_dict(self) -> dict[str, object]:
        """Return the verdict as JSON."""
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
    """The verdict on the whole catalog."""

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
        """Return the verdict as JSON, as `--format json` prints it."""
        return {
            "verdict": self.verdict,
            "against": list(self.against),
            "subjects": [one.as_dict() for one in self.subjects],
            "findings": [one.as_dict() for one in self.findings],
        }
