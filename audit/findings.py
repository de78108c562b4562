"""Findings from the store: windows below the SLA, silent tiers, clocks, and unmatched topics.

Rules:

- Reads only. The same store and the same `now` give the same findings in the same order.
- A window is judged `complete_within_ms` after its end, and two minutes after its last count, as
  on the pages of the console. Lost and dropped messages need no such two minutes.
- Each state of `states` has findings of its own. Messages that may still arrive are `overdue`, and
  never lost.
- A tier is judged on topics that it ever counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select

from headworks._audit import queries
from headworks._audit.quiet import quiet_topics, vanished_processes
from headworks._audit.results import TierSource, TierState
from headworks._audit.sql import LOADER_TIER, WindowBounds
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit.sums import Breach, Judgment, breaches_in, duplicates_in
from headworks._audit.thresholds import Thresholds
from headworks._audit.volumes import unusual_volumes
from headworks._audit_counting import WINDOW_MS
from headworks._kafka.retry_topics import is_retry_topic

_MAX_AGE_MS = 86_400_000
_MAX_LIKELY = 3
_MAX_EXPLAINED = 20  # topics with a surplus whose likely reason is looked for
_OF_PRODUCERS = ("dropped", "failed", "unresolved")
_OF_TIER = ("lost", "waiting", "surplus")
WINDOW_KINDS = (*_OF_PRODUCERS, "lost", "overdue", "surplus", "duplicated")
"""The kinds of findings that concern windows of a topic."""

KINDS = (
    *WINDOW_KINDS,
    *("silent", "quiet", "vanished", "volume", "abandoned", "skewed"),
    *("unknown", "unreferenced", "holes"),
)
"""All kinds of findings."""

_BREACHES = {
    "dropped": "producers dropped {n} of {of} messages",
    "failed": "producers gave up {n} of {of} messages with an error",
    "unresolved": "{n} of {of} messages have no known outcome; start a producer with the same "
    "state folder, which reports those of a killed one",
    "lost": "{n} of {of} messages are lost",
    "overdue": "{n} of {of} messages still wait to be read there; check that the tier runs",
    "surplus": "{n} more messages than producers reported ({of}); a producer was killed before it "
    "reported, or a client that does not count wrote them",
    "duplicated": "{n} messages are duplicated, by the offsets of the loads",
}


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One problem; `key` stays the same as long as the problem lasts."""

    kind: str
    key: str
    tier: str
    topic: str | None
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def findings(store: AuditStore, now: int, thresholds: Thresholds) -> list[AuditFinding]:
    """Return all findings at `now`, by kind, tier, and topic."""
    tiers = sorted(state.tier for state in queries.tiers(store))
    breaches = _breaches(store, now, thresholds, [t for t in tiers if t != PRODUCER_TIER])
    found = [*breaches, *general_findings(store, now, thresholds)]
    return sorted(found, key=lambda finding: (finding.kind, finding.key))


def general_findings(store: AuditStore, now: int, thresholds: Thresholds) -> list[AuditFinding]:
    """Return the findings at `now` that concern no window; cheap for any number of windows."""
    states = {state.tier: state for state in queries.tiers(store)}
    found = [
        *_silent_tiers(states, now, thresholds),
        *_source_findings(queries.sources(store), now, thresholds),
        *_quiet_topics(store, now, thresholds),
        *_vanished_processes(store, now, thresholds),
        *_unusual_volumes(store, now),
        *_unmatched_topics(store, now, thresholds),
        *_holes(store),
    ]
    return sorted(found, key=lambda finding: (finding.kind, finding.key))


def _breaches(
    store: AuditStore, now: int, thresholds: Thresholds, tiers: list[str]
) -> Iterator[AuditFinding]:
    judgment = Judgment(
        since=now - _MAX_AGE_MS,
        ended=now - thresholds.complete_within_ms,
        heard_before=now - queries.SETTLED_MS,
        waiting_since=now - thresholds.complete_within_ms,
        share=thresholds.sla,
    )
    with store.read() as connection:
        # The loader's tier also says which failed and unresolved messages arrived all the same.
        for row in breaches_in(connection, LOADER_TIER, _OF_PRODUCERS, judgment):
            yield _breach(row, PRODUCER_TIER)
        for tier in tiers:
            reads = _topics_of(connection, tier)
            rows = breaches_in(connection, tier, _OF_TIER, judgment)
            over = [row.topic for row in rows if row.state == "surplus"]
            bounds = WindowBounds(judgment.since)
            proven = duplicates_in(connection, tier, bounds) if over else {}
            explained = set(over[:_MAX_EXPLAINED])
            for row in rows:
                if row.topic in reads or (tier == LOADER_TIER and row.state == "lost"):
                    twice = min(row.messages, proven.get(row.topic, 0))
                    yield from _surplus_or_breach(
                        connection if row.topic in explained else None, row, tier, twice
                    )


def _topics_of(connection: Connection, tier: str) -> set[str]:
    t = tables.topics.c
    return set(connection.scalars(select(t.topic).where(t.tier == tier)))


def _surplus_or_breach(
    connection: Connection | None, row: Breach, tier: str, proven: int
) -> Iterator[AuditFinding]:
    """Yield a breach, and the `proven` duplicates of a surplus apart from the rest.

    With a connection, it says which producers are the likely reason of a surplus.
    """
    if row.state != "surplus":
        yield _breach(row, tier)
        return
    if proven:
        yield _breach(replace(row, state="duplicated", messages=proven), tier)
    if row.messages > proven:
        found = _breach(replace(row, messages=row.messages - proven), tier)
        likely = "" if connection is None else _likely_sources(connection, row)
        yield replace(found, text=found.text + likely)


def _likely_sources(connection: Connection, row: Breach) -> str:
    """Return the producers of a topic's first window with a surplus that report no more."""
    i, n, s = tables.increments.c, tables.names.alias, tables.sources.c
    topic, tier, host, application = (n() for _ in range(4))
    rows = connection.execute(
        select(host.c.name, application.c.name, s.last_sent)
        .distinct()
        .select_from(tables.increments)
        .join(topic, topic.c.id == i.topic)
        .join(tier, tier.c.id == i.tier)
        .join(host, host.c.id == i.host)
        .join(application, application.c.id == i.application)
        .join(
            tables.sources,
            (s.tier == PRODUCER_TIER)
            & (s.host == host.c.name)
            & (s.application == application.c.name),
        )
        .where(
            topic.c.name == row.topic,
            tier.c.name == PRODUCER_TIER,
            i.window_start == row.first_window,
            s.last_sent < row.first_window + WINDOW_MS,
        )
        .order_by(s.last_sent)
        .limit(_MAX_LIKELY)
    ).all()
    told = [f"{a} on {h}, which last reported at {_iso_time(at)}" for h, a, at in rows]
    return f"; likely {' or '.join(told)}" if told else ""


def _breach(row: Breach, tier: str) -> AuditFinding:
    kind = "overdue" if row.state == "waiting" else row.state
    where = row.topic if tier == PRODUCER_TIER else f"{row.topic} at {tier}"
    found = _BREACHES[kind].format(n=f"{row.messages:,}", of=f"{row.attempted:,}")
    windows = f"{row.windows} window{'s' * (row.windows != 1)}"
    text = f"{where}: {found}; {windows}, the first from {_iso_time(row.first_window)}"
    return _finding(kind, (tier, row.topic), row.topic, text)


def _silent_tiers(
    states: dict[str, TierState], now: int, thresholds: Thresholds
) -> Iterator[AuditFinding]:
    sending = states[PRODUCER_TIER].last_sent if PRODUCER_TIER in states else 0
    for tier, state in states.items():
        quiet = now - state.last_sent > thresholds.silent_after_ms
        if tier != PRODUCER_TIER and quiet and sending > state.last_sent:
            yield _finding(
                "silent",
                (tier,),
                None,
                f"{tier} has counted nothing since {_iso_time(state.last_sent)}, "
                f"and producers counted until {_iso_time(sending)}",
            )


def _quiet_topics(store: AuditStore, now: int, thresholds: Thresholds) -> Iterator[AuditFinding]:
    for one in quiet_topics(store, now, thresholds.silent_after_ms):
        yield _finding(
            "quiet",
            (PRODUCER_TIER, one.topic),
            one.topic,
            f"{one.topic}: producers counted messages in {one.busy} of the {one.windows} windows "
            f"up to {_iso_time(one.last_window + WINDOW_MS)}, and none since: see whether they run",
        )


def _vanished_processes(
    store: AuditStore, now: int, thresholds: Thresholds
) -> Iterator[AuditFinding]:
    for one in vanished_processes(store, now, thresholds.silent_after_ms):
        several = one.processes > 1
        at = f"between {_iso_time(one.first_gone)} and " if several else ""
        yield _finding(
            "vanished",
            (one.tier, one.host, one.application),
            None,
            f"{one.processes:,} process{'es' * several} of {one.application} on {one.host} sent "
            f"the last heartbeat {at or 'at '}{_iso_time(one.last_gone)}, did not close, and has "
            "no successor; start one there with the same state folder: it publishes the rest",
        )


def _unusual_volumes(store: AuditStore, now: int) -> Iterator[AuditFinding]:
    for topic, one in unusual_volumes(store, now).items():
        share = (one.counted - one.usual) / one.usual
        yield _finding(
            "volume",
            (PRODUCER_TIER, topic),
            topic,
            f"{topic}: producers counted {one.counted:,} messages in the ten minutes from "
            f"{_iso_time(one.window_start)}, and {one.usual:,.0f} are usual then, which is "
            f"{abs(share):.0%} {'fewer' if share < 0 else 'more'}; see what its producers do",
        )


def _source_findings(
    sources: list[TierSource], now: int, thresholds: Thresholds
) -> Iterator[AuditFinding]:
    for one in sources:
        who = f"{one.application} on {one.host}"
        names = (one.tier, one.host, one.application)
        if one.unsettled > 0 and now - one.last_sent > thresholds.silent_after_ms:
            yield _finding(
                "abandoned",
                names,
                None,
                f"{who} last reported at {_iso_time(one.last_sent)}, and left {one.unsettled:,} "
                f"message{'s' * (one.unsettled != 1)} without an outcome; start a producer there "
                "with the same state folder: it publishes the rest",
            )
        lag = one.lag_ms
        # A load is reported when it is applied, so its way is never short.
        behind = lag is not None and lag > thresholds.max_skew_ms and one.tier != LOADER_TIER
        if lag is not None and (behind or lag < -thresholds.max_skew_ms):
            yield _finding(
                "skewed",
                names,
                None,
                f"the clock of {who} is {abs(lag) / 1000:,.0f} s "
                f"{'behind' if lag > 0 else 'ahead of'} the reconciler's",
            )


def _unmatched_topics(
    store: AuditStore, now: int, thresholds: Thresholds
) -> Iterator[AuditFinding]:
    t = tables.topics.c
    with store.read() as connection:
        rows = connection.execute(select(t.tier, t.topic, t.first_sent)).all()
    counted: dict[str, dict[str, int]] = {}
    for tier, topic, first in rows:
        counted.setdefault(tier, {})[topic] = first
    sent = counted.pop(PRODUCER_TIER, {})
    old = now - thresholds.complete_within_ms
    for tier, topics in sorted(counted.items()):
        for topic in sorted(topics.keys() - sent.keys()):
            if topics[topic] < old:
                text = f"{topic} is counted at {tier}, and no producer counts it"
                yield _finding("unreferenced", (tier, topic), topic, text)
    if LOADER_TIER in counted:
        for topic in sorted(sent.keys() - counted[LOADER_TIER].keys()):
            if sent[topic] < old and not is_retry_topic(topic):
                text = f"{topic} is produced, and {LOADER_TIER} has never counted a message of it"
                yield _finding("unknown", (LOADER_TIER, topic), topic, text)


def _holes(store: AuditStore) -> Iterator[AuditFinding]:
    holes = queries.holes(store)
    if holes.unreadable or holes.missed:
        yield _finding(
            "holes",
            (),
            None,
            f"{holes.unreadable:,} messages of the audit topic are no audit events, and "
            f"{holes.missed:,} were gone before they were read: the sums prove nothing",
        )


def _finding(kind: str, names: Sequence[str], topic: str | None, text: str) -> AuditFinding:
    """Return a finding whose key is its kind and these names, the first of which is the tier."""
    assert kind in KINDS
    return AuditFinding(kind, "/".join((kind, *names)), names[0] if names else "", topic, text)


def _iso_time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
