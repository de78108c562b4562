"""The quarantine: why messages are no rows, where they are, and how to load them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headworks._console.sources.quarantine import QuarantinedRow, QuarantineRows, safe_reason
from headworks._console.views.paging import ListPage, ListQuery, list_page


@dataclass(frozen=True, slots=True)
class QuarantineReason:
    """The messages of a topic with one reason and schema id, and the command to load them again."""

    topic: str
    reason: str
    schema_id: int | None
    messages: int
    newest_load: int
    requeue: str


@dataclass(frozen=True, slots=True)
class QuarantinePage:
    """The reasons, the most frequent first, and the messages, the newest load first."""

    whole: bool
    reasons: tuple[QuarantineReason, ...]
    part: ListPage[QuarantinedRow]


def quarantine_page(
    found: QuarantineRows,
    query: ListQuery,
    *,
    masked: Callable[[str], bool],
    requeue: Callable[[str], str],
) -> QuarantinePage:
    """Return the page. `masked` says whether a topic has fields that must not be shown."""
    hidden: Mapping[str, bool] = {topic: masked(topic) for topic in {r.topic for r in found.rows}}
    rows = [
        replace(row, reason=safe_reason(row.reason)) if hidden[row.topic] else row
        for row in found.rows
    ]
    counts = Counter((row.topic, row.reason, row.schema_id) for row in rows)
    newest = {(row.topic, row.reason, row.schema_id): row.load for row in reversed(rows)}
    reasons = tuple(
        QuarantineReason(*key, messages, newest[key], requeue(key[0]))
        for key, messages in counts.most_common()
    )
    part = list_page(rows, query, lambda row: f"{row.topic} {row.reason} {row.schema_id}")
    return QuarantinePage(found.whole, reasons, part)
