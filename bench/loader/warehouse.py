"""A process with a warehouse of so many topics, which loads for each line of its input.

A load every ten minutes finds events of the last ten in a partition or two of each table. Events of
a whole week are seven files a topic, which is measured too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.loader.data import TEN_MINUTES_MS, WEEK_MS, Events, page_views, send
from bench.loader.installation import (
    VIEWS,
    Stack,
    open_warehouse,
    rows_of_views,
    start_stack,
    timed_load,
)
from hadoop_loader import Warehouse
from hadoop_loader._commit.report import LoadReport

_WARM_UP = 100  # part of the rows
_SPANS = {"week": WEEK_MS, "recent": TEN_MINUTES_MS}


def main(arguments: Sequence[str]) -> None:
    """Load for each line of the input, and print a line of JSON for it."""
    topics, rows, folder = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    events = {kind: page_views(span) for kind, span in _SPANS.items()}
    with start_stack(folder) as stack, open_warehouse(stack, folder, "local[2]") as warehouse:
        for line in sys.stdin:
            kind = line.strip()
            if kind == "nothing":
                warehouse.load()  # the audit topic, that the loads before have filled
                report, seconds = timed_load(warehouse)
            elif kind == "new":
                report, seconds = _sent_and_loaded(stack, warehouse, events["week"], topics, rows)
            else:
                # Spark ends workers that were idle for a minute. Each load meets living ones.
                few = max(rows // _WARM_UP, topics)
                _sent_and_loaded(stack, warehouse, events[kind], topics, few)
                report, seconds = _sent_and_loaded(stack, warehouse, events[kind], topics, rows)
            print(json.dumps({"seconds": seconds, "phases": dict(report.seconds)}), flush=True)


def _sent_and_loaded(
    stack: Stack, warehouse: Warehouse, events: Events, topics: int, rows: int
) -> tuple[LoadReport, float]:
    for n in range(topics):
        send(stack.broker, stack.registry, f"{VIEWS}.{n}", events, rows // topics)
    report, seconds = timed_load(warehouse)
    assert rows_of_views(report) == rows // topics * topics
    return report, seconds


if __name__ == "__main__":
    main(sys.argv[1:])
