"""The messages and partitions that a consumer returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from consumer_sdk._untyped_events import event_name

T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """The event of a tombstone: a compacted topic forgets the earlier messages with this key.

    `event_class` is the class whose topic this is, or `dict`.
    """

    event_class: type[T]
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Message(Generic[T]):
    """An event and its position in the log; `timestamp` is milliseconds since 1970 UTC.

    `schema_id` is the id of the schema it was written with, `schema_version` that schema's version
    in the topic's subject (None if it was never registered there). A tombstone has no schema: its
    id is 0.
    """

    event: T
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    headers: Headers
    schema_id: int
    schema_version: int | None

    @property
    def event_name(self) -> str | None:
        """The full name of the event's record, also if it is a dict; None if it is no record."""
        return event_name(self.event)


class _OpenMessage(Generic[T]):
    """A message while it is made. It has the layout of a `Message`, and is not frozen yet."""

    __slots__ = Message.__slots__

    def __init__(
        self,
        event: T,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        headers: Headers,
        schema_id: int,
        schema_version: int | None,
    ) -> None:
        self.event = event
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.headers = headers
        self.schema_id = schema_id
        self.schema_version = schema_version


def new_message(*fields: Any) -> Message[Any]:
    """Return a message of these fields, in their order.

    The constructor of a frozen dataclass takes three times as long, for every message.
    """
    message: Any = _OpenMessage(*fields)
    message.__class__ = Message  # of the same layout
    return message  # type: ignore[no-any-return]
