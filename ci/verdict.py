"""The results of the gate, as frozen values: located findings, and the impact of a change.

Rule: only `report` and `formats` turn them into text.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headworks._ci.governance import Waiver
from headworks._ci.source_map import Region
from headworks._ci.usage import UsageEvidence
from headworks.compatibility import RULES, Finding, Policy


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
    # The change passes, and a stricter policy would refuse it.
    is_warning: bool = False
    # Users that would break, and whether it passes because nobody would. None: nothing is known.
    usage: UsageEvidence | None = None

    @property
    def refuses(self) -> bool:
        """Whether the change is refused: no warning, waiver, or unused version excuses it."""
        return self.severity == "error"

    @property
    def severity(self) -> str:
        """error, warning, waived, or unused."""
        if self.waiver is not None:
            return "waived"
        if self.usage is not None and self.usage.allows:
            return "unused"
        return "warning" if self.is_warning else "error"

    @property
    def policy(self) -> Policy | None:
        """The laxest policy that has its rule; None for rules of the gate."""
        rule = RULES.get(self.finding.rule)
        return None if rule is None else rule.policy

    def as_dict(self) -> dict[str, object]:
        """Return the finding as JSON."""
        return {
            **self.finding.as_dict(),
            "severity": self.severity,
            "policy": None if self.policy is None else self.policy.value,
            "subject": self.subject,
            "file": self.file,
            "line": self.region.line,
            "column": self.region.column,
            "end_line": self.region.end_line,
            "end_column": self.region.end_column,
            "against": self.against,
            "waived": None if self.waiver is None else self.waiver.reason,
            "expired": None if self.expired is None else self.expired.until.isoformat(),
            "usage": None if self.usage is None else self.usage.as_dict(),
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
    # The findings of a stricter policy on a change that passes.
    warnings: tuple[LocatedFinding, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether there is a finding that is neither waived nor about the unused."""
        return any(one.refuses for one in self.findings)

    @property
    def reported(self) -> tuple[LocatedFinding, ...]:
        """The findings, and the warnings after them."""
        return (*self.findings, *self.warnings)

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
            "warnings": [one.as_dict() for one in self.warnings],
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

    @property
    def warnings(self) -> tuple[LocatedFinding, ...]:
        """The warnings of all subjects, in order."""
        return tuple(one for subject in self.subjects for one in subject.warnings)

    @property
    def reported(self) -> tuple[LocatedFinding, ...]:
        """The findings and warnings of all subjects, in order."""
        return tuple(one for subject in self.subjects for one in subject.reported)

    def as_dict(self) -> dict[str, object]:
        """Return the verdict as JSON, as `--format json` prints it."""
        return {
            "verdict": self.verdict,
            "against": list(self.against),
            "subjects": [one.as_dict() for one in self.subjects],
            "findings": [one.as_dict() for one in self.findings],
            "warnings": [one.as_dict() for one in self.warnings],
        }
