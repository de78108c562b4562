"""The order in which a topic's messages are decoded: that of the files, once there are many.

Rules:

- The order spares a copy of all columns and decides nothing (see `event_times`).
- The program that reads the event times takes as long to make as copying some thousand rows. So it
  is made for a schema that has many messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hadoop_loader._decode.topic_batch import TopicBatch
from hadoop_loader._fetch.messages import MessageColumns
from hadoop_loader._fetch.row_numbers import Numbers
from headworks.schema import Schema

if TYPE_CHECKING:
    from hadoop_loader._decode.event_times import EventTimes

ORDERED_FROM = 5_000  # messages of a schema


class RowOrder:
    """Orders messages of one topic, whose event time is at `path` of `reader`.

    A `path` of None, or a decoder that is not compiled, leaves all messages in the log's order.
    """

    def __init__(
        self, batch: TopicBatch, reader: Schema, path: tuple[str, ...] | None, *, compiled: bool
    ) -> None:
        self._batch, self._reader = batch, reader
        self._path = path if compiled else None
        self._seen: dict[int, int] = {}  # messages so far, by schema id
        # By schema id; None: the times are not known beforehand.
        self._times: dict[int, EventTimes | None] = {}

    def of(
        self, schema_id: int, writer: Callable[[], Schema], messages: MessageColumns
    ) -> Numbers | None:
        """Return the order of messages that `writer` wrote, None for theirs."""
        if self._path is None:
            return None
        self._seen[schema_id] = self._seen.get(schema_id, 0) + len(messages)
        if self._seen[schema_id] < ORDERED_FROM:
            return None
        if schema_id not in self._times:
            from hadoop_loader._decode.event_times import EventTimes

            self._times[schema_id] = EventTimes.of(writer(), self._reader, self._path)
        times = self._times[schema_id]
        return None if times is None else self._batch.order(times.read(messages))
