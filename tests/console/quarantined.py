"""Writes quarantined messages into a warehouse, as a load does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from hadoop_loader._decode.quarantine import QuarantinedMessage, quarantine_table
from hadoop_loader._fetch.messages import FetchedMessage

DAY_MS = 86_400_000


def put(
    warehouse: Path,
    load: int,
    bad: Iterable[tuple[str, int, str, int | None]],
    time_ms: int | None = None,
) -> None:
    """Write the messages (topic, offset, reason, schema id) of a load, of partition 0."""
    at = load * DAY_MS if time_ms is None else time_ms
    messages = [
        QuarantinedMessage(topic, FetchedMessage(0, offset, at, None, b"secret"), schema, reason)
        for topic, offset, reason, schema in bad
    ]
    table, days = quarantine_table(messages, load, 1)
    for day, start, count in days:
        folder = warehouse / "headworks_quarantine" / f"datepartition={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.slice(start, count), folder / f"load-{load}.parquet")
