"""The audit topic, read from its beginning to its current end.

Rules: it reads without a consumer group, so asking changes nothing. A message that is not an audit
event stops the reading with its partition and offset: a sum with a hole proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from headworks._audit.increments import Increment, IncrementDecoder
from headworks._audit.ledger import Ledger
from headworks._audit_counting import AUDIT_TOPIC
from headworks._kafka.client_properties import READ_AHEAD, client_properties
from headworks._kafka.clients import KafkaConsumer
from headworks._kafka.damaged_batch import DamagedBatchError, damaged_batch
from headworks.errors import CorruptError, UnreachableError
from headworks.registry_client import RegistryClient

_TIMEOUT_SECONDS = 10.0


def read_ledger(bootstrap: str, registry: str) -> Ledger:
    """Sum the whole audit topic of the broker at `bootstrap`.

    An absent topic is an empty ledger. Raises UnreachableError if broker or registry does not
    answer, and CorruptError for a message that is not an audit event.
    """
    ledger = Ledger()
    for increment in _increments(bootstrap, RegistryClient(registry)):
        ledger.add(increment)
    return ledger


def _increments(bootstrap: str, registry: RegistryClient) -> Iterator[Increment]:
    decode = IncrementDecoder(registry)
    for message in _messages(bootstrap):
        try:
            yield decode(message.value() or b"")
        except CorruptError as error:
            where = f"{AUDIT_TOPIC} partition {message.partition()} offset {message.offset()}"
            raise CorruptError(f"{where} is {error.message}", fix=error.fix) from error


def read_whole(bootstrap: str, registry: str) -> Ledger | None:
    """Return the ledger as `read_ledger`, or None if the beginning of the topic is gone."""
    consumer = audit_consumer(bootstrap, "earliest")
    try:
        marks = watermarks(consumer, bootstrap)
    finally:
        consumer.close()
    return None if any(low for low, _ in marks.values()) else read_ledger(bootstrap, registry)


def _messages(bootstrap: str) -> Iterator[Message]:
    consumer = audit_consumer(bootstrap, "earliest")
    try:
        yield from _read_to_end(consumer, bootstrap)
    finally:
        consumer.close()


def audit_properties(bootstrap: str) -> dict[str, Any]:
    """Return the properties of librdkafka for a reader of the audit topic."""
    return {**client_properties(bootstrap), "group.id": "headworks-audit"}


def audit_consumer(bootstrap: str, reset: str) -> KafkaConsumer:
    """Return a consumer that commits nothing; `reset` applies if its offset is gone."""
    return KafkaConsumer(
        {
            **audit_properties(bootstrap),
            **READ_AHEAD,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": reset,
            "queued.max.messages.kbytes": 16_384,
            "log_level": 2,
        }
    )


def watermarks(consumer: KafkaConsumer, bootstrap: str) -> dict[int, tuple[int, int]]:
    """Return the first and next offset of each partition of the audit topic, or {} without a topic.

    Raises UnreachableError if the broker does not answer.
    """
    leaderless: list[int] = []
    try:
        metadata = consumer.list_topics(AUDIT_TOPIC, timeout=_TIMEOUT_SECONDS).topics[AUDIT_TOPIC]
        if metadata.error is not None:
            return {}
        leaderless = [
            partition
            for partition, partition_metadata in metadata.partitions.items()
            if partition_metadata.leader == -1
        ]
        return {
            partition: consumer.get_watermark_offsets(
                TopicPartition(AUDIT_TOPIC, partition), timeout=_TIMEOUT_SECONDS
            )
            for partition in metadata.partitions
        }
    except KafkaException as error:
        if leaderless:
            raise UnreachableError(
                f"partition {leaderless[0]} of {AUDIT_TOPIC} has no leader: its broker is away, and"
                " sums without it would be wrong",
                fix="start that broker again; see `headworks topic describe`",
            ) from None
        raise broker_unreachable(bootstrap, error) from None


def broker_unreachable(bootstrap: str, error: KafkaException) -> UnreachableError:
    """Return the error for a broker that does not answer."""
    return UnreachableError(
        f"the broker at {bootstrap} does not answer: {error.args[0].str()}",
        fix="start it with `headworks up`, or give --bootstrap",
    )


def _read_to_end(consumer: KafkaConsumer, bootstrap: str) -> Iterator[Message]:
    marks = {p: m for p, m in watermarks(consumer, bootstrap).items() if m[1] > m[0]}
    ends = {p: high for p, (_, high) in marks.items()}
    consumer.assign([TopicPartition(AUDIT_TOPIC, p, low) for p, (low, _) in marks.items()])
    last_answer = time.monotonic()
    while ends:
        batch = consumer.consume(10_000, timeout=0.1)
        if batch:
            last_answer = time.monotonic()
        elif time.monotonic() - last_answer > _TIMEOUT_SECONDS:
            raise UnreachableError(
                f"the broker at {bootstrap} stopped answering while the audit was read",
                fix="look at its log, then ask again",
            )
        for message in batch:
            partition, offset = message.partition() or 0, message.offset() or 0
            problem = message.error()
            if problem is None:
                if partition in ends and offset < ends[partition]:
                    yield message
            elif (batch_there := damaged_batch(message)) is not None:
                raise DamagedBatchError(
                    batch_there,
                    fix="restore the partition from a copy, or use the store of `headworks audit"
                    " run`, which steps over the batch",
                )
            elif problem.code() != KafkaError._PARTITION_EOF:
                raise UnreachableError(f"reading {AUDIT_TOPIC}: {problem.str()}")
            if partition in ends and (problem is not None or offset + 1 >= ends[partition]):
                del ends[partition]
