"""Try a change: an unregistered schema, the verdict on it, and its consequences.

Rules: the gate gives the verdict (`ci.gate`), so a change that passes here passes there. Nothing is
registered. The schema is compared with the chosen subject, or with the one that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headworks._ci.baselines import RegistryBaseline
from headworks._ci.gate import check_text, named_subject
from headworks._ci.governance import GovernanceFile
from headworks._ci.report import grouped
from headworks._ci.rules import title_of
from headworks._ci.verdict import DownstreamConsumer, Impact, LocatedFinding, SubjectVerdict
from headworks._console.views.schema import SchemaChange, changes_between
from headworks.compatibility import RULES
from headworks.errors import HeadworksError, UsageError
from headworks.registry_client import RegistryClient
from headworks.schema import parse


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """A finding: the break, its place in the text (lines from 1), and the fix.

    `versions` are the registered ones that it concerns, and `policy` is the one that has the rule.
    """

    rule: str
    title: str
    message: str
    fix: str
    path: str
    line: int
    column: int
    lines: tuple[str, ...]
    versions: tuple[int, ...]
    policy: str | None


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result for a text. `verdict`: pass, refused, or None before the first trial."""

    text: str
    subject: str | None
    verdict: str | None
    notes: tuple[str, ...] = ()
    reasons: tuple[TrialFinding, ...] = ()
    advice: tuple[TrialFinding, ...] = ()
    changes: tuple[SchemaChange, ...] = ()
    impact: Impact | None = None
    changed: bool = True
    warnings: tuple[TrialFinding, ...] = ()  # findings of a stricter policy


def try_change(
    text: str,
    client: RegistryClient,
    *,
    governance: GovernanceFile,
    readers_of: Callable[[str], Sequence[DownstreamConsumer]],
    subject: str | None,
    beside: Mapping[str, str],
    sees: Callable[[str], bool],
) -> TrialResult:
    """Check a text against the registry. Raises UnreachableError.

    `subject` None: the subject that the text names, if it is visible.
    """
    named = subject or named_subject(text, beside)
    if named is not None and not sees(named):
        raise UsageError(
            f"the schema is for {named}, which you may not read",
            fix="ask whoever keeps the file of grants",
        )
    verdict, lint = check_text(
        text,
        RegistryBaseline(client),
        governance=governance,
        readers_of=readers_of,
        subject=subject,
        beside=beside,
    )
    return TrialResult(
        text,
        verdict.subject or subject,
        verdict.verdict,
        verdict.notes,
        _reasons(verdict),
        # An unreadable schema is reported once.
        _reasons(lint) if verdict.subject is not None else (),
        _changes(verdict.subject, text, client, beside),
        verdict.impact,
        verdict.changed,
        tuple(map(_reason, grouped(verdict.warnings))),
    )


def _reasons(verdict: SubjectVerdict) -> tuple[TrialFinding, ...]:
    return tuple(_reason(group) for group in grouped(verdict.findings))


def _reason(group: Sequence[LocatedFinding]) -> TrialFinding:
    first, finding = group[0], group[0].finding
    versions = {one.finding.writer_version or one.finding.reader_version for one in group}
    rule = RULES.get(finding.rule)
    return TrialFinding(
        finding.rule,
        title_of(finding.rule),
        finding.message,
        finding.fix,
        finding.path,
        first.region.line,
        first.region.column,
        first.lines[:8],
        tuple(sorted(number for number in versions if number is not None)),
        None if rule is None else str(rule.policy),
    )


def _changes(
    subject: str | None, text: str, client: RegistryClient, beside: Mapping[str, str]
) -> tuple[SchemaChange, ...]:
    """Return the changes to the latest version, or nothing if one of the two is not a schema."""
    latest = client.latest(subject) if subject is not None else None
    if latest is None or beside:
        return ()
    try:
        return tuple(changes_between(parse(latest.text, strict=False), parse(text)))
    except HeadworksError:
        return ()
