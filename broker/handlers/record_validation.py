"""Validate the records of topics that require it.

A compacted topic requires a key. `headworks.schema.validation` requires a registered schema id.

Rules:

- The batches of other topics are not opened.
- A batch is accepted or rejected as a whole. The error names the invalid records, what is wrong
  with them, and the fix.
- The decompressed size and the record count of a request's batches are bounded together.
- A large request is validated in a thread (`is_large`). `validate_batches` touches nothing that the
  event loop changes.
- A schema id that is not known is looked up before its request is handled; see `unknown_ids`. An id
  that could not be looked up is never accepted: the batch is rejected with NOT_ENOUGH_REPLICAS. For
  every client that code means "not written, retry", and no client asks for metadata in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headworks import _wire
from headworks._broker.handlers.client import Client
from headworks._broker.handlers.node import Node
from headworks._broker.topics import HostedPartition, TopicConfig
from headworks._broker.topics.schema_ids import SchemaIdCache, SchemaIdStatus, TopicSchemaId
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.produce import ProduceRequest
from headworks._kafka.records import Batch, InvalidBatchError, Record, check_batch
from headworks._kafka.records.batch import Buffer
from headworks._kafka.records.record import opened, records_in
from headworks.errors import RefusedError

__all__ = [
    "NOT_VALIDATED",
    "BatchToValidate",
    "RejectedBatchError",
    "ValidationResult",
    "batches_to_validate",
    "is_large",
    "validate_batches",
]

_MAX_NAMED_RECORDS = 100  # in one error
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
    """The errors by number of the partition in the request, and the ids to look up first."""

    refusals: dict[int, RejectedBatchError]
    unknown_ids: set[TopicSchemaId]


NOT_VALIDATED = ValidationResult({}, set())  # nothing was looked at


class BatchToValidate(NamedTuple):
    """A batch that needs validation: its number in the request, and its partition."""

    number: int
    partition: HostedPartition
    batch: Batch


@dataclass(slots=True)
class _Budget:
    """The records and bytes that may still be read for a request."""

    records: int
    bytes: int


def batches_to_validate(
    node: Node, client: Client, request: ProduceRequest, buffer: Buffer
) -> list[BatchToValidate]:
    """Return the batches whose topics need validation. Other errors are not checked here."""
    found = []
    for number, part in enumerate(request.partitions):
        partition = node.hosted.partition(part.topic, part.partition)
        if partition is None or not client.sees_topic(ApiKey.PRODUCE, part.topic):
            continue
        config = partition.config
        if (
            not config.validates_records
            or not 0 < part.stop - part.start <= config.max_message_bytes
        ):
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
    packed = sum(one.batch.size for one in asked if one.batch.codec)
    return records > _LARGE_RECORDS or packed > _LARGE_BYTES


def validate_batches(
    asked: Sequence[BatchToValidate], buffer: Buffer, ids: SchemaIdCache | None
) -> ValidationResult:
    """Validate the batches, which lie in `buffer`."""
    found = ValidationResult({}, set())
    limits = [_EXPANSION_FACTOR * one.partition.config.max_message_bytes for one in asked]
    left = _Budget(_MAX_RECORDS, max([_MIN_LIMIT_BYTES, *limits]))
    for number, partition, batch in asked:
        left.records -= max(batch.record_count, 0)
        refusal = (
            _judge(partition, buffer, batch, ids, found.unknown_ids, left)
            if left.records >= 0
            else _too_many(partition)
        )
        if refusal is not None:
            found.refusals[number] = refusal
    return found


def _judge(
    partition: HostedPartition,
    buffer: Buffer,
    batch: Batch,
    ids: SchemaIdCache | None,
    missing: set[TopicSchemaId],
    left: _Budget,
) -> RejectedBatchError | None:
    config = partition.config
    if config.schema_validation and ids is None:
        return _later(f"{partition} checks schema ids, and this broker has no --registry to ask")
    bad: list[tuple[int, str]] = []
    asked: dict[int, SchemaIdStatus] = {}
    try:
        data = opened(buffer, batch, limit=left.bytes)
        if batch.codec:
            left.bytes -= len(data)
        for number, record in enumerate(records_in(data, batch)):
            wrong = _wrong(partition.topic, config, ids, batch, number, record, asked)
            if wrong is not None:
                bad.append((number, wrong))
                if len(bad) == _MAX_NAMED_RECORDS:
                    break
    except InvalidBatchError as error:
        return RejectedBatchError(ErrorCode.INVALID_RECORD, f"{partition}: {error}")
    wanted = [
        (partition.topic, one) for one, seen in asked.items() if seen is SchemaIdStatus.NOT_CACHED
    ]
    missing.update(wanted[: max(0, _MAX_LOOKUPS - len(missing))])
    if bad:
        number, wrong = bad[0]
        least = "at least " if len(bad) == _MAX_NAMED_RECORDS else ""
        more = f" ({least}{len(bad)} of the batch's records are refused)" if len(bad) > 1 else ""
        message = f"{partition}: record {number} of the batch: {wrong}{more}"
        return RejectedBatchError(ErrorCode.INVALID_RECORD, message, tuple(bad))
    unsure = [
        schema_id for schema_id, verdict in asked.items() if verdict is not SchemaIdStatus.KNOWN
    ]
    if not unsure:
        return None
    assert ids is not None
    return _later(f"{partition}: the registry at {ids.url} does not say whether it has {unsure[0]}")


def _wrong(
    topic: str,
    config: TopicConfig,
    ids: SchemaIdCache | None,
    batch: Batch,
    number: int,
    record: Record,
    asked: dict[int, SchemaIdStatus],
) -> str | None:
    """Return what is wrong with a record, or None; note ids that are not known in `asked`."""
    if record.offset - batch.base_offset != number:
        return f"it says that it is number {record.offset - batch.base_offset}"
    if config.compacted and record.key is None:
        return "it has no key, and the topic is compacted by key: give every message a key"
    if not config.schema_validation or ids is None or record.value is None:
        return None
    try:
        schema_id, _ = _wire.unframe(record.value)
    except _wire.FramingError as error:
        return f"{error.message}; {error.fix}"
    verdict = asked.get(schema_id)
    if verdict is None:
        verdict = asked[schema_id] = ids.status(topic, schema_id)
    if verdict is SchemaIdStatus.UNKNOWN:
        return (
            f"schema id {schema_id} is not registered in subject {topic}-value at {ids.url};"
            f" register the schema there (`headworks schema register`), then produce"
        )
    return None


def _too_many(partition: HostedPartition) -> RejectedBatchError:
    return RejectedBatchError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{partition}: the broker looks into the records of this topic, and into at most"
        f" {_MAX_RECORDS} of a request: send smaller batches",
    )


def _later(message: str) -> RejectedBatchError:
    return RejectedBatchError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
