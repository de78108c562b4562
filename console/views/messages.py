"""The messages of a topic: the start position, the filter, and the message of a permalink."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headworks._console.sources.messages import (
    MessageReader,
    MessageSlice,
    OffsetBounds,
    PageReader,
    ShownMessage,
)
from headworks._console.sources.subjects import SubjectRow
from headworks._console.sources.topics import TopicRow
from headworks._console.views.groups import TopicConsumer
from headworks.errors import UsageError

__all__ = [
    "MAX_MESSAGES",
    "FieldFilter",
    "MessageList",
    "OneMessage",
    "StartPosition",
    "TopicSchemas",
    "message_list",
    "one_message",
    "read_cursor",
    "read_time",
]

MAX_MESSAGES = 100
_MAX_TAIL_MESSAGES = 2_000


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """A topic, the subject of its values, and the latest version of its key subject, if any."""

    row: TopicRow
    subject: SubjectRow | None
    key_version: int | None


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where to start: at the newest (nothing given), an offset, a time, or a cursor."""

    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None
    cursor: Mapping[int, int] | None = None
    limit: int = 25

    @property
    def tail(self) -> bool:
        """Return whether the newest messages are requested."""
        return self.offset is None and self.time_ms is None and self.cursor is None


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """A dotted field path, and the text of its value; `*` at an end matches anything."""

    field: str = ""
    value: str = ""

    def keeps(self, shown: ShownMessage) -> bool:
        """Return whether a message matches, after masking."""
        found = _at(shown.event, self.field.split("."))
        return any(_matches(one, self.value) for one in found)


@dataclass(frozen=True, slots=True)
class MessageList:
    """A topic and some of its messages; `older` and `newer` are cursors, None at an end."""

    topic: str
    subject: str | None
    version: int | None
    owner: str | None
    masked: bool
    partitions: tuple[tuple[int, int, int], ...]
    total: int
    rate: float | None
    rates: tuple[float, ...]
    rows: tuple[ShownMessage, ...]
    scanned: int
    newest_first: bool
    older: str | None
    newer: str | None
    sought: StartPosition
    field: str
    value: str
    fields: tuple[str, ...]
    readers: tuple[TopicConsumer, ...]


@dataclass(frozen=True, slots=True)
class OneMessage:
    """One message, and its neighbors in the partition."""

    topic: str
    subject: str | None
    message: ShownMessage
    before: int | None
    after: int | None


def read_time(text: str) -> int | None:
    """Return a time in milliseconds since 1970 from ISO text (UTC by default) or such a number."""
    if not text:
        return None
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text[:40]!r} is no time", fix="write it like 2026-05-01T12:00 (UTC)"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def read_cursor(text: str) -> Mapping[int, int] | None:
    """Return the offsets of a cursor, PARTITION:OFFSET,.., or None for no text."""
    if not text:
        return None
    if not re.fullmatch(r"\d{1,6}:\d{1,18}(,\d{1,6}:\d{1,18}){0,999}", text):
        raise UsageError(f"{text[:40]!r} is no place in a topic", fix="begin at the topic's page")
    return {int(p): int(o) for p, _, o in (one.partition(":") for one in text.split(","))}


def message_list(
    reader: MessageReader,
    governed: TopicSchemas,
    seek: StartPosition,
    kept: FieldFilter,
    *,
    fields: tuple[str, ...],
    readers: tuple[TopicConsumer, ...],
) -> MessageList:
    """Read a page of messages. Raises UnreachableError if broker or registry do not answer."""
    with reader.connected() as reading:
        return _message_list(reading, governed, seek, kept, fields, readers)


def _message_list(
    reading: PageReader,
    governed: TopicSchemas,
    seek: StartPosition,
    kept: FieldFilter,
    fields: tuple[str, ...],
    readers: tuple[TopicConsumer, ...],
) -> MessageList:
    row, subject, topic = governed.row, governed.subject, governed.row.topic
    bounds = reading.bounds(topic, row.partitions)
    chosen = {
        p: bound for p, bound in bounds.items() if seek.partition is None or p == seek.partition
    }
    if not chosen:
        raise UsageError(f"{topic} has no partition {seek.partition}")
    keep: Callable[[ShownMessage], bool] | None = kept.keeps if kept.field else None
    starts = _starts(reading, topic, chosen, seek, filtered=keep is not None)
    ends = {p: end for p, (_, end) in chosen.items()}
    most = (
        min(_MAX_TAIL_MESSAGES, seek.limit * len(chosen))
        if seek.tail and keep is None
        else seek.limit
    )
    found = reading.read(
        topic,
        starts,
        ends,
        latest_version=subject.version if subject else None,
        key_version=governed.key_version,
        limit=most,
        keep=keep,
    )
    newest_first = seek.tail and keep is None
    rows = found.rows[-seek.limit :] if newest_first else found.rows
    return MessageList(
        topic,
        subject.subject if subject else None,
        subject.version if subject else None,
        subject.owner if subject else None,
        bool(subject and subject.sensitive),
        tuple((p, first, end) for p, (first, end) in sorted(bounds.items())),
        sum(end - first for first, end in bounds.values()),
        row.rate,
        row.rates,
        rows[::-1] if newest_first else rows,
        found.scanned,
        newest_first,
        _older(rows, starts, chosen, seek, filtered=keep is not None),
        None if found.complete else _cursor(found.following),
        seek,
        kept.field,
        kept.value,
        fields,
        readers,
    )


def one_message(
    reader: MessageReader,
    governed: TopicSchemas,
    partition: int,
    offset: int,
) -> OneMessage | None:
    """Return the message at an offset, or None if it does not exist."""
    row, subject, topic = governed.row, governed.subject, governed.row.topic
    with reader.connected() as reading:
        bound = reading.bounds(topic, row.partitions).get(partition)
        if bound is None or not bound[0] <= offset < bound[1]:
            return None
        found: MessageSlice = reading.read(
            topic,
            {partition: offset},
            {partition: offset + 1},
            latest_version=subject.version if subject else None,
            key_version=governed.key_version,
            limit=1,
        )
    if not found.rows:
        return None
    before = offset - 1 if offset > bound[0] else None
    after = offset + 1 if offset + 1 < bound[1] else None
    return OneMessage(topic, subject.subject if subject else None, found.rows[0], before, after)


def _starts(
    reading: PageReader, topic: str, bounds: OffsetBounds, seek: StartPosition, *, filtered: bool
) -> dict[int, int]:
    if seek.cursor is not None:
        wanted: Mapping[int, int] = seek.cursor
    elif seek.time_ms is not None:
        wanted = reading.at_time(topic, bounds, seek.time_ms)
    elif seek.offset is not None:
        wanted = dict.fromkeys(bounds, seek.offset)
    elif filtered:
        wanted = {p: first for p, (first, _) in bounds.items()}
    else:
        share = max(1, min(seek.limit, _MAX_TAIL_MESSAGES // len(bounds)))
        wanted = {p: end - share for p, (_, end) in bounds.items()}
    return {p: min(max(wanted.get(p, end), first), end) for p, (first, end) in bounds.items()}


def _older(
    rows: tuple[ShownMessage, ...],
    starts: Mapping[int, int],
    bounds: OffsetBounds,
    seek: StartPosition,
    *,
    filtered: bool,
) -> str | None:
    """Return the cursor of the previous page, or None at the start and for a filter."""
    if filtered:
        return None
    firsts = dict(starts)
    for row in reversed(rows):
        firsts[row.partition] = row.offset
    if seek.tail:  # what was read and not shown is older, too
        shown = {row.partition for row in rows}
        firsts = {p: o if p in shown else bounds[p][1] for p, o in firsts.items()}
    if all(offset <= bounds[p][0] for p, offset in firsts.items()):
        return None
    share = max(1, seek.limit // len(bounds))
    return _cursor({p: max(bounds[p][0], offset - share) for p, offset in firsts.items()})


def _cursor(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{p}:{o}" for p, o in sorted(offsets.items()))


def _at(value: Any, path: list[str]) -> list[Any]:
    """Return the values at a dotted path, in every item of a list."""
    if isinstance(value, list):
        return [found for item in value for found in _at(item, path)]
    if not path:
        return [value]
    if isinstance(value, Mapping) and path[0] in value:
        return _at(value[path[0]], path[1:])
    return []


def _matches(value: Any, wanted: str) -> bool:
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    if wanted.startswith("*") and wanted.endswith("*") and len(wanted) > 1:
        return wanted[1:-1] in text
    if wanted.startswith("*"):
        return text.endswith(wanted[1:])
    return text.startswith(wanted[:-1]) if wanted.endswith("*") else text == wanted
