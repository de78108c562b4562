"""The ledger outside the system: journals of what was sent, the tables' files, a target's log.

Rule: knows nothing of the audit, and shares no code with it.
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

from tests.soak.mirror import end_offsets, read_all

WINDOW_MS = 600_000
Identity = tuple[str, int]  # sender and number
_AT = {"type": "long", "logicalType": "timestamp-millis"}
_FIELDS = (("sender", "string"), ("n", "long"), ("at", _AT))
SHOT: dict[str, Any] = {
    "type": "record",
    "name": "Shot",
    "namespace": "fire",
    "fields": [{"name": name, "type": kind} for name, kind in _FIELDS],
}


@dataclass(frozen=True, slots=True)
class Truth:
    """Of one topic, by window: messages sent, messages that are in no row, rows too many."""

    sent: Counter[int]
    lost: Counter[int]
    doubled: Counter[int]


def truth_of(folder: Path, topic: str, rows: Counter[Identity]) -> Truth:
    """Hold the journals of a topic, in `folder`, against what is at the end of the way."""
    taken: dict[Identity, int] = {}
    for journal in sorted(folder.glob(f"{topic}-*.journal")):
        for line in journal.read_text().splitlines():
            mark, sender, n, at = line.split()
            if mark == "+":
                taken[sender, int(n)] = int(at) - int(at) % WINDOW_MS
    unknown = rows.keys() - taken.keys()
    assert not unknown, f"rows that nobody sent: {sorted(unknown)[:5]}"
    return Truth(
        Counter(taken.values()),
        Counter(window for key, window in taken.items() if key not in rows),
        _extra(taken, rows),
    )


def rows_of_table(table: Path) -> Counter[Identity]:
    """What is in a table's files: of a partition that was compacted, in its newest folder alone."""
    rows: Counter[Identity] = Counter()
    folders = sorted(table.glob("datepartition=*")) + sorted(table.glob("load-*/datepartition=*"))
    for folder in {each.name: each for each in folders}.values():
        for path in folder.glob("[!._]*.parquet"):
            columns = pq.ParquetFile(path).read(columns=["sender", "n"]).to_pydict()
            rows.update(zip(columns["sender"], columns["n"], strict=True))
    return rows


def rows_of_log(address: str, topic: str) -> Counter[Identity]:
    """What is in a topic's log."""
    rows: Counter[Identity] = Counter()
    for index in end_offsets(address, topic):
        for message in read_all(address, topic, index):
            datum: Any = fastavro.schemaless_reader(io.BytesIO((message.value() or b"")[5:]), SHOT)
            rows[datum["sender"], datum["n"]] += 1
    return rows


def _extra(taken: dict[Identity, int], rows: dict[tuple[str, int], int]) -> Counter[int]:
    extra: Counter[int] = Counter()
    for key, n in rows.items():
        if n > 1:
            extra[taken[key]] += n - 1
    return extra
