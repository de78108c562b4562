"""The checks of the first page: is it well, and if not, what, since when, whose, and what to do.

Rules: pure. Each check has a level, says what is so in one sentence, and leads to the page where
somebody acts on it. A source that cannot be read is never well. Names that a reader may not see are
left out, and so are their troubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from statistics import median
from urllib.parse import quote

from headworks._console.sources.audits import AuditSnapshot
from headworks._console.sources.groups import GroupsSnapshot
from headworks._console.sources.loads import LoadsSnapshot
from headworks._console.sources.poller import SourceState
from headworks._console.sources.subjects import SubjectsSnapshot
from headworks._console.views.groups import GroupLine, group_lines
from headworks._console.views.visibility import CanSee

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_OLD_AFTER_SECONDS = 90.0  # idle sources are read once a minute
_SILENT_AFTER_MS = 3 * _MINUTE_MS  # the reconciler checks every 30 seconds
_MISSED_LOADS = 3
_MIN_LOADS = 3
_MAX_LOADS = 10
_MIN_LATE_MS = 10 * _MINUTE_MS
_MAX_NAMES = 3
_LITTLE_DISK, _NO_DISK = 0.10, 0.03  # shares of the warehouse's disk


class CheckLevel(StrEnum):
    """How well something is."""

    GOOD = "good"
    UNKNOWN = "unknown"
    WARN = "warn"
    BAD = "bad"


_TROUBLE = (CheckLevel.BAD, CheckLevel.WARN)
_QUIET_KINDS = ("quiet", "abandoned", "silent", "vanished", "volume")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One line of the first page: a name, a level, a sentence, and the page to act on."""

    name: str
    level: CheckLevel
    says: str
    link: str


def source_check(state: SourceState, link: str, *, hangs_after: float) -> HealthCheck:
    """Return the check of a server: it answers, it is away, or it hangs.

    It hangs if a read has taken `hangs_after` seconds without an end.
    """
    age = state.age_seconds
    if state.problem is not None:
        return HealthCheck(state.name, CheckLevel.BAD, state.problem, link)
    if state.reading_seconds is not None and state.reading_seconds > hangs_after:
        last = "never answered" if age is None else f"last answered {age:.0f} s ago"
        says = f"no answer for {state.reading_seconds:.0f} s; it {last}"
        return HealthCheck(state.name, CheckLevel.BAD, says, link)
    if age is None:
        return HealthCheck(state.name, CheckLevel.UNKNOWN, "not read yet", link)
    if age > _OLD_AFTER_SECONDS:
        return HealthCheck(state.name, CheckLevel.UNKNOWN, f"last read {age:.0f} s ago", link)
    # No age in seconds: the page would change, and be sent again, at every look.
    return HealthCheck(state.name, CheckLevel.GOOD, "it answers", link)


@dataclass(frozen=True, slots=True)
class WorstTopic:
    """The topic that misses most of what is due, its owner, and its first window that does."""

    topic: str
    owner: str | None
    since_ms: int


def messages_check(well: bool, sentence: str, worst: WorstTopic | None) -> HealthCheck:
    """Return whether the messages that are due arrived, and where to look if they did not."""
    if well:
        return HealthCheck("messages", CheckLevel.GOOD, sentence, "/audit")
    if worst is None:
        return HealthCheck("messages", CheckLevel.BAD, sentence, "/audit")
    owner = f" (owner {worst.owner})" if worst.owner else ""
    where = f" The worst topic is {worst.topic}{owner}, since {_utc(worst.since_ms)}."
    link = f"/audit/{quote(worst.topic, safe='')}/windows"
    return HealthCheck("messages", CheckLevel.BAD, sentence + where, link)


def topic_owner(
    topic: str | None, subjects: SubjectsSnapshot | None, can_see: CanSee
) -> str | None:
    """Return the owner of a topic's schema, if the reader may see it."""
    subject = subjects.of_topic(topic) if subjects and topic else None
    return subject.owner if subject and can_see.subject(subject.subject) else None


def producers_check(
    audit: AuditSnapshot | None, subjects: SubjectsSnapshot | None, can_see: CanSee
) -> HealthCheck | None:
    """Return the producers and topics that have gone quiet, or None if there are none."""
    quiet = [
        one
        for one in (audit.findings if audit else ())
        if one.kind in _QUIET_KINDS and can_see.topic(one.topic or "")
    ]
    if not quiet:
        return None
    more = f"; and {len(quiet) - 1:,} more below" if len(quiet) > 1 else ""
    owner = topic_owner(quiet[0].topic, subjects, can_see)
    whose = f" (owner {owner})" if owner else ""
    return HealthCheck("producers", CheckLevel.WARN, quiet[0].text + whose + more, "/#findings")


def verdict(checks: Sequence[HealthCheck]) -> str:
    """Return whether all is well, or the names of what is not."""
    if not checks or all(one.level is CheckLevel.UNKNOWN for one in checks):
        return "Everything is being read."
    unwell = [one.name for one in worst_first(checks) if one.level in _TROUBLE]
    return f"Look at: {', '.join(unwell)}." if unwell else "All is well."


def reconciler_check(audit: AuditSnapshot | None, now_ms: int) -> HealthCheck:
    """Return whether a reconciler keeps the audit."""
    name, link = "reconciler", "/audit"
    if audit is None:
        return HealthCheck(name, CheckLevel.UNKNOWN, "the audit store has not been read yet", link)
    if audit.checked_at is None:
        says = "no reconciler keeps the audit: start `headworks audit run`"
        return HealthCheck(name, CheckLevel.WARN, says, link)
    age = now_ms - audit.checked_at
    if age > _SILENT_AFTER_MS:
        says = f"it last checked {_duration(age)} ago: the figures are old; see its log"
        return HealthCheck(name, CheckLevel.BAD, says, link)
    return HealthCheck(name, CheckLevel.GOOD, "it keeps the audit up to date", link)


def loads_check(loads: LoadsSnapshot | None, now_ms: int) -> HealthCheck:
    """Return whether loads come as they used to."""
    name, link = "loads", "/loads"
    runs = loads.runs if loads else ()
    if not runs:
        return HealthCheck(name, CheckLevel.UNKNOWN, "nothing has been loaded yet", link)
    last = runs[0]
    age = now_ms - last.created_ms
    ago = f"load {last.number} was {_duration(age)} ago"
    gaps = [newer.created_ms - older.created_ms for newer, older in pairwise(runs[:_MAX_LOADS])]
    if len(runs) < _MIN_LOADS:
        return HealthCheck(name, CheckLevel.GOOD, ago, link)
    usual = median(gaps)
    said = f"{ago}, and they come every {_duration(usual)}"
    late = age > max(_MISSED_LOADS * usual, _MIN_LATE_MS)
    if late:
        says = f"{said}: look at the loader, `headworks load status`"
        return HealthCheck(name, CheckLevel.BAD, says, link)
    return HealthCheck(name, CheckLevel.GOOD, said, link)


def topics_check(
    loads: LoadsSnapshot | None, subjects: SubjectsSnapshot | None, can_see: CanSee
) -> HealthCheck | None:
    """Return the topics that the last load skipped, or None if it skipped none."""
    if loads is None:
        return None
    refused = [topic for topic in loads.refused if can_see.topic(topic)]
    ungoverned = [topic for topic in loads.ungoverned if can_see.topic(topic)]
    told = []
    if refused:
        told.append(f"{_owned(refused, subjects, can_see)} refused by the last load")
    if ungoverned:
        told.append(f"{_owned(ungoverned, subjects, can_see)} without a schema, and not loaded")
    if not told:
        return None
    level = CheckLevel.BAD if refused else CheckLevel.WARN
    return HealthCheck("topics", level, "; ".join(told), "/topics")


def groups_check(groups: GroupsSnapshot | None, can_see: CanSee) -> HealthCheck:
    """Return the consumer groups that are not well."""
    name, link = "groups", "/groups"
    lines = group_lines(groups, can_see)
    unwell = {
        state: sorted((one for one in lines if one.state == state), key=lambda one: one.since.at_ms)
        for state in ("stopped", "stalled", "falling behind", "rewound")
    }
    told = [f"{state}: {_groups_since(some)}" for state, some in unwell.items() if some]
    if told:
        bad = unwell["stopped"] or unwell["stalled"]
        level = CheckLevel.BAD if bad else CheckLevel.WARN
        return HealthCheck(name, level, "; ".join(told), link)
    level = CheckLevel.UNKNOWN if groups is None else CheckLevel.GOOD
    return HealthCheck(
        name, level, f"{len(lines):,} group{'s' * (len(lines) != 1)}, none in trouble", link
    )


def quarantine_check(
    loads: LoadsSnapshot | None, subjects: SubjectsSnapshot | None, can_see: CanSee, now_ms: int
) -> HealthCheck:
    """Return whether messages were quarantined in the last day."""
    name, link = "quarantine", "/quarantine"
    tables = [one for one in (loads.by_topic.values() if loads else ()) if can_see.topic(one.topic)]
    kept = sum(table.quarantined for table in tables)
    fresh = [
        run
        for run in (loads.runs if loads else ())
        if run.quarantined
        and run.created_ms > now_ms - _DAY_MS
        and all(can_see.topic(topic) for topic in run.topics)
    ]
    if fresh:
        loaded = {topic for run in fresh for topic in run.topics}
        topics = sorted(one.topic for one in tables if one.quarantined and one.topic in loaded)
        count = sum(run.quarantined for run in fresh)
        since = _utc(min(run.created_ms for run in fresh))
        says = (
            f"{count:,} messages in the last day, since {since}: "
            f"{_owned(topics, subjects, can_see)} affected"
        )
        return HealthCheck(name, CheckLevel.WARN, says, link)
    return HealthCheck(name, CheckLevel.GOOD, f"nothing new; {kept:,} messages in all", link)


def disk_check(loads: LoadsSnapshot | None) -> HealthCheck | None:
    """Return whether the warehouse's disk has space, if it is a disk of this machine."""
    if loads is None or loads.free_share is None:
        return None
    share = loads.free_share
    level = (
        CheckLevel.BAD
        if share < _NO_DISK
        else CheckLevel.WARN
        if share < _LITTLE_DISK
        else CheckLevel.GOOD
    )
    return HealthCheck("disk", level, f"{share:.0%} of the warehouse's disk is free", "/loads")


def is_well(checks: Sequence[HealthCheck]) -> bool:
    """Return whether no check has found trouble."""
    return not any(one.level in _TROUBLE for one in checks)


def worst_first(checks: Sequence[HealthCheck]) -> tuple[HealthCheck, ...]:
    """Return the checks, those with trouble first."""
    order = [CheckLevel.BAD, CheckLevel.WARN, CheckLevel.UNKNOWN, CheckLevel.GOOD]
    return tuple(sorted(checks, key=lambda one: order.index(one.level)))


def _owned(names: Sequence[str], subjects: SubjectsSnapshot | None, can_see: CanSee) -> str:
    """Return the names of some topics with their owners, and the verb."""
    owners = {name: topic_owner(name, subjects, can_see) for name in names[:_MAX_NAMES]}
    shown = ", ".join(
        f"{name} (owner {owner})" if owner else name for name, owner in owners.items()
    )
    more = len(names) - _MAX_NAMES
    verb = "is" if len(names) == 1 else "are"
    return f"{shown}{f' and {more} more' if more > 0 else ''} {verb}"


def _groups_since(lines: Sequence[GroupLine]) -> str:
    shown = [
        f"{one.name} since {_utc(one.since.at_ms)}{' or earlier' * one.since.earlier}"
        for one in lines[:_MAX_NAMES]
    ]
    more = len(lines) - _MAX_NAMES
    return ", ".join([*shown, f"and {more} more"] if more > 0 else shown)


def _utc(milliseconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # beyond the calendar of Python
        return f"{milliseconds} ms"


def _duration(milliseconds: float) -> str:
    seconds = max(0.0, milliseconds / 1000)
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
