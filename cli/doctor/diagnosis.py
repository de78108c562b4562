"""The result of one check.

Rules: a finding that is not OK names its fix. A check never raises for what it looks for, and
changes nothing that stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Nothing to do, something that some users will miss, or a failure to come."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the answer: the subject, what was found, and the fix."""

    subject: str
    severity: Severity
    text: str
    fix: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Return the line as a JSON object."""
        return {
            "subject": self.subject,
            "severity": self.severity.value,
            "text": self.text,
            "fix": self.fix,
        }


def ok(subject: str, text: str) -> Diagnosis:
    """Return a finding with nothing to do."""
    return Diagnosis(subject, Severity.OK, text)


def note(subject: str, text: str, fix: str) -> Diagnosis:
    """Return a finding about something that some users need."""
    return Diagnosis(subject, Severity.NOTE, text, fix)


def problem(subject: str, text: str, fix: str) -> Diagnosis:
    """Return a finding about something that will fail."""
    return Diagnosis(subject, Severity.PROBLEM, text, fix)


def problems(findings: Iterable[Diagnosis]) -> int:
    """Return how many findings are problems."""
    return sum(found.severity is Severity.PROBLEM for found in findings)
