"""Produce requests that arrive together and match each other, handled as one.

A client with many requests in flight fills the receive buffer with requests that differ only in
their correlation id and their records. Consecutive valid requests for one partition become one
`CoalescedProduce`: their batches are staged one after the other, committed once, and answered
together.

Rule: a coalesced produce contains only requests that succeed. The first request that needs more
ends it and is handled on its own: a rejected batch, a duplicate of an idempotent producer, or a
topic whose log stamps append times.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, islice
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
from headworks._kafka.records.batch import plain_batches
from headworks.errors import RefusedError

__all__ = ["CoalescedProduce", "coalesce"]

_ALL = -1
_LONG_WAY = (RefusedError, StorageFailureError)


class CoalescedProduce:
    """Requests whose batches are staged in one partition; to `commit`, one production.

    `place` is where the answers go, given by who takes the run.
    """

    __slots__ = (
        "_answers",
        "_failure",
        "_partition",
        "_placed",
        "_topic",
        "_version",
        "acks",
        "after",
        "place",
        "touched",
    )

    def __init__(
        self, repeats: ProduceTemplate, partition: HostedPartition, answers: ReplySink
    ) -> None:
        self.acks = repeats.acks
        self.after = 0  # where the next request begins
        self.place: Any = None
        self.touched = [(0, partition, 0)]
        self._failure: str | None = None
        self._answers = answers
        self._partition = partition
        self._placed: list[tuple[int, int]] = []  # correlation id and base offset
        self._topic, self._version = repeats.topic, repeats.version

    def __len__(self) -> int:
        return len(self._placed)

    def stage(self, requests: Iterator[MatchedRequest], view: memoryview) -> None:
        """Stage requests until one cannot be, and look at none after that."""
        partition, taken = self._partition, list[MatchedRequest]()
        batches = plain_batches(view, self._spans(requests, taken))
        base = partition.stage_plain(view, batches) if batches else None
        if base is None:
            self._stage_each(chain(taken, requests), view)
            return
        bases = list(accumulate((count for _, _, count, _ in batches), initial=base))
        self._placed = [(one[0], at) for one, at in zip(taken, bases[:-1], strict=False)]
        self.after = taken[len(batches) - 1][-1]
        self.touched = [(0, partition, bases[-1])]

    def _spans(
        self, requests: Iterator[MatchedRequest], taken: list[MatchedRequest]
    ) -> Iterator[tuple[int, int]]:
        """Where the batches for this partition lie; what was looked at is added to `taken`."""
        index, largest = self._partition.index, self._partition.config.max_message_bytes
        for request in requests:
            taken.append(request)
            _, wanted, start, stop, _ = request
            if wanted != index or stop - start > largest:
                return
            yield start, stop

    def _stage_each(self, requests: Iterator[MatchedRequest], view: memoryview) -> None:
        """The same for batches that are not plain, or for which there is no room yet."""
        partition, placed = self._partition, self._placed
        index, end = partition.index, 0
        for correlation, wanted, start, stop, after in requests:
            if wanted != index:
                break
            try:
                batch = check_produced_batch(view, start, stop, partition)
                base = partition.stage(view, batch)
            except _LONG_WAY:
                break
            placed.append((correlation, base))
            end = base + batch.last_offset_delta + 1
            self.after = after
        self.touched = [(0, partition, end)]

    def fail(self, partition: HostedPartition, message: str) -> None:
        """Writing to `partition` failed: nothing that was staged there happened."""
        if partition is self._partition:
            self._failure, self.touched = message, []

    def finish(self) -> None:
        """Answer, now or when everything is on disk."""
        if self.acks != _ALL or not self.touched:
            self._answer()
            return
        [(_, partition, end)] = self.touched
        partition.when_flushed(end, self._flushed)

    def _flushed(self, error: str | None) -> None:
        self._failure = error
        self._answer()

    def _answer(self) -> None:
        partition = self._partition
        if self._failure is not None:
            self._refuse(self._failure)
        elif self.acks:
            start = partition.log.log_start_offset
            frames = encode_offset_replies(
                self._version, self._topic, partition.index, start, self._placed
            )
            self._answers.produced(self.place, frames)

    def _refuse(self, message: str) -> None:
        if not self.acks:
            self._answers.close(f"acks=0 to {self._partition}: {message}")
            return
        code = ErrorCode.KAFKA_STORAGE_ERROR
        result = ProduceResult(self._topic, self._partition.index, code, message=message)
        frames = []
        for correlation, _ in self._placed:
            self._answers.client.count_error(ApiKey.PRODUCE, code)
            frames.append(encode_reply(correlation, self._version, [result]))
        self._answers.produced(self.place, b"".join(frames))


def coalesce(
    node: Node,
    repeats: ProduceTemplate,
    requests: Iterator[MatchedRequest],
    buffer: bytearray,
    most: int,
    answers: ReplySink,
) -> CoalescedProduce | None:
    """Stage those of `requests`, which repeat the last one, that can be; at most `most`.

    None if not even the first can be taken so.
    """
    first = next(requests, None)
    if first is None or node.hosted.validates_records:
        return None
    partition = partition_of(node, repeats.topic, first[1])
    if (
        isinstance(partition, ErrorCode)
        or partition.config.append_time
        or not answers.client.may_use_topic(ApiKey.PRODUCE, repeats.topic)
    ):
        return None
    run = CoalescedProduce(repeats, partition, answers)
    run.stage(chain((first,), islice(requests, most - 1)), memoryview(buffer))
    if not run:
        return None
    node.counters.requests[ApiKey.PRODUCE] += len(run)
    return run
