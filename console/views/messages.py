"""The messages of a topic: the start position, the filter, and the message of a permalink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from headworks._console.sources.messages import MessageReader, OffsetBounds, PageReader
from headworks._console.sources.retention import TopicRetention
from headworks._console.sources.shown_message import MessageSlice, ShownMessage
from headworks._console.sources.subjects import SubjectRow
from headworks._console.sources.topics import TopicRow
from headworks._console.views.groups import TopicConsumer
from headworks._console.views.message_filter import MessageFilter, read_filter
from headworks.errors import UsageError

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
    """Where to start: at the newest (nothing given), an offset, a time, or a cursor.

    With a filter, `before` continues a search from the newest message backward.
    """

    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None
    cursor: Mapping[int, int] | None = None
    limit: int = 25
    before: Mapping[int, int] | None = None

    @property
    def tail(self) -> bool:
        """Return whether the newest messages are requested."""
        return self.offset is None and self.time_ms is None and self.cursor is None


@dataclass(frozen=True, slots=True)
class SoughtMessages:
    """The filter of a page, and the text of the form that it was read from."""

    kept: MessageFilter
    find: str
    field: str
    value: str

    @classmethod
    def read(cls, find: str, field: str, value: str) -> SoughtMessages:
        """Read the form. Raises UsageError."""
        return cls(read_filter(find, field, value), find, field, value)


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
    find: str
    field: str
    value: str
    fields: tuple[str, ...]
    readers: tuple[TopicConsumer, ...]
    hidden_readers: bool = False
    columns: tuple[str, ...] = ()  # the fields to show instead of the whole event
    kept: TopicRetention | None = None


@dataclass(frozen=True, slots=True)
class OneMessage:
    """One message, and its neighbors in the partition."""

    topic: str
    subject: str | None
    message: ShownMessage
    masked: bool
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
            f"{text[:40]!r} is not a time", fix="write it like 2026-05-01T12:00 (UTC)"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def read_cursor(text: str) -> Mapping[int, int] | None:
    """Return the offsets of a cursor, PARTITION:OFFSET,.., or None for no text."""
    if not text:
        return None
    if not re.fullmatch(r"\d{1,6}:\d{1,18}(,\d{1,6}:\d{1,18}){0,999}", text):
        raise UsageError(
            f"{text[:40]!r} is not a position in a topic", fix="start at the topic's page"
        )
    return {int(p): int(o) for p, _, o in (one.partition(":") for one in text.split(","))}


def message_list(
    reader: MessageReader,
    governed: TopicSchemas,
    seek: StartPosition,
    filters: SoughtMessages,
    *,
    fields: tuple[str, ...],
    readers: tuple[TopicConsumer, ...],
) -> MessageList:
    """Read a page of messages. Raises UnreachableError if broker or registry do not answer."""
    with reader.connected() as reading:
        return _message_list(reading, governed, seek, filters, fields, readers)


def _message_list(
    reading: PageReader,
    governed: TopicSchemas,
    seek: StartPosition,
    filters: SoughtMessages,
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
    found, rows, older = _read(reading, governed, chosen, seek, filters.kept)
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
        rows[::-1] if seek.tail else rows,
        found.scanned,
        seek.tail,
        older,
        None if found.complete or seek.tail else _cursor(found.following),
        seek,
        filters.find,
        filters.field,
        filters.value,
        fields,
        readers,
    )


def _read(
    reading: PageReader,
    governed: TopicSchemas,
    chosen: OffsetBounds,
    seek: StartPosition,
    kept: MessageFilter,
) -> tuple[MessageSlice, tuple[ShownMessage, ...], str | None]:
    """Return the messages that were found, those to show, and the cursor of older ones."""
    topic, keep = governed.row.topic, kept.keeps if kept else None
    backward = seek.tail and keep is not None
    ends = {p: end for p, (_, end) in chosen.items()}
    if backward:
        before = seek.before or ends
        ends = {p: max(first, min(before.get(p, end), end)) for p, (first, end) in chosen.items()}
    starts = _starts(reading, topic, chosen, seek, ends if backward else None)
    most = (
        _MAX_TAIL_MESSAGES
        if backward
        else min(_MAX_TAIL_MESSAGES, seek.limit * len(chosen))
        if seek.tail
        else seek.limit
    )
    found = reading.read(
        topic,
        starts,
        ends,
        latest_version=governed.subject.version if governed.subject else None,
        key_version=governed.key_version,
        limit=most,
        keep=keep,
    )
    rows = found.rows[-seek.limit :] if seek.tail else found.rows
    if backward:
        return found, rows, _before(found, rows, chosen, starts, ends)
    return found, rows, _older(rows, starts, chosen, seek, filtered=keep is not None)


def _before(
    found: MessageSlice,
    shown: tuple[ShownMessage, ...],
    bounds: OffsetBounds,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> str | None:
    """Return the cursor from which a search backward continues, or None at the beginning."""
    offsets = dict(starts)
    if len(shown) < len(found.rows):  # those that were found and not shown come next
        left = {row.partition for row in found.rows[: -len(shown)]}
        first = {row.partition: row.offset for row in reversed(shown)}
        offsets |= {p: first.get(p, ends[p]) for p in left}
    offsets |= {p: ends[p] for p, end in found.following.items() if end < ends[p]}
    if all(offset <= bounds[p][0] for p, offset in offsets.items()):
        return None
    return _cursor(offsets)


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
            with_bytes=True,
        )
    if not found.rows:
        return None
    before = offset - 1 if offset > bound[0] else None
    after = offset + 1 if offset + 1 < bound[1] else None
    name, shown = subject.subject if subject else None, found.rows[0]
    return OneMessage(topic, name, shown, shown.size > 0 and not shown.bytes, before, after)


def _starts(
    reading: PageReader,
    topic: str,
    bounds: OffsetBounds,
    seek: StartPosition,
    backward_from: Mapping[int, int] | None,
) -> dict[int, int]:
    """Return the first offset to read of each partition; `backward_from` are ends of a search."""
    if backward_from is not None:
        share = max(1, _MAX_TAIL_MESSAGES // len(bounds))
        wanted: Mapping[int, int] = {p: end - share for p, end in backward_from.items()}
    elif seek.cursor is not None:
        wanted = seek.cursor
    elif seek.time_ms is not None:
        wanted = reading.at_time(topic, bounds, seek.time_ms)
    elif seek.offset is not None:
        wanted = dict.fromkeys(bounds, seek.offset)
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
    if seek.tail:  # messages that were read and not shown are older, too
        shown = {row.partition for row in rows}
        firsts = {p: o if p in shown else bounds[p][1] for p, o in firsts.items()}
    if all(offset <= bounds[p][0] for p, offset in firsts.items()):
        return None
    share = max(1, seek.limit // len(bounds))
    return _cursor({p: max(bounds[p][0], offset - share) for p, offset in firsts.items()})


def _cursor(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{p}:{o}" for p, o in sorted(offsets.items()))
