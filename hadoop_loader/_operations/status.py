"""The state of a warehouse from its commit log, and its lag behind the broker. Without Spark.

Rules: if the broker does not answer, only the lag is missing. The last commit holds all sums, so
the age of a warehouse does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, TableState
from hadoop_loader._commit.topic_lives import check_cluster, is_new_life
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.damage import DamageReport
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.ranges import FetchRange, Watermarks, no_leader_error
from hadoop_loader._storage.filesystem import AnyPath
from headworks._kafka.client_properties import client_properties
from headworks.errors import HeadworksError

Lag = tuple[int, float | None]  # messages, and minutes
_FIRST_FETCH_BYTES = 64 << 10  # the broker returns a larger first batch all the same


def warehouse_status(root: AnyPath, bootstrap: str | None = None) -> dict[str, Any]:
    """Return for each topic: table, schema version, offsets, rows, files, bad, lost, and lag.

    The broker at `bootstrap` is asked for the lag. It is null without one, or if a partition has no
    leader.
    """
    log = CommitLog.of(root)
    last = log.latest()
    tables = last.tables if last else {}
    asked = _fetch_lags(bootstrap, last) if bootstrap and last else ({}, None, [])
    lags, broker_error, gone = asked
    report = log.last_run() or {}
    return {
        "load": last.number if last else 0,
        "applied": last is None or log.is_applied(last.number),
        "broker_error": broker_error,
        "ungoverned": report.get("ungoverned", []),
        "refused": _refused(report, tables),
        "acknowledged": report.get("acknowledged", []),
        "leaderless": report.get("leaderless", []),
        "damaged": report.get("damaged", []),
        "unmarked": report.get("unmarked"),
        "gone": gone,
        "topics": [
            _topic(topic, state, last, lags.get(topic)) for topic, state in sorted(tables.items())
        ],
    }


def compute_lag(
    committed: Mapping[int, int], marks: Mapping[int, Watermarks], oldest_ms: int | None, now: float
) -> Lag:
    """Return the messages not loaded yet, and the minutes since the oldest was written.

    The minutes are None if each partition's first offset holds no message.
    """
    behind = sum(m.high - max(committed.get(p, m.low), m.low) for p, m in marks.items())
    if behind <= 0:
        return 0, 0.0
    if oldest_ms is None:
        return behind, None
    return behind, round(max(0.0, now - oldest_ms / 1000) / 60, 1)


def _fetch_lags(bootstrap: str, last: Commit) -> tuple[dict[str, Lag], str | None, list[str]]:
    """Return the lag of each topic, why some are missing, and the topics that are deleted."""
    client = client_properties(bootstrap)
    try:
        broker = KafkaLog(client)
        known = broker.partitions()
        identity = broker.identify(known.keys() & last.tables.keys())
        check_cluster(last, identity)
        made_again: dict[str, dict[str, int]] = {
            t: {} for t in known if is_new_life(last, identity, t)
        }
        last = replace(last, offsets={**last.offsets, **made_again})
        marks = broker.watermarks({t: known[t] for t in last.tables if t in known})
        missing = {t: [p for p in known[t] if p not in found] for t, found in marks.items()}
        led = {topic: found for topic, found in marks.items() if not missing[topic]}
        oldest, now = _oldest(client, led, last), time.time()
        lags = {
            topic: compute_lag(last.committed(topic), found, oldest.get(topic), now)
            for topic, found in led.items()
        }
        away = "; ".join(no_leader_error(t, ps).message for t, ps in missing.items() if ps)
        return lags, away or None, sorted(last.tables.keys() - known.keys())
    except HeadworksError as error:
        return {}, error.message, []


def _oldest(
    client: Mapping[str, Any], marks: Mapping[str, Mapping[int, Watermarks]], last: Commit
) -> dict[str, int]:
    """Return for each topic the timestamp of its oldest message that is not loaded.

    Only the first such message of each partition counts. Topics without any are omitted.
    """
    firsts = [
        FetchRange(topic, partition, start, start + 1)
        for topic, found in marks.items()
        for committed in (last.committed(topic),)
        for partition, mark in found.items()
        if (start := max(committed.get(partition, mark.low), mark.low)) < mark.high
    ]
    oldest: dict[str, int] = {}
    with BrokerFetcher(client, partition_max_bytes=_FIRST_FETCH_BYTES) as fetcher:
        for topic, messages in fetcher.fetch(firsts, DamageReport(skip=False)):
            first = min(message.timestamp for message in messages)
            oldest[topic] = min(first, oldest.get(topic, first))
    return oldest


def _refused(report: Mapping[str, Any], tables: Mapping[str, TableState]) -> list[dict[str, Any]]:
    """Return the topics that the last load skipped; `rebuilt`: a rebuild came after it."""
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
        "damaged": state.damaged,
        "load": state.load,
        "loaded_ms": state.loaded_ms,
        "offsets": last.committed(topic) if last else {},
        "lag_messages": lag[0] if lag else None,
        "lag_minutes": lag[1] if lag else None,
    }
