"""Produce requests that arrive together and match each other, handled as one.

A client with many requests in flight fills the receive buffer with requests that differ only in
their correlation id and their records. Consecutive valid requests for one partition become one
`CoalescedProduce`: their batches are staged one after the other, committed once, and answered
together.

Rule: a coalesced produce contains only requests that succeed. The first request that needs more
ends it and is handled on its own. Examples are a rejected batch, a duplicate of an idempotent
producer, and a topic whose log stamps append times.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from headworks._broker.handlers.leadership import partition_of
from headworks._broker.handlers.node import Node
from headworks._broker.handlers.produce import ReplySink, check_produced_batch
from headworks._broker.topics import HostedPartition, StorageFailureError
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.produce import (
    MatchedRequest,
    ProduceResult,
    ProduceTemplate,
    encode_offset_replies,
    encode_reply,
)
from headworks._kafka.records.batch import plain_run
from headworks.errors import RefusedError

_PRODUCE = int(ApiKey.PRODUCE)

_ACKS_ALL = -1
_HANDLED_ALONE = (RefusedError, StorageFailureError)


class CoalescedProduce:
    """Requests whose batches are staged in one partition; `commit` treats them as one request."""

    __slots__ = (
        "_failure",
        "_partition",
        "_placed",
        "_sink",
        "_topic",
        "_version",
        "acks",
        "after",
        "count",
        "slot",
        "touched",
    )

    def __init__(
        self, template: ProduceTemplate, partition: HostedPartition, sink: ReplySink
    ) -> None:
        self.acks = template.acks
        self.count = 0  # of staged requests
        self.after = 0  # where the next request begins in the buffer
        self.slot: Any = None  # the place of the replies, which the caller sets
        self.touched = [(0, partition, 0)]  # result number, partition, end offset
        self._failure: str | None = None  # why the batches were not written
        self._sink = sink
        self._partition = partition
        self._placed: list[tuple[int, int]] = []  # correlation id and base offset of each request
        self._topic, self._version = template.topic, template.version

    def stage(self, requests: Iterator[MatchedRequest], view: memoryview) -> None:
        """Stage requests up to the first that cannot be staged."""
        partition = self._partition
        index, limit = partition.index, partition.config.max_message_bytes
        taken, spans = list[MatchedRequest](), list[tuple[int, int]]()
        for request in requests:
            taken.append(request)
            _, requested, start, stop, _ = request
            if requested != index or stop - start > limit:
                break
            spans.append((start, stop))
        run = plain_run(view, spans)
        bases = partition.stage_plain(view, run) if run.batches else None
        if bases is None:
            self._stage_each(chain(taken, requests), view)
            return
        self._placed = [(one[0], base) for one, base in zip(taken, bases, strict=False)]
        self.count = count = len(bases)
        self.after = taken[count - 1][-1]
        self.touched = [(0, partition, bases[-1] + run.batches[-1][2])]

    def _stage_each(self, requests: Iterator[MatchedRequest], view: memoryview) -> None:
        """Stage batches one by one, if they are no run that the log takes at once."""
        partition, placed = self._partition, self._placed
        index, end = partition.index, 0
        for correlation_id, requested, start, stop, after in requests:
            if requested != index:
                break
            try:
                batch = check_produced_batch(view, start, stop, partition)
                base = partition.stage(view, batch)
            except _HANDLED_ALONE:
                break
            placed.append((correlation_id, base))
            end = base + batch.last_offset_delta + 1
            self.after = after
        self.count = len(placed)
        self.touched = [(0, partition, end)]

    def fail(self, partition: HostedPartition, message: str) -> None:
        """Record that writing to `partition` failed: nothing staged there was appended."""
        if partition is self._partition:
            self._failure, self.touched = message, []

    def finish(self) -> None:
        """Reply now, or when everything is flushed."""
        if self.acks != _ACKS_ALL or not self.touched:
            self._reply()
            return
        [(_, partition, end)] = self.touched
        partition.when_flushed(end, self._flushed)

    def _flushed(self, error: str | None) -> None:
        self._failure = error
        self._reply()

    def _reply(self) -> None:
        partition = self._partition
        if self._failure is not None:
            self._reply_error(self._failure)
        elif self.acks:
            start = partition.log.log_start_offset
            frames = encode_offset_replies(
                self._version, self._topic, partition.index, start, self._placed
            )
            self._sink.produced(self.slot, frames)

    def _reply_error(self, message: str) -> None:
        if not self.acks:
            self._sink.close(f"acks=0 to {self._partition}: {message}")
            return
        code = self._partition.failure_code
        result = ProduceResult(self._topic, self._partition.index, code, message=message)
        frames = []
        for correlation_id, _ in self._placed:
            self._sink.client.count_error(_PRODUCE, code)
            frames.append(encode_reply(correlation_id, self._version, [result]))
        self._sink.produced(self.slot, b"".join(frames))


def coalesce(
    node: Node,
    template: ProduceTemplate,
    requests: Iterator[MatchedRequest],
    buffer: bytearray,
    limit: int,
    sink: ReplySink,
) -> CoalescedProduce | None:
    """Stage up to `limit` of `requests`, which match the template, as one.

    Return None if the first request must be handled on its own.
    """
    first = next(requests, None)
    if first is None:
        return None
    topic = template.topic
    name = topic if isinstance(topic, str) else node.hosted.name_of(topic)
    if name is None:
        return None
    partition = partition_of(node, name, first[1])
    if (
        isinstance(partition, ErrorCode)
        or partition.internal
        or partition.config.append_time
        or name in node.hosted.opened_topics
        or not sink.client.may_use_topic(_PRODUCE, name)
    ):
        return None
    produce = CoalescedProduce(template, partition, sink)
    produce.stage(chain((first,), islice(requests, limit - 1)), memoryview(buffer))
    if not produce.count:
        return None
    node.counters.requests[_PRODUCE] += produce.count
    return produce
