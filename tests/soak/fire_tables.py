"""The ledger outside the system: journals of what was sent, and the files of the tables.

Rule: knows nothing of the audit, and shares no code with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

__all__ = ["Truth", "truth_of"]

WINDOW_MS = 600_000


@dataclass(frozen=True, slots=True)
class Truth:
    """Of one topic, by window: messages sent, messages that are in no row, rows too many."""

    sent: Counter[int]
    lost: Counter[int]
    doubled: Counter[int]


def truth_of(journals: list[Path], table: Path) -> Truth:
    """Hold journals against a table's files."""
    taken: dict[tuple[str, int], int] = {}
    for journal in journals:
        for line in journal.read_text().splitlines():
            mark, sender, n, at = line.split()
            if mark == "+":
                taken[sender, int(n)] = int(at) - int(at) % WINDOW_MS
    rows: defaultdict[tuple[str, int], int] = defaultdict(int)
    for path in table.glob("datepartition=*/[!._]*.parquet"):
        columns = pq.ParquetFile(path).read(columns=["sender", "n"]).to_pydict()
        for key in zip(columns["sender"], columns["n"], strict=True):
            rows[key] += 1
    unknown = rows.keys() - taken.keys()
    assert not unknown, f"rows that nobody sent: {sorted(unknown)[:5]}"
    return Truth(
        Counter(taken.values()),
        Counter(window for key, window in taken.items() if key not in rows),
        _extra(taken, rows),
    )


def _extra(taken: dict[tuple[str, int], int], rows: dict[tuple[str, int], int]) -> Counter[int]:
    extra: Counter[int] = Counter()
    for key, n in rows.items():
        if n > 1:
            extra[taken[key]] += n - 1
    return extra
