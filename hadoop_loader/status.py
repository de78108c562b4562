"""What a warehouse's commit log says, and how far behind the broker it is. Without Spark.

Rules: a broker that does not answer costs the answer about itself only; the sums are in the last
commit, so the age of a warehouse does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hadoop_loader.commits import Commit, CommitLog, TableState
from hadoop_loader.fetch import KafkaFetcher, KafkaLog
from hadoop_loader.places import Place
from hadoop_loader.plan import Range, Watermarks, unled
from headworks.broker_client import broker_client
from headworks.errors import HeadworksError, UsageError

__all__ = ["Lag", "lag_of", "status_of"]

Lag = tuple[int, float]


def status_of(root: Place, bootstrap: str | None = None) -> dict[str, Any]:
    """Per topic: table, schema version, offsets, rows, files, quarantined, lost, and its lag.

    The lag is asked of the broker at `bootstrap`, and null without one, or where no leader answers
    for a partition.
    """
    if not (root / "_headworks" / "commits").is_dir():
        raise UsageError(
            f"{root} is no warehouse: nothing was ever loaded into it",
            fix="run `headworks load run`, or give --warehouse or --data-dir",
        )
    log = CommitLog(root / "_headworks")
    last = log.latest()
    tables = last.tables if last else {}
    lags, trouble = _ask(bootstrap, last) if bootstrap and last else ({}, None)
    report = log.last_run() or {}
    return {
        "load": last.number if last else 0,
        "applied": last is None or log.is_applied(last.number),
        "broker_error": trouble,
        "ungoverned": report.get("ungoverned", []),
        "refused": _refused(report, tables),
        "leaderless": report.get("leaderless", []),
        "unmarked": report.get("unmarked"),
        "topics": [
            _topic(topic, state, last, lags.get(topic)) for topic, state in sorted(tables.items())
        ],
    }


def lag_of(
    committed: Mapping[int, int], marks: Mapping[int, Watermarks], oldest_ms: int | None, now: float
) -> Lag:
    """Messages that are not loaded yet, and the minutes since the oldest of them was written."""
    behind = sum(m.high - max(committed.get(p, m.low), m.low) for p, m in marks.items())
    if behind <= 0 or oldest_ms is None:
        return max(behind, 0), 0.0
    return behind, round(max(0.0, now - oldest_ms / 1000) / 60, 1)


def _ask(bootstrap: str, last: Commit) -> tuple[dict[str, Lag], str | None]:
    client = broker_client(bootstrap)
    try:
        broker = KafkaLog(client)
        known = broker.partitions()
        marks = broker.watermarks({t: known[t] for t in last.tables if t in known})
        away = {t: [p for p in known[t] if p not in found] for t, found in marks.items()}
        fetcher = KafkaFetcher(client)
        lags = {
            topic: lag_of(
                last.committed(topic),
                found,
                _oldest(fetcher, topic, last.committed(topic), found),
                time.time(),
            )
            for topic, found in marks.items()
            if not away[topic]
        }
        return lags, "; ".join(unled(t, ps).message for t, ps in away.items() if ps) or None
    except HeadworksError as error:
        return {}, error.message


def _oldest(
    fetcher: KafkaFetcher,
    topic: str,
    committed: Mapping[int, int],
    marks: Mapping[int, Watermarks],
) -> int | None:
    """The timestamp of the oldest message that is not loaded, by the first of each partition."""
    firsts = []
    for partition, mark in marks.items():
        start = max(committed.get(partition, mark.low), mark.low)
        if start < mark.high:
            firsts.append(Range(topic, partition, start, start + 1))
    if not firsts:
        return None
    return min((m.timestamp for _, found in fetcher.fetch(firsts) for m in found), default=None)


def _refused(report: Mapping[str, Any], tables: Mapping[str, TableState]) -> list[dict[str, Any]]:
    """What the last load refused; `rebuilt`: the table was written anew since, so load again."""
    found = []
    for refusal in report.get("refused", []):
        state = tables.get(refusal["topic"])
        rebuilt = state is not None and state.projections[-1][0] > report["number"]
        found.append({**refusal, "rebuilt": rebuilt})
    return found


def _topic(topic: str, state: TableState, last: Commit | None, lag: Lag | None) -> dict[str, Any]:
    return {
        "topic": topic,
        "table": state.table,
        "schema_version": state.version,
        "partitions": "hourly" if state.hourly else "daily",
        "rows": state.rows,
        "files": state.files,
        "quarantined": state.quarantined,
        "lost": state.lost,
        "load": state.load,
        "loaded_ms": state.loaded_ms,
        "offsets": last.committed(topic) if last else {},
        "lag_messages": lag[0] if lag else None,
        "lag_minutes": lag[1] if lag else None,
    }
