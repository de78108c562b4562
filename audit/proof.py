"""The proof that messages are duplicated: the offsets of the loads that counted them.

A load counts at most one message for each offset of its ranges. If it counted more messages of a
window than it has offsets that no earlier load had, the rest is at offsets that were loaded before.

Rules: a lower bound, and never a guess. Loads whose details have expired prove nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, select, tuple_

from headworks._audit.store import tables

_CHUNK_KEYS = 500
_ACCOUNTED_OUTCOMES = ("loaded", "quarantined")
_Key = tuple[str, int]  # topic and window


def proven_duplicates(connection: Connection, keys: Collection[_Key]) -> dict[_Key, int]:
    """Return how many messages of each topic and window the loads prove to be duplicated."""
    named, i = tables.names.alias(), tables.increments.c
    question = (
        select(named.c.name, i.window_start, i.load, i.counts, i.ranges)
        .join(named, named.c.id == i.topic)
        .where(i.ranges.is_not(None))
        .order_by(i.sent_at, i.load)
    )
    loads: defaultdict[_Key, dict[tuple[int, str], int]] = defaultdict(dict)
    ordered = sorted(keys)
    for at in range(0, len(ordered), _CHUNK_KEYS):
        some = tuple_(named.c.name, i.window_start).in_(ordered[at : at + _CHUNK_KEYS])
        for topic, window, load, counts, ranges in connection.execute(question.where(some)):
            told = json.loads(counts)
            n = sum(told.get(outcome, 0) for outcome in _ACCOUNTED_OUTCOMES)
            mine = loads[topic, window]
            mine[load, ranges] = mine.get((load, ranges), 0) + n
    return {
        key: duplicates_among([(n, json.loads(ranges)) for (_, ranges), n in mine.items()])
        for key, mine in loads.items()
    }


def duplicates_among(loads: Iterable[tuple[int, Sequence[Sequence[int]]]]) -> int:
    """Return how many messages must be duplicated.

    `loads` are (messages of one window, ranges of partition, first, and end), oldest first.
    """
    covered: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    duplicates = 0
    for messages, ranges in loads:
        fresh = 0
        for partition, first, end in ranges:
            fresh += _uncovered(covered[partition], first, end)
        for partition, first, end in ranges:
            covered[partition].append((first, end))
        duplicates += max(0, messages - fresh)
    return duplicates


def _uncovered(covered: Sequence[tuple[int, int]], first: int, end: int) -> int:
    """Return how many offsets from `first` to before `end` are in no covered range."""
    fresh, at = 0, first
    for start, stop in sorted(covered):
        if start >= end:
            break
        fresh += max(0, min(start, end) - at)
        at = max(at, stop)
    return fresh + max(0, end - at)
