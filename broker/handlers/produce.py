"""Produce: check each batch, give it its offset, write, answer.

Three steps, so that all requests of one read pass share the writes: `stage` (check and place each
batch, in the receive buffer), `commit` (one write per partition), `finish` (the replies; those of
acks=all when the flush is done).

Rules: a batch is taken whole or refused with the code that says why; nothing is guessed or
repaired. acks=0 is never answered; an error there closes the connection, which is the only sign
the client can get.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from headworks._broker.handlers.client import Client
from headworks._broker.handlers.leadership import unavailable_error
from headworks._broker.handlers.node import Node
from headworks._broker.handlers.record_validation import (
    NOT_VALIDATED,
    RejectedBatchError,
    ValidationResult,
)
from headworks._broker.log import (
    DuplicateBatchError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
)
from headworks._broker.topics import HostedPartition, StorageFailureError
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.protocol.apis import APIS, ApiKey
from headworks._kafka.protocol.frame import Header
from headworks._kafka.protocol.produce import (
    PartitionRecords,
    ProduceRequest,
    ProduceResult,
    encode_reply,
)
from headworks._kafka.records import InvalidBatchError, check_batch, restamp_append_time
from headworks._kafka.records.batch import (
    APPEND_TIME,
    CONTROL,
    LENGTH_PREFIX,
    TRANSACTIONAL,
    Batch,
    Buffer,
)
from headworks._kafka.records.compression import Codec
from headworks.errors import RefusedError

__all__ = ["PendingProduce", "ReplySink", "StagedProduce", "check_produced_batch", "commit"]

_ALL = -1
_LAST_CODEC = int(Codec.ZSTD)
_SHOWN = 249  # characters of what a client calls a topic
_OF_PRODUCERS = 0b111111  # codec, kind of timestamp, transactional, control
_CODES = {
    "torn": ErrorCode.CORRUPT_MESSAGE,
    "crc": ErrorCode.CORRUPT_MESSAGE,
    "length": ErrorCode.CORRUPT_MESSAGE,
    "magic": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}


class ReplySink(Protocol):
    """Where the answers of a connection go; `place` is what it gave the request."""

    client: Client

    def produced(self, place: Any, frame: bytes) -> None:
        """The reply to a produce request."""

    def close(self, reason: str) -> None:
        """Something went wrong that can be told in no other way."""


class StagedProduce(Protocol):
    """What was staged of one request or several, to be written and answered."""

    acks: int
    touched: list[tuple[int, HostedPartition, int]]  # result's number, partition, end

    def fail(self, partition: HostedPartition, message: str) -> None:
        """Writing to `partition` failed: nothing that was staged there happened."""

    def finish(self) -> None:
        """Answer, now or when everything touched is on disk."""


class PendingProduce:
    """One produce request on its way."""

    __slots__ = ("_answers", "_header", "_place", "_waiting", "acks", "results", "touched")

    def __init__(self, header: Header, acks: int, answers: ReplySink, place: Any) -> None:
        self.acks = acks
        self.results: list[ProduceResult] = []
        self.touched: list[tuple[int, HostedPartition, int]] = []  # result's number, partition, end
        self._header = header
        self._answers = answers
        self._place = place
        self._waiting = 0

    def stage(
        self,
        node: Node,
        request: ProduceRequest,
        buffer: bytearray,
        inspection: ValidationResult = NOT_VALIDATED,
    ) -> None:
        """Check and place every part."""
        refusal = _refusal(self._header, request) or _doubt(node)
        client = self._answers.client
        for number, part in enumerate(request.partitions):
            try:
                if refusal is not None:
                    raise refused(*refusal)
                if not client.may_use_topic(ApiKey.PRODUCE, part.topic):
                    raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "may not write this topic")
                partition = _find(node, part)
                refused_by = inspection.refusals.get(number)
                self.results.append(self._stage_part(node, partition, part, buffer, refused_by))
            except RefusedError as error:
                client.count_error(ApiKey.PRODUCE, error.code)
                result = _result(part, ErrorCode(error.code), str(error))
                if isinstance(error, RejectedBatchError):
                    result = result._replace(records=error.records)
                self.results.append(result)

    def _stage_part(
        self,
        node: Node,
        partition: HostedPartition,
        part: PartitionRecords,
        buffer: bytearray,
        refusal: RejectedBatchError | None,
    ) -> ProduceResult:
        try:
            batch = check_produced_batch(buffer, part.start, part.stop, partition)
            if refusal is not None:
                raise refusal
        except RefusedError as error:
            partition.log_rejected_batch(error, self._answers.client.peer)
            raise
        log, append_time = partition.log, -1
        if partition.config.append_time:
            append_time = int(node.clock() * 1000)
            restamp_append_time(buffer, batch, append_time)
            batch = batch._replace(max_timestamp=append_time)
        number = len(self.results)
        try:
            base = partition.stage(memoryview(buffer), batch)
        except DuplicateBatchError as duplicate:
            base = duplicate.base_offset
        except OutOfOrderSequenceError as error:
            raise refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        except InvalidProducerEpochError as error:
            raise refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None
        except StorageFailureError as error:
            raise refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        self.touched.append((number, partition, base + batch.last_offset_delta + 1))
        return ProduceResult(part.topic, part.partition, 0, base, append_time, log.log_start_offset)

    def fail(self, partition: HostedPartition, message: str) -> None:
        """Writing to `partition` failed: nothing that was staged there happened."""
        self._set_error({n for n, touched, _ in self.touched if touched is partition}, message)
        self.touched = [entry for entry in self.touched if entry[1] is not partition]

    def finish(self) -> None:
        """Answer, now or when everything touched is on disk."""
        if self.acks != _ALL or not self.touched:
            self._answer()
            return
        self._waiting = len(self.touched)
        for number, partition, end in self.touched:
            partition.when_flushed(end, partial(self._flushed, number))

    def _flushed(self, number: int, error: str | None) -> None:
        if error is not None:
            self._set_error({number}, error)
        self._waiting -= 1
        if not self._waiting:
            self._answer()

    def _set_error(self, numbers: set[int], message: str) -> None:
        for number in numbers:
            old = self.results[number]
            self._answers.client.count_error(ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR)
            self.results[number] = ProduceResult(
                old.topic, old.partition, ErrorCode.KAFKA_STORAGE_ERROR, message=message
            )

    def _answer(self) -> None:
        if self.acks:
            header = self._header
            frame = encode_reply(header.correlation_id, header.version, self.results)
            self._answers.produced(self._place, frame)
            return
        for result in self.results:
            if result.error:
                where = f"partition {result.partition} of {result.topic[:_SHOWN]!r}"
                self._answers.close(f"acks=0 to {where}: {result.message}")
                return


def commit(productions: Sequence[StagedProduce]) -> None:
    """Write what `productions` staged, once per partition, and answer them in order."""
    urgent: dict[HostedPartition, bool] = {}
    for production in productions:
        for _, partition, _ in production.touched:
            urgent[partition] = urgent.get(partition, False) or production.acks == _ALL
    for partition, flag in urgent.items():
        try:
            partition.commit(urgent=flag)
        except StorageFailureError as error:
            for production in productions:
                production.fail(partition, str(error))
    for production in productions:
        production.finish()


def _refusal(header: Header, request: ProduceRequest) -> tuple[ErrorCode, str] | None:
    """Why the whole request cannot be taken."""
    if header.version < APIS[ApiKey.PRODUCE].served_from:
        return ErrorCode.UNSUPPORTED_VERSION, f"produce v{header.version} is not supported"
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE, "transactions are not supported"
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks cannot be {request.acks}"
    return None


def _doubt(node: Node) -> tuple[ErrorCode, str] | None:
    """Why nothing can be taken now."""
    if node.coordination.lease_valid:
        return None
    return ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is not sure of its place in the cluster"


def _find(node: Node, part: PartitionRecords) -> HostedPartition:
    partition = node.hosted.partition(part.topic, part.partition)
    if partition is not None:
        return partition
    code = unavailable_error(node, part.topic, part.partition)
    if code is ErrorCode.KAFKA_STORAGE_ERROR:
        raise refused(code, node.hosted.topics[part.topic].refused[part.partition].reason)
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise refused(code, f"{part.topic}-{part.partition} is another broker's")
    raise refused(code, f"there is no partition {part.partition} of {part.topic[:_SHOWN]!r}")


def check_produced_batch(
    buffer: Buffer, start: int, stop: int, partition: HostedPartition
) -> Batch:
    """The batch of a part; everything that can be wrong with it is a RefusedError with its code."""
    size = stop - start
    if size <= 0:
        raise refused(ErrorCode.INVALID_RECORD, "there are no records")
    if size > partition.config.max_message_bytes:
        raise refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{size} bytes exceed max.message.bytes = {partition.config.max_message_bytes}",
        )
    try:
        batch = check_batch(buffer, start, stop)
    except InvalidBatchError as error:
        raise refused(_CODES[error.reason], str(error)) from None
    if batch.length + LENGTH_PREFIX != size:
        raise refused(ErrorCode.INVALID_RECORD, "there is more than one batch for a partition")
    if batch.record_count < 1 or batch.record_count != batch.last_offset_delta + 1:
        raise refused(
            ErrorCode.INVALID_RECORD,
            f"{batch.record_count} records do not fill offsets 0 to {batch.last_offset_delta}",
        )
    if not 0 <= batch.attributes <= _LAST_CODEC:
        _check_attributes(batch)
    if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        raise refused(
            ErrorCode.INVALID_RECORD, "an idempotent producer needs an epoch and a sequence"
        )
    return batch


def _check_attributes(batch: Batch) -> None:
    """Attributes that say more than which codec."""
    attributes = batch.attributes
    if attributes & (TRANSACTIONAL | CONTROL):
        code = ErrorCode.INVALID_RECORD if attributes & CONTROL else ErrorCode.INVALID_TXN_STATE
        raise refused(code, "control and transactional batches are not supported")
    if attributes & APPEND_TIME:
        raise refused(ErrorCode.INVALID_TIMESTAMP, "only the log may stamp append times")
    if attributes & ~_OF_PRODUCERS:
        raise refused(ErrorCode.INVALID_RECORD, f"attributes {attributes:#x} are not a producer's")
    if batch.codec > Codec.ZSTD:
        raise refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {batch.codec} is unknown")


def _result(part: PartitionRecords, code: ErrorCode, message: str) -> ProduceResult:
    return ProduceResult(part.topic, part.partition, code, message=message)
