"""Validate or recompress the records of topics that require it.

A compacted topic requires a key. `headworks.schema.validation` requires a registered schema id, and
with `payload` a datum of that schema.
`compression.type` may require another codec than the producer's.

Rules:

- The batches of other topics are not opened.
- A batch is accepted or rejected as a whole. The error names the invalid records, what is wrong
  with them, and the fix. Topics with `headworks.schema.validation.mode=dead-letter` are the
  exception: their invalid records are dead letters (`dead_letters`), unless the batch belongs to a
  transaction or a record says a wrong number.
- The decompressed size and the record count of a request's batches are bounded together.
- A large request is validated in a thread (`is_large`). `validate_batches` touches nothing that the
  event loop changes.
- A schema id that is not known is looked up before its request is handled; see `unknown_ids`. An id
  that could not be looked up is never accepted: the batch is rejected with NOT_ENOUGH_REPLICAS. For
  every client that code means "not written, retry", and no client asks for metadata in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headworks._broker.handlers.client import Client
from headworks._broker.handlers.dead_letters import DeadLetters, separate
from headworks._broker.handlers.framed_records import framed_records
from headworks._broker.handlers.node import Node
from headworks._broker.handlers.record_verdicts import MAX_NAMED_RECORDS, judge_records
from headworks._broker.topics import HostedPartition, RefusedRecords, SchemaValidation
from headworks._broker.topics.schema_ids import ANY_ID, SchemaIdCache, SubjectSchemaId
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.produce import ProduceRequest
from headworks._kafka.records import Batch, Codec, InvalidBatchError, check_batch
from headworks._kafka.records.batch import CODEC_MASK, TRANSACTIONAL, Buffer
from headworks._kafka.records.record import record_data
from headworks._kafka.records.rewrite import recompressed
from headworks.errors import RefusedError

_MAX_LOOKUPS = 64  # ids looked up for one request; with more, the client must retry
_MAX_RECORDS = 100_000  # of one request, which take a third of a second
_LARGE_RECORDS = 2_000  # a thread validates more than this, or more compressed bytes than:
_LARGE_BYTES = 256 << 10
_EXPANSION_FACTOR = 32  # times max.message.bytes
_MIN_LIMIT_BYTES = 32 << 20


class RejectedBatchError(RefusedError):
    """Why a batch is rejected; `records` are numbers in the batch, and what is wrong."""

    def __init__(
        self, code: ErrorCode, message: str, records: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message, code=code)
        self.records = records


class ValidationResult(NamedTuple):
    """The errors by number of the partition in the request, and the ids to look up first.

    `replacements` holds the batches that are written in place of those in the request, and
    `dead_letters` the records that these lack.
    """

    refusals: dict[int, RejectedBatchError]
    unknown_ids: set[SubjectSchemaId]
    replacements: dict[int, bytearray]
    dead_letters: dict[int, DeadLetters]

    @classmethod
    def empty(cls) -> ValidationResult:
        """Return the result of a request that nobody looked into."""
        return cls({}, set(), {}, {})


NOT_VALIDATED = ValidationResult.empty()


class BatchToValidate(NamedTuple):
    """A batch that needs validation: its number in the request, and its partition."""

    number: int
    partition: HostedPartition
    batch: Batch

    @property
    def codec(self) -> Codec | None:
        """The codec that the batch has to get, or None if it keeps its own."""
        wanted = self.partition.config.codec
        return None if wanted == self.batch.codec else wanted


@dataclass(slots=True)
class _Budget:
    """The records and bytes that may still be read for a request."""

    records: int
    bytes: int


def batches_to_validate(
    node: Node, client: Client, request: ProduceRequest, buffer: Buffer
) -> list[BatchToValidate]:
    """Return the batches whose topics look into them. Other errors are not checked here."""
    found = []
    for number, part in enumerate(request.partitions):
        topic = node.hosted.name_of(part.topic)
        if topic not in node.hosted.opened_topics:
            continue
        partition = node.hosted.partition(topic, part.partition)
        if partition is None or not client.sees_topic(ApiKey.PRODUCE, topic):
            continue
        if not 0 < part.stop - part.start <= partition.config.max_message_bytes:
            continue
        try:
            found.append(
                BatchToValidate(number, partition, check_batch(buffer, part.start, part.stop))
            )
        except InvalidBatchError:
            continue
    return found


def is_large(asked: Sequence[BatchToValidate]) -> bool:
    """Return whether validation would occupy the event loop for more than a few milliseconds."""
    records = sum(max(one.batch.record_count, 0) for one in asked)
    packed = sum(one.batch.size for one in asked if one.batch.codec or one.codec is not None)
    return records > _LARGE_RECORDS or packed > _LARGE_BYTES


def validate_batches(
    asked: Sequence[BatchToValidate], buffer: Buffer, ids: SchemaIdCache | None
) -> ValidationResult:
    """Validate the batches, which lie in `buffer`."""
    found = ValidationResult.empty()
    limits = [_EXPANSION_FACTOR * one.partition.config.max_message_bytes for one in asked]
    left = _Budget(_MAX_RECORDS, max([_MIN_LIMIT_BYTES, *limits]))
    for one in asked:
        config = one.partition.config
        if config.validates_records:
            left.records -= max(one.batch.record_count, 0)
        elif one.codec is None:
            continue
        refusal = (
            _check_or_rewrite(one, buffer, ids, found, left)
            if left.records >= 0
            else _too_many(one.partition)
        )
        if refusal is not None:
            found.refusals[one.number] = refusal
    return found


def _check_or_rewrite(
    one: BatchToValidate,
    buffer: Buffer,
    ids: SchemaIdCache | None,
    found: ValidationResult,
    left: _Budget,
) -> RejectedBatchError | None:
    """Return why a batch is rejected, if it is.

    The error is returned and not raised: its traceback would hold the receive buffer.
    """
    _, partition, batch = one
    try:
        data = record_data(buffer, batch, limit=left.bytes)
    except InvalidBatchError as error:
        return RejectedBatchError(ErrorCode.INVALID_RECORD, f"{partition}: {error}")
    if batch.codec:
        left.bytes -= len(data)
    bad: Mapping[int, str] = {}
    if partition.config.validates_records:
        verdict = _judge(partition, data, batch, ids, found.unknown_ids)
        if isinstance(verdict, RejectedBatchError):
            return verdict
        bad = verdict
    if bad:
        if one.codec is not None:
            batch = batch._replace(attributes=batch.attributes & ~CODEC_MASK | one.codec)
        separated = separate(partition, batch, data, bad)
        found.replacements[one.number], found.dead_letters[one.number] = separated
    elif one.codec is not None:
        found.replacements[one.number] = bytearray(recompressed(batch, data, one.codec))
    return None


def _judge(
    partition: HostedPartition,
    data: bytes,
    batch: Batch,
    ids: SchemaIdCache | None,
    missing: set[SubjectSchemaId],
) -> RejectedBatchError | Mapping[int, str]:
    """Return why the batch is rejected, or its dead letters: their numbers and the reasons."""
    config = partition.config
    if ids is None and config.schema_validation is not SchemaValidation.OFF:
        return _later(f"{partition} checks schema ids, and this broker has no --registry to ask")
    try:
        records = framed_records(data, batch)
    except InvalidBatchError as error:
        return RejectedBatchError(ErrorCode.INVALID_RECORD, f"{partition}: {error}")
    separable = (
        config.refused_records is RefusedRecords.DEAD_LETTER
        and not batch.attributes & TRANSACTIONAL
        and not records.misnumbered
    )
    most = batch.record_count if separable else MAX_NAMED_RECORDS
    verdicts = judge_records(partition.topic, config, records, ids, most=most)
    missing.update(verdicts.not_cached[: max(0, _MAX_LOOKUPS - len(missing))])
    if verdicts.bad and not separable:
        return _rejected(partition, verdicts.bad)
    if not verdicts.unsure:
        return verdicts.bad
    assert ids is not None
    unsure = verdicts.unsure[0]
    asked = unsure.subject if unsure.schema_id == ANY_ID else unsure.schema_id
    return _later(f"{partition}: the registry at {ids.url} does not say whether it has {asked}")


def _rejected(partition: HostedPartition, bad: Mapping[int, str]) -> RejectedBatchError:
    named = tuple(sorted(bad.items()))[:MAX_NAMED_RECORDS]
    number, reason = named[0]
    least = "at least " if len(bad) >= MAX_NAMED_RECORDS else ""
    more = f" ({least}{len(bad)} of the batch's records are refused)" if len(bad) > 1 else ""
    message = f"{partition}: record {number} of the batch: {reason}{more}"
    return RejectedBatchError(ErrorCode.INVALID_RECORD, message, named)


def _too_many(partition: HostedPartition) -> RejectedBatchError:
    return RejectedBatchError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{partition}: the broker looks into the records of this topic, and into at most"
        f" {_MAX_RECORDS} of a request: send smaller batches",
    )


def _later(message: str) -> RejectedBatchError:
    return RejectedBatchError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
