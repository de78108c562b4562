"""What is wrong, by the store: windows below the SLA, silent tiers, clocks, unknown topics.

Rules: reads only; the same store and the same `now` give the same findings in the same order. A
window is judged when it has ended `complete_within` ago and nobody has counted into it for two
minutes, so that messages on their way are not called lost. A tier other than hadoop is judged on
the topics that it has ever counted; hadoop is to have them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from headworks._audit import queries
from headworks._audit.results import Source, TierState
from headworks._audit.sql import Breach, breaches_in
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.aggregate import PRODUCER_TIER

__all__ = ["Finding", "Thresholds", "findings", "troubles"]

_ALL_TOPICS = "hadoop"
_HORIZON_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When something is worth an alert: shares of 1, times in milliseconds."""

    sla: float = 0.999
    complete_within: int = 1_800_000
    silent_after: int = 1_800_000
    skew: int = 60_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; `key` is the same as long as it is the same thing."""

    kind: str
    key: str
    tier: str
    topic: str | None
    text: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def findings(store: AuditStore, now: int, thresholds: Thresholds) -> list[Finding]:
    """Everything that is wrong at `now`, by kind, tier and topic."""
    tiers = sorted(state.tier for state in queries.tiers(store))
    breaches = _breaches(store, now, thresholds, tiers)
    found = [*breaches, *troubles(store, now, thresholds)]
    return sorted(found, key=lambda finding: (finding.kind, finding.key))


def troubles(store: AuditStore, now: int, thresholds: Thresholds) -> list[Finding]:
    """What is wrong at `now` and is no window's: cheap to ask, however many windows there are."""
    states = {state.tier: state for state in queries.tiers(store)}
    found = [
        *_silent_tiers(states, now, thresholds),
        *_sources(queries.sources(store), now, thresholds),
        *_unknown(store, now, thresholds),
        *_holes(store),
    ]
    return sorted(found, key=lambda finding: (finding.kind, finding.key))


def _breaches(
    store: AuditStore, now: int, thresholds: Thresholds, tiers: list[str]
) -> Iterator[Finding]:
    for tier in tiers:
        if tier == PRODUCER_TIER:
            continue
        ended = now - thresholds.complete_within
        with store.read() as connection:
            rows = breaches_in(
                connection,
                tier,
                since=now - _HORIZON_MS,
                ended=ended,
                heard_before=now - queries.SETTLED_MS,
                share=thresholds.sla,
                every_topic=tier == _ALL_TOPICS,
            )
        for row in rows:
            yield from _breach(row, tier, thresholds.sla)


def _breach(row: Breach, tier: str, sla: float) -> Iterator[Finding]:
    since = _clock(row.first_window)
    if row.lost:
        yield Finding(
            "incomplete",
            f"incomplete/{tier}/{row.topic}",
            tier,
            row.topic,
            f"{row.topic} at {tier}: {row.lost:,} of {row.expected:,} messages are missing in "
            f"{row.windows} windows below {sla:.3%}, the first from {since}",
        )
    if row.duplicated:
        yield Finding(
            "duplicated",
            f"duplicated/{tier}/{row.topic}",
            tier,
            row.topic,
            f"{row.topic} at {tier}: {row.duplicated:,} messages came more than once in "
            f"{row.windows} windows, the first from {since}",
        )


def _silent_tiers(
    states: dict[str, TierState], now: int, thresholds: Thresholds
) -> Iterator[Finding]:
    sending = states[PRODUCER_TIER].last_sent if PRODUCER_TIER in states else 0
    for tier, state in states.items():
        quiet = now - state.last_sent > thresholds.silent_after
        if tier != PRODUCER_TIER and quiet and sending > state.last_sent:
            yield Finding(
                "silent",
                f"silent/{tier}",
                tier,
                None,
                f"{tier} has counted nothing since {_clock(state.last_sent)}, "
                f"and producers have until {_clock(sending)}",
            )


def _sources(sources: list[Source], now: int, thresholds: Thresholds) -> Iterator[Finding]:
    for one in sources:
        who = f"{one.application} on {one.host}"
        key = f"{one.tier}/{one.host}/{one.application}"
        if one.unsettled > 0 and now - one.last_sent > thresholds.silent_after:
            yield Finding(
                "abandoned",
                f"abandoned/{key}",
                one.tier,
                None,
                f"{who} reported last at {_clock(one.last_sent)}, with {one.unsettled:,} messages "
                f"of whose fate nothing is known: start a producer there, which reports it",
            )
        lag = one.lag_ms
        # A load is reported when it is applied, so its way is never short.
        behind = lag is not None and lag > thresholds.skew and one.tier != _ALL_TOPICS
        if lag is not None and (behind or lag < -thresholds.skew):
            yield Finding(
                "skewed",
                f"skewed/{key}",
                one.tier,
                None,
                f"the clock of {who} is {abs(lag) / 1000:,.0f} s "
                f"{'behind' if lag > 0 else 'ahead of'} the reconciler's",
            )


def _unknown(store: AuditStore, now: int, thresholds: Thresholds) -> Iterator[Finding]:
    t = tables.topics.c
    with store.read() as connection:
        rows = connection.execute(select(t.tier, t.topic, t.first_sent)).all()
    counted: dict[str, dict[str, int]] = {}
    for tier, topic, first in rows:
        counted.setdefault(tier, {})[topic] = first
    sent = counted.pop(PRODUCER_TIER, {})
    old = now - thresholds.complete_within
    for tier, topics in sorted(counted.items()):
        for topic in sorted(topics.keys() - sent.keys()):
            if topics[topic] < old:
                text = f"{topic} is counted at {tier}, and no producer counts it"
                yield Finding("unreferenced", f"unreferenced/{tier}/{topic}", tier, topic, text)
    if _ALL_TOPICS in counted:
        for topic in sorted(sent.keys() - counted[_ALL_TOPICS].keys()):
            if sent[topic] < old:
                text = f"{topic} is produced, and {_ALL_TOPICS} has never counted a message of it"
                key = f"unknown/{_ALL_TOPICS}/{topic}"
                yield Finding("unknown", key, _ALL_TOPICS, topic, text)


def _holes(store: AuditStore) -> Iterator[Finding]:
    holes = queries.holes(store)
    if holes.unreadable or holes.missed:
        yield Finding(
            "holes",
            "holes",
            "",
            None,
            f"{holes.unreadable:,} messages of the audit topic are no audit events, and "
            f"{holes.missed:,} were gone before they were read: the sums prove nothing",
        )


def _clock(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
