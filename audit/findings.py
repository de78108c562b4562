"""Findings from the store: windows below the SLA, silent tiers, clocks, and unmatched topics.

Rules:

- Reads only. The same store and the same `now` give the same findings in the same order.
- A window is judged `complete_within_ms` after its end, and two minutes after its last count.
  Messages on their way are therefore not called lost.
- The hadoop tier must have every topic. Other tiers are judged on topics that they ever counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from headworks._audit import queries
from headworks._audit.results import TierSource, TierState
from headworks._audit.sql import Breach, breaches_in
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.aggregate import PRODUCER_TIER

__all__ = ["AuditFinding", "Thresholds", "findings", "general_findings"]

_LOADER_TIER = "hadoop"
_MAX_AGE_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits of a finding: a share of 1, and times in milliseconds."""

    sla: float = 0.999
    complete_within_ms: int = 1_800_000
    silent_after_ms: int = 1_800_000
    max_skew_ms: int = 60_000


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
    breaches = _breaches(store, now, thresholds, tiers)
    found = [*breaches, *general_findings(store, now, thresholds)]
    return sorted(found, key=lambda finding: (finding.kind, finding.key))


def general_findings(store: AuditStore, now: int, thresholds: Thresholds) -> list[AuditFinding]:
    """Return the findings at `now` that concern no window; cheap for any number of windows."""
    states = {state.tier: state for state in queries.tiers(store)}
    found = [
        *_silent_tiers(states, now, thresholds),
        *_source_findings(queries.sources(store), now, thresholds),
        *_unmatched_topics(store, now, thresholds),
        *_holes(store),
    ]
    return sorted(found, key=lambda finding: (finding.kind, finding.key))


def _breaches(
    store: AuditStore, now: int, thresholds: Thresholds, tiers: list[str]
) -> Iterator[AuditFinding]:
    for tier in tiers:
        if tier == PRODUCER_TIER:
            continue
        ended = now - thresholds.complete_within_ms
        with store.read() as connection:
            rows = breaches_in(
                connection,
                tier,
                since=now - _MAX_AGE_MS,
                ended=ended,
                heard_before=now - queries.SETTLED_MS,
                share=thresholds.sla,
                every_topic=tier == _LOADER_TIER,
            )
        for row in rows:
            yield from _breach(row, tier, thresholds.sla)


def _breach(row: Breach, tier: str, sla: float) -> Iterator[AuditFinding]:
    since = _iso_time(row.first_window)
    if row.lost:
        yield AuditFinding(
            "incomplete",
            f"incomplete/{tier}/{row.topic}",
            tier,
            row.topic,
            f"{row.topic} at {tier}: {row.lost:,} of {row.expected:,} messages are missing in "
            f"{row.windows} windows below {sla:.3%}, the first from {since}",
        )
    if row.duplicated:
        yield AuditFinding(
            "duplicated",
            f"duplicated/{tier}/{row.topic}",
            tier,
            row.topic,
            f"{row.topic} at {tier}: {row.duplicated:,} messages came more than once in "
            f"{row.windows} windows, the first from {since}",
        )


def _silent_tiers(
    states: dict[str, TierState], now: int, thresholds: Thresholds
) -> Iterator[AuditFinding]:
    sending = states[PRODUCER_TIER].last_sent if PRODUCER_TIER in states else 0
    for tier, state in states.items():
        quiet = now - state.last_sent > thresholds.silent_after_ms
        if tier != PRODUCER_TIER and quiet and sending > state.last_sent:
            yield AuditFinding(
                "silent",
                f"silent/{tier}",
                tier,
                None,
                f"{tier} has counted nothing since {_iso_time(state.last_sent)}, "
                f"and producers have until {_iso_time(sending)}",
            )


def _source_findings(
    sources: list[TierSource], now: int, thresholds: Thresholds
) -> Iterator[AuditFinding]:
    for one in sources:
        who = f"{one.application} on {one.host}"
        key = f"{one.tier}/{one.host}/{one.application}"
        if one.unsettled > 0 and now - one.last_sent > thresholds.silent_after_ms:
            yield AuditFinding(
                "abandoned",
                f"abandoned/{key}",
                one.tier,
                None,
                f"{who} reported last at {_iso_time(one.last_sent)}, with {one.unsettled:,} "
                "messages of whose fate nothing is known: start a producer there, which reports it",
            )
        lag = one.lag_ms
        # A load is reported when it is applied, so its way is never short.
        behind = lag is not None and lag > thresholds.max_skew_ms and one.tier != _LOADER_TIER
        if lag is not None and (behind or lag < -thresholds.max_skew_ms):
            yield AuditFinding(
                "skewed",
                f"skewed/{key}",
                one.tier,
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
                yield AuditFinding(
                    "unreferenced", f"unreferenced/{tier}/{topic}", tier, topic, text
                )
    if _LOADER_TIER in counted:
        for topic in sorted(sent.keys() - counted[_LOADER_TIER].keys()):
            if sent[topic] < old:
                text = f"{topic} is produced, and {_LOADER_TIER} has never counted a message of it"
                key = f"unknown/{_LOADER_TIER}/{topic}"
                yield AuditFinding("unknown", key, _LOADER_TIER, topic, text)


def _holes(store: AuditStore) -> Iterator[AuditFinding]:
    holes = queries.holes(store)
    if holes.unreadable or holes.missed:
        yield AuditFinding(
            "holes",
            "holes",
            "",
            None,
            f"{holes.unreadable:,} messages of the audit topic are no audit events, and "
            f"{holes.missed:,} were gone before they were read: the sums prove nothing",
        )


def _iso_time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
