"""What a warehouse's commit log says, without Spark, broker or registry."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hadoop_loader.commits import CommitLog
from headworks.errors import UsageError

__all__ = ["status_of"]


def status_of(root: Path) -> dict[str, Any]:
    """Per topic: table, schema version, offsets, rows, quarantined messages, last load."""
    if not (root / "_headworks" / "commits").is_dir():
        raise UsageError(
            f"{root} is no warehouse: nothing was ever loaded into it",
            fix="run `headworks load run`, or give --warehouse or --data-dir",
        )
    log = CommitLog(root / "_headworks")
    rows: Counter[str] = Counter()
    quarantined: Counter[str] = Counter()
    last_load: dict[str, int] = {}
    numbers = log.numbers()
    for number in numbers:
        for topic, found in log.read(number).topics.items():
            rows[topic] += found.rows
            quarantined[topic] += found.quarantined
            last_load[topic] = number
    last = log.latest()
    return {
        "load": last.number if last else 0,
        "applied": last is None or log.is_applied(last.number),
        "topics": [
            {
                "topic": topic,
                "table": state.table,
                "schema_version": state.version,
                "rows": rows[topic],
                "quarantined": quarantined[topic],
                "load": last_load.get(topic, 0),
                "offsets": last.committed(topic) if last else {},
            }
            for topic, state in sorted(last.tables.items() if last else ())
        ],
    }
