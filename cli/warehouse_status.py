"""The status of a warehouse, printed for people: topics, and what is not as it should be.

Rule: it only prints what `hadoop_loader._operations.status` has found.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from headworks._cli.output import print_status, print_table

_STATUS_COLUMNS = itemgetter(
    *("topic", "table", "schema_version", "rows", "files", "quarantined", "lost"),
    *("damaged", "lag_messages", "lag_minutes", "load"),
)


def print_warehouse_status(found: dict[str, Any]) -> None:
    """Print what `warehouse_status` returns."""
    applied = "" if found["applied"] else ", not finished: load again"
    print_status(f"load {found['load']}{applied}")
    if found["broker_error"]:
        print_status(f"the lag is unknown: {found['broker_error']}")
    print_table(
        [
            *("topic", "table", "version", "rows", "files", "bad", "lost", "damaged"),
            *("behind", "minutes", "load"),
        ],
        [["?" if v is None else v for v in _STATUS_COLUMNS(t)] for t in found["topics"]],
    )
    for topic in found["ungoverned"]:
        print_status(f"topic {topic} had no schema at the last load, and is not loaded")
    for refusal in found["refused"]:
        if refusal["rebuilt"]:
            print_status(f"the last load skipped topic {refusal['topic']}; it was rebuilt since")
        else:
            print_status(f"topic {refusal['topic']} was not loaded: {refusal['reason']}")
    for refusal in found["acknowledged"]:
        print_status(
            f"topic {refusal['topic']} is not loaded, as acknowledged: {refusal['reason']}"
        )
    for one in [*found["leaderless"], *found["damaged"]]:
        print_status(f"topic {one['topic']} was loaded in part: {one['reason']}")
    for topic in found["gone"]:
        print_status(f"topic {topic} is no longer on the broker; its table stays")
    if found["unmarked"] is not None:
        print_status(f"the completeness marks were not updated: {found['unmarked']}")
