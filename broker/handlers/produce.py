"""Produce: check each batch, assign its offsets, write it, and reply.

Three steps let all requests of one read pass share their writes:

1. `stage` checks each batch in the receive buffer and assigns its offsets.
2. `commit` writes once per partition.
3. `finish` replies; with acks=all, when the flush is done.

Rules: a batch is accepted as a whole, or rejected with the code that says why. Nothing is guessed
or repaired. A topic may ask that refused records become dead letters instead (`dead_letters`). A
request with acks=0 gets no reply. If it fails, the broker closes the connection, which is the only
way to report it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from headworks._broker.handlers.client import Client
from headworks._broker.handlers.dead_letters import DeadLetters, target_partition
from headworks._broker.handlers.leadership import internal_topic, unavailable_error
from headworks._broker.handlers.node import Node
from headworks._broker.handlers.record_validation import (
    NOT_VALIDATED,
    RejectedBatchError,
    ValidationResult,
)
from headworks._broker.log import (
    DuplicateBatchError,
    InvalidProducerEpochError,
    OpenTransactionError,
    OutOfOrderSequenceError,
)
from headworks._broker.topics import HostedPartition, StorageFailureError
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.protocol.apis import APIS, ApiKey
from headworks._kafka.protocol.frame import RequestHeader
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

_PRODUCE = int(ApiKey.PRODUCE)

_ACKS_ALL = -1
_LAST_CODEC = int(Codec.ZSTD)
_MAX_SHOWN_CHARACTERS = 249  # of the name that a client gives a topic
_PRODUCER_ATTRIBUTES = 0b111111  # codec, timestamp type, transactional, control
_ERROR_CODES = {
    "torn": ErrorCode.CORRUPT_MESSAGE,
    "crc": ErrorCode.CORRUPT_MESSAGE,
    "length": ErrorCode.CORRUPT_MESSAGE,
    "magic": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}


class ReplySink(Protocol):
    """Takes the replies of one connection; `slot` is the place that it reserved for a request."""

    client: Client

    def produced(self, slot: Any, frame: bytes) -> None:
        """Send the reply to a produce request."""

    def close(self, reason: str) -> None:
        """Close the connection, because the client cannot be told the reason in a reply."""


class StagedProduce(Protocol):
    """One request, or several coalesced ones, between `stage` and the reply."""

    acks: int
    touched: list[tuple[int, HostedPartition, int]]  # result number, partition, end offset

    def fail(self, partition: HostedPartition, message: str) -> None:
        """Record that writing to `partition` failed: nothing staged there was appended."""

    def finish(self) -> None:
        """Reply now, or when everything is flushed."""


class PendingProduce:
    """One produce request between its arrival and its reply."""

    __slots__ = (
        "_header",
        "_sink",
        "_slot",
        "_transactional_id",
        "_unflushed",
        "acks",
        "results",
        "touched",
    )

    def __init__(self, header: RequestHeader, acks: int, sink: ReplySink, slot: Any) -> None:
        self.acks = acks
        self.results: list[ProduceResult] = []
        self.touched: list[tuple[int, HostedPartition, int]] = []  # as in `StagedProduce`
        self._header = header
        self._sink = sink
        self._slot = slot
        self._transactional_id: str | None = None
        self._unflushed = 0  # partitions that the reply waits for

    def stage(
        self,
        node: Node,
        request: ProduceRequest,
        buffer: bytearray,
        validation: ValidationResult = NOT_VALIDATED,
    ) -> None:
        """Check the batch of each partition and assign its offsets."""
        refusal = _refusal(self._header, request) or _lease_refusal(node)
        self._transactional_id = request.transactional_id
        client = self._sink.client
        for part in request.partitions:
            try:
                if refusal is not None:
                    raise refused(*refusal)
                topic = part.topic  # a name, but for clients that name topics by their ids
                name = topic if isinstance(topic, str) else node.hosted.name_of(topic)
                if name is None:
                    raise refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
                if not client.may_use_topic(_PRODUCE, name):
                    raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "may not write this topic")
                partition = _partition(node, name, part.partition)
                self.results.append(self._stage_part(node, partition, part, buffer, validation))
            except RefusedError as error:
                client.count_error(_PRODUCE, error.code)
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
        validation: ValidationResult,
    ) -> ProduceResult:
        number = len(self.results)
        try:
            batch = check_produced_batch(
                buffer, part.start, part.stop, partition, transactional=True
            )
            if batch.attributes & TRANSACTIONAL:
                _check_transaction(node, partition, batch, self._transactional_id)
            if number in validation.refusals:
                raise validation.refusals[number]
            letters = validation.dead_letters.get(number)
            target = None if letters is None else target_partition(node, letters)
            if letters is not None:
                buffer = validation.replacements[number]
                batch = check_batch(buffer)
            elif number in validation.replacements:
                buffer = validation.replacements[number]
                batch = check_produced_batch(buffer, 0, len(buffer), partition, transactional=True)
        except RefusedError as error:
            partition.log_rejected_batch(error, self._sink.client.peer)
            raise
        log, append_time = partition.log, -1
        if partition.config.append_time:
            append_time = int(node.clock() * 1000)
            restamp_append_time(buffer, batch, append_time)
            batch = batch._replace(max_timestamp=append_time)
        try:
            base = partition.stage(memoryview(buffer), batch)
        except DuplicateBatchError as duplicate:
            base = duplicate.base_offset
        except OutOfOrderSequenceError as error:
            raise refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        except InvalidProducerEpochError as error:
            raise refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None
        except OpenTransactionError as error:
            raise refused(ErrorCode.INVALID_TXN_STATE, str(error)) from None
        except StorageFailureError as error:
            raise refused(partition.failure_code, str(error)) from None
        self.touched.append((number, partition, base + batch.last_offset_delta + 1))
        if letters is not None and target is not None:
            self._stage_dead_letters(node, target, letters, base)
        return ProduceResult(part.topic, part.partition, 0, base, append_time, log.log_start_offset)

    def _stage_dead_letters(
        self, node: Node, target: HostedPartition, letters: DeadLetters, base: int
    ) -> None:
        """Stage the records that the batch at offset `base` lacks."""
        number, peer = len(self.results), self._sink.client.peer
        for buffer in letters.batches(base):
            batch = check_batch(buffer)
            if target.config.append_time:
                restamp_append_time(buffer, batch, int(node.clock() * 1000))
            try:
                first = target.stage(memoryview(buffer), batch)
            except StorageFailureError as error:
                message = f"{target} takes no dead letters: {error}"
                raise refused(ErrorCode.KAFKA_STORAGE_ERROR, message) from None
            self.touched.append((number, target, first + batch.last_offset_delta + 1))
        count, reason = len(letters.records), next(iter(letters.reasons.values()))
        node.counters.dead_letters[letters.source.topic] += count
        letters.source.log_dead_letters(count, letters.topic, reason, peer)

    def fail(self, partition: HostedPartition, message: str) -> None:
        """Record that writing to `partition` failed: nothing staged there was appended."""
        failed = {n for n, touched, _ in self.touched if touched is partition}
        self._set_error(failed, partition.failure_code, message)
        self.touched = [entry for entry in self.touched if entry[1] is not partition]

    def finish(self) -> None:
        """Reply now, or when everything is flushed."""
        if self.acks != _ACKS_ALL or not self.touched:
            self._reply()
            return
        self._unflushed = len(self.touched)
        for number, partition, end in self.touched:
            partition.when_flushed(end, partial(self._flushed, number, partition))

    def _flushed(self, number: int, partition: HostedPartition, error: str | None) -> None:
        if error is not None:
            self._set_error({number}, partition.failure_code, error)
        self._unflushed -= 1
        if not self._unflushed:
            self._reply()

    def _set_error(self, numbers: set[int], code: ErrorCode, message: str) -> None:
        for number in numbers:
            old = self.results[number]
            self._sink.client.count_error(_PRODUCE, code)
            self.results[number] = ProduceResult(old.topic, old.partition, code, message=message)

    def _reply(self) -> None:
        if self.acks:
            header = self._header
            frame = encode_reply(header.correlation_id, header.version, self.results)
            self._sink.produced(self._slot, frame)
            return
        for result in self.results:
            if result.error:
                topic = result.topic[:_MAX_SHOWN_CHARACTERS]
                shown = repr(topic) if isinstance(topic, str) else f"the topic {UUID(bytes=topic)}"
                where = f"partition {result.partition} of {shown}"
                self._sink.close(f"acks=0 to {where}: {result.message}")
                return


def commit(staged: Sequence[StagedProduce]) -> None:
    """Write what was staged, once per partition, and reply in order."""
    urgent: dict[HostedPartition, bool] = {}
    for produce in staged:
        for _, partition, _ in produce.touched:
            urgent[partition] = urgent.get(partition, False) or produce.acks == _ACKS_ALL
    for partition, flag in urgent.items():
        try:
            partition.commit(urgent=flag)
        except StorageFailureError as error:
            for produce in staged:
                produce.fail(partition, str(error))
    for produce in staged:
        produce.finish()


def _refusal(header: RequestHeader, request: ProduceRequest) -> tuple[ErrorCode, str] | None:
    """Return why the whole request is rejected, if it is."""
    if header.version < APIS[_PRODUCE].served_from:
        return ErrorCode.UNSUPPORTED_VERSION, f"produce v{header.version} is not supported"
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks cannot be {request.acks}"
    return None


def _lease_refusal(node: Node) -> tuple[ErrorCode, str] | None:
    """Return why this broker accepts no request now, if it does not."""
    if node.coordination.lease_valid:
        return None
    return ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is not sure of its place in the cluster"


def _partition(node: Node, topic: str, index: int) -> HostedPartition:
    partition = node.hosted.partition(topic, index)
    if partition is not None:
        if partition.internal:
            raise internal_topic(topic)
        return partition
    code = unavailable_error(node, topic, index)
    if code is ErrorCode.KAFKA_STORAGE_ERROR:
        raise refused(code, node.hosted.topics[topic].refused[index].reason)
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise refused(code, f"{topic}-{index} is another broker's")
    raise refused(code, f"there is no partition {index} of {topic[:_MAX_SHOWN_CHARACTERS]!r}")


def check_produced_batch(
    buffer: Buffer,
    start: int,
    stop: int,
    partition: HostedPartition,
    *,
    transactional: bool = False,
) -> Batch:
    """Return the batch at `start`..`stop`. RefusedError, with the code, if it is not acceptable.

    A batch of a transaction is accepted if `transactional`: the caller checks its transaction.
    """
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
        raise refused(_ERROR_CODES[error.reason], str(error)) from None
    if batch.length + LENGTH_PREFIX != size:
        raise refused(ErrorCode.INVALID_RECORD, "there is more than one batch for a partition")
    if batch.record_count < 1 or batch.record_count != batch.last_offset_delta + 1:
        raise refused(
            ErrorCode.INVALID_RECORD,
            f"{batch.record_count} records do not fill offsets 0 to {batch.last_offset_delta}",
        )
    if not 0 <= batch.attributes <= _LAST_CODEC:
        _check_attributes(batch, transactional=transactional)
    if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        raise refused(
            ErrorCode.INVALID_RECORD, "an idempotent producer needs an epoch and a sequence"
        )
    return batch


def _check_transaction(
    node: Node, partition: HostedPartition, batch: Batch, transactional_id: str | None
) -> None:
    """Reject a batch that no ongoing transaction may write."""
    if node.transactions is None:
        raise refused(ErrorCode.INVALID_TXN_STATE, "this broker has no transactions")
    node.transactions.check_batch(
        transactional_id, batch.producer_id, batch.producer_epoch, partition
    )


def _check_attributes(batch: Batch, *, transactional: bool) -> None:
    """Reject attributes that a producer may not set: only a codec, and a transaction."""
    attributes = batch.attributes
    if attributes & CONTROL:
        raise refused(ErrorCode.INVALID_RECORD, "only the broker writes control batches")
    if attributes & TRANSACTIONAL and not (transactional and batch.producer_id >= 0):
        raise refused(ErrorCode.INVALID_TXN_STATE, "the batch belongs to no transaction")
    if attributes & APPEND_TIME:
        raise refused(ErrorCode.INVALID_TIMESTAMP, "only the log may stamp append times")
    if attributes & ~_PRODUCER_ATTRIBUTES:
        raise refused(ErrorCode.INVALID_RECORD, f"attributes {attributes:#x} are not a producer's")
    if batch.codec > Codec.ZSTD:
        raise refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {batch.codec} is unknown")


def _result(part: PartitionRecords, code: ErrorCode, message: str) -> ProduceResult:
    return ProduceResult(part.topic, part.partition, code, message=message)
