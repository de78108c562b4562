"""The volumes of topics, judged window by window as the reconciler checks the store.

Rules:

- A window is judged ten minutes after its end, when its producers have reported, and before any
  load. Counts that arrive later do not change the verdict.
- The memory of a topic is one row of about 5 kB. The counts of earlier weeks are
  those of `windows`.
- All topics are judged up to the same window. After a start, or a pause of days, that begins three
  days ago. A check judges few windows, so that reading the audit topic is not delayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, delete, func, select

from headworks._audit.store import AuditStore, tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit.store.upsert import upsert
from headworks._audit.volume_bands import (
    AHEAD_MS,
    AHEAD_WINDOWS,
    TopicVolume,
    UnusualVolume,
    usual_of,
    weeks_before,
)
from headworks._audit_counting import WINDOW_MS, window_of

_JUDGED_AFTER_MS = 600_000
_HISTORY_MS = 3 * 86_400_000
_RECENT_MS = 3_600_000
_MAX_WINDOWS = 12  # of a check
_CHUNK_TOPICS = 500
_Counts = Mapping[str, int]  # by topic


def judge_volumes(store: AuditStore, now: int) -> int:
    """Judge the next windows that are due at `now`, in ms. Return their number."""
    due = window_of(now - _JUDGED_AFTER_MS) - WINDOW_MS
    t, v = tables.topics.c, tables.volumes.c
    with store.read() as connection:
        last = connection.scalar(select(func.max(v.window_start)))
        if last is not None and last >= due:
            return 0
        known = select(t.topic, t.first_sent).where(t.tier == PRODUCER_TIER)
        first = {topic: window_of(sent) for topic, sent in connection.execute(known)}
        if not first:
            return 0
        recent = last is not None and last >= due - _HISTORY_MS
        stored = _stored(connection, int(last)) if recent else {}
        last = int(last) if stored else due - _HISTORY_MS
        volumes = {topic: one for topic, one in stored.items() if topic in first}
        volumes |= _begun(connection, {t: f for t, f in first.items() if t not in volumes}, last)
        ends = range(last + WINDOW_MS, due + 1, WINDOW_MS)[:_MAX_WINDOWS]
        counts: _Counts = {}
        found: dict[str, UnusualVolume] = {}
        for window in ends:
            counts = _counts(connection, [window])[window]
            weeks = _counts(connection, weeks_before(window + AHEAD_MS))
            found = {}
            for topic, volume in volumes.items():
                ahead = _usual(topic, weeks, first[topic])
                if (unusual := volume.judge(counts.get(topic, 0), ahead)) is not None:
                    found[topic] = unusual
    _save(store, volumes, counts, found)
    return len(ends)


def unusual_volumes(store: AuditStore, now: int) -> dict[str, UnusualVolume]:
    """Return the topics whose volume was unusual when it was last judged, within the last hour."""
    v = tables.volumes.c
    some = select(v.topic, v.window_start, v.counted, v.usual).where(
        v.unusual == 1, v.window_start > now - _RECENT_MS
    )
    with store.read() as connection:
        rows = connection.execute(some.order_by(v.topic)).all()
    return {topic: UnusualVolume(window, n, max(1, usual)) for topic, window, n, usual in rows}


def _stored(connection: Connection, window: int) -> dict[str, TopicVolume]:
    v = tables.volumes.c
    rows = connection.execute(select(v.topic, v.packed).where(v.window_start == window))
    unpacked = ((topic, TopicVolume.unpack(window, packed)) for topic, packed in rows)
    return {topic: volume for topic, volume in unpacked if volume is not None}


def _begun(connection: Connection, first: Mapping[str, int], last: int) -> dict[str, TopicVolume]:
    """Return new topics after the window `last`, of which only the counts are known."""
    if not first:
        return {}
    around = range(last - AHEAD_MS, last + AHEAD_MS + 1, WINDOW_MS)
    known: dict[str, list[float]] = {topic: [] for topic in first}
    for window in around:
        weeks = _counts(connection, weeks_before(window))
        for topic, begun in first.items():
            known[topic].append(_usual(topic, weeks, begun))
    assert len(around) == 2 * AHEAD_WINDOWS + 1
    return {topic: TopicVolume(last, usual) for topic, usual in known.items()}


def _usual(topic: str, weeks: Mapping[int, _Counts], begun: int) -> float:
    """Return the usual volume of a window; -1 if it is unknown."""
    return usual_of([n.get(topic, 0) for start, n in weeks.items() if start >= begun])


def _counts(connection: Connection, windows: Iterable[int]) -> dict[int, _Counts]:
    """Return the attempts of the producers by window and topic."""
    w = tables.windows.c
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    starts = list(windows)
    question = select(w.window_start, w.topic, w.attempted)
    mine = question.where(w.tier == PRODUCER_TIER, w.window_start.in_(starts))
    for start, topic, attempted in connection.execute(mine).all():
        found[start][topic] = attempted
    return {start: found[start] for start in starts}


def _save(
    store: AuditStore,
    volumes: Mapping[str, TopicVolume],
    counts: _Counts,
    found: Mapping[str, UnusualVolume],
) -> None:
    rows = [
        {
            "topic": topic,
            "window_start": volume.window,
            "counted": counts.get(topic, 0),
            "usual": round(found[topic].usual) if topic in found else 0,
            "unusual": int(topic in found),
            "packed": volume.pack(),
        }
        for topic, volume in volumes.items()
    ]
    replaced = ("window_start", "counted", "usual", "unusual", "packed")
    with store.write() as connection:
        for at in range(0, len(rows), _CHUNK_TOPICS):
            some = rows[at : at + _CHUNK_TOPICS]
            upsert(connection, tables.volumes, some, replaced=replaced)
        newest = max((one.window for one in volumes.values()), default=0)
        old = delete(tables.volumes).where(tables.volumes.c.window_start != newest)
        connection.execute(old)
