"""The users who would break by a change: usage as evidence about the findings of the gate.

Rules:

- Only readers that run can break by new data: a finding with a `reader_version` may
  pass by evidence, and so may a deleted file. Data that was written stays, in topics and tables, so
  a finding about a new reader never passes.
- Nothing passes unless everything is known. A reader that nobody can see into blocks it. So
  does one that reads dicts, a program that does not count by schema, and evidence that is too
  short or too old.
- Evidence adds to a verdict, and never makes it stricter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headworks._audit.usage import LOADER, TO_BE_KNOWN, SubjectUsage, VersionUser
from headworks._ci.governance import EvidenceRule
from headworks.compatibility import Finding

DAY_MS = 86_400_000
_MAX_STALE_MS = 3_600_000  # the age of a store that counts as up to date
_MAX_NAMED = 5

# Returns the usage of a subject, or None if it has none.
AskUsage = Callable[[str], SubjectUsage | None]


@dataclass(frozen=True, slots=True)
class UsageEvidence:
    """The evidence about the users who would break by one finding.

    `breaks` names them with their last use. `blocked_by` says why the finding stands; it passes if
    that is empty. `since` and `as_of` are the span of the counts, in ms since 1970 UTC.
    """

    breaks: tuple[str, ...]
    blocked_by: tuple[str, ...]
    since: int | None
    as_of: int

    @property
    def allows(self) -> bool:
        """Whether nobody would break."""
        return not self.blocked_by

    @property
    def text(self) -> str:
        """The evidence in one sentence or more."""
        if self.allows:
            span = f"{day_of(self.since or 0)} to {day_of(self.as_of)}"
            return f"nobody uses it: every use was counted from {span}"
        told = ["who would break: " + "; ".join(self.breaks)] if self.breaks else []
        return ". ".join([*told, "it cannot pass by evidence: " + "; ".join(self.blocked_by)])

    def as_dict(self) -> dict[str, Any]:
        """Return the evidence as JSON."""
        return {
            "allows": self.allows,
            "breaks": list(self.breaks),
            "blocked_by": list(self.blocked_by),
            "since": None if self.since is None else _instant(self.since),
            "as_of": _instant(self.as_of),
        }


def evidence_of(
    finding: Finding,
    usage: SubjectUsage,
    fingerprints: Mapping[int, str],
    rule: EvidenceRule,
    now: int,
) -> UsageEvidence | None:
    """Return the evidence about a finding at `now` (ms since 1970); None if it concerns no user.

    `fingerprints` are those of the versions that the schema was compared with, by number. The
    numbers may be others than those of the registry.
    """
    after = now - rule.unused_days * DAY_MS
    blocked: list[str] = []
    if finding.rule == "HW302":
        users = [
            (f"version {version.version}", user)
            for version in usage.versions
            for user in (*version.written_by, *version.read_by)
            if user.tier != LOADER  # it only reads what others write
        ]
        users += [("another schema", user) for user in usage.other_writers]
    elif finding.reader_version is not None:
        users = [
            (f"version {version.version}", user)
            for version in usage.found(fingerprints[finding.reader_version])
            for user in version.read_by
            if user.group is not None  # the loader always reads with the latest version
        ]
        blocked += _named(_not_compared(usage, set(fingerprints.values()), after))
    else:
        return None
    recent = [f"{user.name} uses {what}" for what, user in users if user.last_used > after]
    blocked = [*_named(recent), *blocked, *_unseen(usage, rule, now, after)]
    breaks = tuple(_named(_last_use(what, user) for what, user in users))
    return UsageEvidence(breaks, tuple(blocked), usage.since, usage.as_of)


def _not_compared(usage: SubjectUsage, compared: set[str], after: int) -> Iterator[str]:
    """Yield the versions in use that the schema was not compared with: they may break, too."""
    for version in usage.versions:
        readers = [user for user in version.read_by if user.group and user.last_used > after]
        if readers and version.fingerprint not in compared:
            yield f"{readers[0].name} uses version {version.version}, which was not compared"


def _unseen(usage: SubjectUsage, rule: EvidenceRule, now: int, after: int) -> Iterator[str]:
    """Yield what is not known, and could be a user."""
    if usage.since is None:
        yield "nobody has counted its messages by schema"
    elif usage.since > now - (needed := max(rule.evidence_days, rule.unused_days)) * DAY_MS:
        days = (now - usage.since) // DAY_MS
        yield f"every use was counted for {days} days only, and {needed} are needed"
    if usage.as_of < now - _MAX_STALE_MS:
        yield f"the audit's store is as of {_instant(usage.as_of)}: start `headworks audit run`"
    if usage.unknown_readers is None:
        yield "no broker was asked for readers that report nothing"
    elif usage.unknown_readers:
        names = ", ".join(_named(usage.unknown_readers))
        yield f"unknown readers commit offsets and report nothing: {names} ({TO_BE_KNOWN})"
    for what, users in (
        ("reads dicts, so that nobody knows its fields", usage.dict_readers),
        ("reads with a schema that is not registered", usage.unregistered_readers),
    ):
        recent = [user for user in users if user.last_used > after]
        yield from _named(f"{user.name} {what}" for user in recent)
    silent = [user for user in usage.uncounted if user.last_used > after]
    yield from _named(f"{user.name or user.tier} does not count by schema" for user in silent)


def _last_use(what: str, user: VersionUser) -> str:
    verb = "reads with" if user.group is not None else "uses"
    hosts = f" on {', '.join(user.hosts[:_MAX_NAMED])}" if user.hosts else ""
    return f"{user.name} {verb} {what}{hosts}, last at {_instant(user.last_used)}"


def _named(found: Iterable[str]) -> list[str]:
    """Return the first of some names, and how many more there are."""
    names = list(found)
    more = len(names) - _MAX_NAMED
    return [*names[:_MAX_NAMED], f"and {more} more"] if more > 0 else names


def day_of(at: int) -> str:
    """Return the day of a time in ms since 1970 UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at // 1000, UTC).isoformat().replace("+00:00", "Z")
